"""Changes several fields of an existing job in one patch."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stromboli.admission.core import scaling
from stromboli.shared.formats import indexes
from stromboli.shared.messages.admission import Violation


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new values of a job's fields; None leaves a field unchanged. ``replicas``: task -> pods.
    ``cancelled_indexes``: indexes of an array to cancel. The scheduler plans with
    ``running_estimate``; at its deadline the job fails."""

    replicas: Mapping[str, int] = {}
    min_available: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    active_deadline_seconds: int | None = None
    running_estimate: str | None = None
    cancelled_indexes: str | None = None


_PLAIN = {
    "min_available": "minAvailable",
    "queue": "queue",
    "priority_class_name": "priorityClassName",
    "active_deadline_seconds": "activeDeadlineSeconds",
    "running_estimate": "runningEstimate",
}
"""Fields whose value is copied from the request without conversion."""


def change_patch(job: dict[str, Any], change: JobChange) -> dict[str, Any] | Violation:
    """The patch of a job that makes a change.

    Tasks that grow are scaled before those that shrink, so that a gang which keeps its size is not
    rejected for an intermediate step. The patch contains the version that was read, so that it
    conflicts with a concurrent change.
    """
    spec, replicas = job["spec"], change.replicas
    counts = {each.get("name", ""): each.get("replicas", 0) for each in spec["tasks"]}
    changed: dict[str, Any] = {}
    for task, count in sorted(replicas.items(), key=lambda it: counts.get(it[0], 0) - it[1]):
        current = {**job, "spec": {**spec, **changed}}
        step = scaling.scale_patch(current, task, count, change.min_available)
        if isinstance(step, Violation):
            return step
        changed |= step["spec"]
    for field, name in _PLAIN.items():
        value = getattr(change, field)
        if value is not None:
            changed[name] = value
    if change.cancelled_indexes is not None:
        cancelled = _cancelled(job, change.cancelled_indexes)
        if isinstance(cancelled, Violation):
            return cancelled
        changed["array"] = {"cancelled": cancelled}
    if not changed:
        expected = f"replicas, {', '.join(_PLAIN.values())}, cancelledIndexes"
        return Violation(path="", reason="the request changes nothing", expected=expected)
    metadata = job["metadata"]
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
        "spec": changed,
    }


def _cancelled(job: dict[str, Any], text: str) -> str | Violation:
    """All cancelled indexes of an array after these are cancelled, too. An index with a result
    keeps it. O(indexes)."""
    path = "cancelledIndexes"
    if (array := job["spec"].get("array")) is None:
        return Violation(path=path, reason="the job is not an array", expected="delete the job")
    if problem := indexes.problem(text):
        return Violation(path=path, reason=problem, expected=indexes.FORM)
    wanted, requested = indexes.parse(text), indexes.parse(array["indexes"])
    if unknown := wanted - requested:
        has = f"indexes of {array['indexes']}"
        return Violation(path=path, reason=f"the array has no index {unknown}", expected=has)
    results = job.get("status", {}).get("array") or {}
    ended = (indexes.parse(results.get(name, "")) for name in ("succeeded", "failed"))
    for each in ended:
        wanted -= each
    if not wanted:
        why = f"{text}: nothing to cancel, these indexes have ended"
        return Violation(path=path, reason=why, expected="indexes without a result")
    return str(indexes.parse(array.get("cancelled", "")) | wanted)
