"""``strom job``: the table of commands about jobs."""

from typing import ClassVar

import typer

from stromboli.cli import lazy, other_words
from stromboli.cli.lazy import Entry

_HERE = "stromboli.cli.commands.jobs"


class JobGroup(lazy.Group):
    """Commands about jobs."""

    entries: ClassVar[dict[str, Entry]] = {
        "run": Entry(
            f"{_HERE}.run:run", "Submit a job: a command, a script or a manifest.", "RunCommand"
        ),
        "list": Entry(f"{_HERE}.job_list:list_jobs", "List jobs."),
        "get": Entry(
            f"{_HERE}.job_get:get", "Show a job, its tasks and pods, and why it is pending."
        ),
        "describe": Entry(
            f"{_HERE}.job_describe:describe", "Show a job in full, with its history and events."
        ),
        "logs": Entry(f"{_HERE}.job_logs:logs", "Print the logs of a job's pods."),
        "exec": Entry(
            f"{_HERE}.job_exec:exec_in", "Run a command in a running pod of a job.", "COMMAND_CLASS"
        ),
        "port-forward": Entry(
            f"{_HERE}.job_port_forward:port_forward",
            "Forward local ports to a running pod of a job.",
        ),
        "history": Entry(
            f"{_HERE}.job_history:history",
            "Show all attempts of a job, also of a deleted one.",
        ),
        "attach": Entry(f"{_HERE}.job_attach:attach", "Start a debug tool beside a job."),
        "detach": Entry(f"{_HERE}.job_attach:detach", "Remove debug tools from a job."),
        "wait": Entry(f"{_HERE}.job_wait:wait", "Wait until a job reaches a phase or ends."),
        "suspend": Entry(f"{_HERE}.job_changes:suspend", "Suspend jobs."),
        "resume": Entry(f"{_HERE}.job_changes:resume", "Resume suspended jobs."),
        "restart": Entry(f"{_HERE}.job_changes:restart", "Restart jobs."),
        "scale": Entry(f"{_HERE}.job_changes:scale", "Set the number of replicas of a task."),
        "set": Entry(
            f"{_HERE}.job_resubmit:set_fields",
            "Change priority, time limit, queue, min and replicas of a job.",
        ),
        "edit": Entry(
            f"{_HERE}.job_edit:edit", "Change a job in an editor (VISUAL, EDITOR or vi)."
        ),
        "resubmit": Entry(
            f"{_HERE}.job_resubmit:resubmit",
            "Submit a new job with the spec of an existing or ended job.",
        ),
        "retry": Entry(
            f"{_HERE}.job_resubmit:retry",
            "Run ended indexes of an array again, as a new array.",
        ),
        "delete": Entry(
            f"{_HERE}.job_changes:delete",
            "Delete jobs with their pods, or cancel indexes of an array.",
        ),
    }
    aliases: ClassVar[dict[str, str]] = {
        "view": "get", "log": "logs", "submit": "run",
        # Slurm's names: a held job is a suspended one, and requeueing is a restart of all pods.
        "hold": "suspend", "release": "resume", "requeue": "restart", "cancel": "delete",
    }  # fmt: skip
    other_words = other_words.OF_JOBS


_OTHER_NAMES = ", ".join(f"{alias} ({name})" for alias, name in JobGroup.aliases.items())
app = typer.Typer(
    cls=JobGroup, help="Run, inspect and change jobs.", epilog=f"Other names: {_OTHER_NAMES}."
)
