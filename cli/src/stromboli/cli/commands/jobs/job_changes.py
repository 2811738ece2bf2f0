"""``strom job suspend``, ``resume``, ``restart`` and ``scale``: changes of existing jobs."""

from collections.abc import Sequence
from typing import Annotated

import typer

from stromboli.cli import options
from stromboli.cli.commands.jobs import job_selection
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.client.phases import ENDS, phase_of
from stromboli.shared.api import kinds


def suspend(
    names: options.OptionalJobNames = None,
    selector: options.Selector = "",
    phase: options.Phases = None,
    all_jobs: options.All = False,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Suspend jobs.

    Their pods are deleted; the jobs remain and can be resumed. The command does not wait:

    strom job wait JOB --for Aborted
    """
    job_selection.check(names, selector, phase, all_jobs=all_jobs)
    _command(names, selector, phase, namespace, server, "AbortJob", "suspend requested")


def resume(
    names: options.OptionalJobNames = None,
    selector: options.Selector = "",
    phase: options.Phases = None,
    all_jobs: options.All = False,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Resume suspended jobs.

    Their pods start again from the beginning. It does not count against maxRetry.
    """
    job_selection.check(names, selector, phase, all_jobs=all_jobs)
    _command(names, selector, phase, namespace, server, "ResumeJob", "resume requested")


def restart(
    names: options.OptionalJobNames = None,
    selector: options.Selector = "",
    phase: options.Phases = None,
    all_jobs: options.All = False,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Restart jobs.

    All pods are deleted and created again. It does not count against maxRetry.
    """
    job_selection.check(names, selector, phase, all_jobs=all_jobs)
    _command(names, selector, phase, namespace, server, "RestartJob", "restart requested")


def scale(
    name: options.JobName,
    replicas: Annotated[
        int, typer.Option("--replicas", "-r", min=0, help="New number of pods of the task.")
    ],
    task: Annotated[
        str | None,
        typer.Option(
            "--task", "-t", metavar="NAME", help="The task; required if the job has several."
        ),
    ] = None,
    minimum: Annotated[
        int | None,
        typer.Option(
            "--min",
            "-m",
            min=0,
            help="New minAvailable. Without it, a job whose minAvailable was all of its pods keeps "
            "requiring all of them.",
        ),
    ] = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Set the number of replicas of a task."""
    with options.client(server) as client:
        try:
            applied = client.scale(namespace, name, replicas, task or "", minimum)
        except CommandError as error:
            raise _without_paths(error) from None
    output.show_lines([f"{output.title(kinds.JOBS, name)} {applied.result}"])


def _without_paths(error: CommandError) -> CommandError:
    """The error with names of fields instead of JSON paths: the user wrote no manifest."""
    violations = getattr(error, "violations", ())
    details = tuple(
        ": ".join(
            filter(None, (_field(it.path), "; ".join(filter(None, (it.reason, it.expected)))))
        )
        for it in violations
    )
    if not violations or getattr(error, "is_forbidden", False):
        return error
    return CommandError(error.what, error.why, error.next_step, details)


def _field(path: str) -> str:
    """The last part of a path in a spec; empty for a path in the status."""
    return "" if path.startswith("status.") else path.rpartition(".")[2]


def _command(
    names: Sequence[str] | None,
    selector: str,
    phase: str | None,
    namespace: str,
    server: str | None,
    action: str,
    done: str,
) -> None:
    with options.client(server) as client:

        def ask(name: str) -> str:
            now = phase_of(client.decode(kinds.JOBS, client.job(namespace, name)))
            if action in ignored_actions(now):
                why, next_step = _IDLE[action]
                raise CommandError(f"job {namespace}/{name}", f"it is {now}{why}", next_step)
            client.command_job(namespace, name, action)
            return f"{output.title(kinds.JOBS, name)} {done}"

        chosen = job_selection.select(
            client, namespace, names, selector, phase, lambda now: action in ignored_actions(now)
        )
        options.for_each(chosen, ask)


def ignored_actions(phase: str) -> frozenset[str]:
    """The actions that have no effect on a job in this phase: it has ended, is suspended already,
    or is not suspended. Pure."""
    if phase in ENDS - {"Aborted"}:
        return frozenset(_IDLE)
    if phase in ("Aborting", "Aborted"):
        return frozenset({"AbortJob"})
    return frozenset({"ResumeJob"})


_IDLE = {
    "AbortJob": (", so there is nothing to suspend", "list jobs: strom job list"),
    "ResumeJob": (
        ", and only a suspended job can be resumed",
        "submit a job that has ended again",
    ),
    "RestartJob": (", so there is nothing to restart", "submit it again"),
}
"""Action -> why it has no effect on a job, and the next step."""
