"""``strom job suspend``, ``resume``, ``restart`` and ``scale``: wishes about a job that exists."""

from collections.abc import Sequence
from typing import Annotated

import typer

from stromboli.cli import options
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.client.phases import ENDS, phase_of
from stromboli.shared.api import kinds


def suspend(
    names: options.JobNames,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Stop jobs: their pods end, the jobs stay and can be resumed.

    The command returns at once; strom job wait JOB --for Aborted waits until it is done.
    """
    _command(names, namespace, server, "AbortJob", "asked to stop")


def resume(
    names: options.JobNames,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Let suspended jobs run again, from their start; it costs none of their tries."""
    _command(names, namespace, server, "ResumeJob", "asked to resume")


def restart(
    names: options.JobNames,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Start all pods of jobs anew; it costs none of their tries."""
    _command(names, namespace, server, "RestartJob", "asked to restart")


def scale(
    name: options.JobName,
    replicas: Annotated[
        int, typer.Option("--replicas", "-r", min=0, help="Pods that the task is to have.")
    ],
    task: Annotated[
        str | None,
        typer.Option("--task", "-t", metavar="NAME", help="Which task, if the job has several."),
    ] = None,
    minimum: Annotated[
        int | None,
        typer.Option(
            "--min",
            "-m",
            min=0,
            help="Pods of the job that must run together. Without it a job that needed all its "
            "pods goes on to need all of them.",
        ),
    ] = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Give a task of a job more pods, or fewer."""
    with options.client(server) as client:
        applied = client.scale(namespace, name, replicas, task or "", minimum)
    output.show_lines([f"{output.title(kinds.JOBS, name)} {applied.result}"])


def _command(
    names: Sequence[str], namespace: str, server: str | None, action: str, done: str
) -> None:
    with options.client(server) as client:

        def ask(name: str) -> str:
            phase = phase_of(client.decode(kinds.JOBS, client.job(namespace, name)))
            if action in ignored_actions(phase):
                why, next_step = _IDLE[action]
                raise CommandError(f"job {namespace}/{name}", f"it is {phase}{why}", next_step)
            client.command_job(namespace, name, action)
            return f"{output.title(kinds.JOBS, name)} {done}"

        options.for_each(names, ask)


def ignored_actions(phase: str) -> frozenset[str]:
    """The actions that do nothing to a job in this phase: it has ended, has been stopped already,
    or has nothing to resume. Pure."""
    if phase in ENDS - {"Aborted"}:
        return frozenset(_IDLE)
    if phase in ("Aborting", "Aborted"):
        return frozenset({"AbortJob"})
    return frozenset({"ResumeJob"})


_IDLE = {
    "AbortJob": (", so there is nothing to stop", "see what became of it: strom job list"),
    "ResumeJob": (
        ", and only a suspended job is resumed",
        "one that has ended is submitted again; one that runs is suspended first",
    ),
    "RestartJob": (", so there is nothing to restart", "submit it again"),
}
"""Action -> what to say of a job to which it would do nothing, and what to do."""
