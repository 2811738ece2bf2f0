"""``strom job suspend``, ``resume``, ``restart`` and ``scale``: wishes about a job that exists."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from stromboli.cli import options, output
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
    """Let suspended jobs run again, from their start."""
    _command(names, namespace, server, "ResumeJob", "asked to resume")


def restart(
    names: options.JobNames,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Start all pods of jobs anew; it counts as one of their tries."""
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
        before = msgspec.json.decode(client.job(namespace, name))
        try:
            document = scaled(before, task, replicas, minimum)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--task") from None
        (applied,) = client.apply([document])
    output.show_lines([f"{output.title(kinds.JOBS, name)} {applied.result}"])


def scaled(
    before: dict[str, Any], task: str | None, replicas: int, minimum: int | None
) -> dict[str, Any]:
    """What is to be changed of a job so that a task has so many replicas. Pure.

    A gang that was whole stays whole. The version read goes along, so that another's change in
    between is not undone. Raises ValueError if it is not clear which task is meant.
    """
    tasks: list[dict[str, Any]] = before["spec"]["tasks"]
    names = [each.get("name", "") for each in tasks]
    if task is None and len(tasks) > 1:
        raise ValueError(f"the job has several tasks; name one of {', '.join(names)}")
    if task is not None and task not in names:
        raise ValueError(f"there is no task {task!r}; there are {', '.join(names)}")
    at = 0 if task is None else names.index(task)
    was = tasks[at].get("replicas", 0)
    changed = {**tasks[at], "replicas": replicas}
    needed = changed.get("minAvailable")
    if needed is not None:
        changed["minAvailable"] = replicas if needed == was else min(needed, replicas)
    total = sum(each.get("replicas", 0) for each in tasks)
    least = before["spec"].get("minAvailable", total)
    if minimum is None:
        minimum = total - was + replicas if least == total else min(least, total - was + replicas)
    metadata = before["metadata"]
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "spec": {"minAvailable": minimum, "tasks": [*tasks[:at], changed, *tasks[at + 1 :]]},
    }


def _command(
    names: Sequence[str], namespace: str, server: str | None, action: str, done: str
) -> None:
    with options.client(server) as client:
        for name in names:
            client.command_job(namespace, name, action)
            output.show_lines([f"{output.title(kinds.JOBS, name)} {done}"])
