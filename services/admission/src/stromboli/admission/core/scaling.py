"""Scales a task of an existing job."""

from typing import Any

from stromboli.shared.formats import counts
from stromboli.shared.messages.admission import Violation


def scale_patch(
    job: dict[str, Any], task: str, replicas: int, minimum: int | None
) -> dict[str, Any] | Violation:
    """The patch of a job that sets the replicas of a task.

    ``task`` may be empty if the job has only one. Without a ``minimum``, a gang that needs all its
    pods continues to need all, and an elastic one keeps its minAvailable: fewer replicas are
    rejected. The patch contains the version that was read, so that it conflicts with a concurrent
    change.
    """
    tasks: list[dict[str, Any]] = job["spec"]["tasks"]
    names = [each.get("name", "") for each in tasks]
    if not task and len(tasks) > 1:
        return Violation(
            path="task", reason="the job has several tasks", expected=f"one of {', '.join(names)}"
        )
    if task and task not in names:
        there = f"one of {', '.join(names)}"
        return Violation(path="task", reason=f"there is no task {task!r}", expected=there)
    at = names.index(task) if task else 0
    was = tasks[at].get("replicas", 0)
    changed = {**tasks[at], "replicas": replicas}
    needed = changed.get("minAvailable")
    if minimum is None and needed is not None and replicas < needed < was:
        return _too_few(replicas, needed, f"task {names[at]}")
    if needed is not None:
        changed["minAvailable"] = replicas if needed == was else min(needed, replicas)
    total = sum(each.get("replicas", 0) for each in tasks)
    least = job["spec"].get("minAvailable", total)
    left = total - was + replicas
    if minimum is None and left < least < total:
        return _too_few(left, least, "the job")
    if minimum is None:
        minimum = left if least == total else least
    metadata = job["metadata"]
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "spec": {"minAvailable": minimum, "tasks": [*tasks[:at], changed, *tasks[at + 1 :]]},
    }


def _too_few(left: int, needed: int, subject: str) -> Violation:
    return Violation(
        path="replicas",
        reason=f"{subject} would have {counts.counted(left, 'pod')}, but needs {needed} "
        "(minAvailable)",
        expected=f"replicas for at least {counts.counted(needed, 'pod')}, or a lower "
        "minAvailable (--min); to stop all pods, suspend the job",
    )
