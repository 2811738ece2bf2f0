"""Changes several fields of an existing job in one patch."""

from collections.abc import Mapping
from typing import Any

from stromboli.admission.core import scaling
from stromboli.shared.messages.admission import Violation


def change_patch(
    job: dict[str, Any],
    replicas: Mapping[str, int],
    minimum: int | None,
    priority_class: str | None,
) -> dict[str, Any] | Violation:
    """The patch of a job that sets the replicas of tasks by name, its minAvailable and its
    PriorityClass; None leaves a field unchanged.

    Tasks that grow are scaled before those that shrink, so that a gang which keeps its size is not
    rejected for a step in between. The patch contains the version that was read, so that it
    conflicts with a concurrent change.
    """
    spec = job["spec"]
    counts = {each.get("name", ""): each.get("replicas", 0) for each in spec["tasks"]}
    changed: dict[str, Any] = {}
    for task, count in sorted(replicas.items(), key=lambda it: counts.get(it[0], 0) - it[1]):
        step = scaling.scale_patch({**job, "spec": {**spec, **changed}}, task, count, minimum)
        if isinstance(step, Violation):
            return step
        changed |= step["spec"]
    if minimum is not None:
        changed["minAvailable"] = minimum
    if priority_class is not None:
        changed["priorityClassName"] = priority_class
    if not changed:
        return Violation(
            path="",
            reason="it changes nothing",
            expected="replicas, minAvailable or priorityClassName",
        )
    metadata = job["metadata"]
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "spec": changed,
    }
