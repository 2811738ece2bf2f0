"""Builds the bodies of the objects that the controller writes, and the patches of these objects."""

from typing import Any, Literal

import msgspec

from stromboli.controller.core import commands
from stromboli.shared import keys
from stromboli.shared.api import batch, core, kinds
from stromboli.shared.api.meta import Object

COMPONENT = "stromboli-controller"
"""The reporting component of our Kubernetes Events."""

_ENCODER = msgspec.json.Encoder(order="deterministic")
encode = _ENCODER.encode


def owned_by(job: batch.Job) -> list[dict[str, Any]]:
    """The owner reference of objects that the garbage collector deletes with the job."""
    return [owner(kinds.JOBS, job)]


def owner(kind: kinds.Kind[Any], of: Object) -> dict[str, Any]:
    """The owner reference to ``of`` with ``controller: true``."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": of.metadata.name,
        "uid": of.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def body(kind: kinds.Kind[Any], job: batch.Job, name: str, **fields: Any) -> bytes:
    """The body of an object of a job. ``fields`` are at top level; ``metadata`` is completed."""
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "ownerReferences": owned_by(job),
        **fields.pop("metadata", {}),
    }
    return encode(
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
    )


def test(path: str, value: Any) -> dict[str, Any]:
    """The ``test`` operation of a JSON patch."""
    return {"op": "test", "path": path, "value": value}


def put(path: str, value: Any) -> dict[str, Any]:
    """The operation of a JSON patch that adds or replaces a field."""
    return {"op": "add", "path": path, "value": value}


def merge(
    kind: kinds.Kind[Any],
    of: Object,
    *,
    subresource: Literal["", "status"] = "",
    metadata: dict[str, Any] | None = None,
    **fields: Any,
) -> commands.Patch:
    """A merge patch with the resourceVersion of ``of`` as its precondition."""
    guard = {"uid": of.metadata.uid, "resourceVersion": of.metadata.resource_version}
    return commands.Patch(
        kind=kind,
        namespace=of.metadata.namespace,
        name=of.metadata.name,
        uid=of.metadata.uid,
        patch=encode({"metadata": {**guard, **(metadata or {})}, **fields}),
        patch_type="merge",
        subresource=subresource,
    )


def annotated(kind: kinds.Kind[Any], of: Object, annotation: str, value: str) -> commands.Patch:
    """The patch that sets an annotation. A cached object without annotations may have some that the
    snapshots omit or that were just written; then it is a merge patch on the cached
    resourceVersion."""
    if not of.metadata.annotations:
        return merge(kind, of, metadata={"annotations": {annotation: value}})
    return json_patch(kind, of, put(annotation_path(annotation), value))


def unannotated(kind: kinds.Kind[Any], of: Object, annotation: str) -> commands.Patch:
    """The patch that removes an annotation, if it still has the cached value."""
    precondition = test(annotation_path(annotation), of.metadata.annotation(annotation))
    return json_patch(kind, of, precondition, {"op": "remove", "path": annotation_path(annotation)})


def annotation_path(annotation: str) -> str:
    """The path of an annotation in a JSON patch."""
    return f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"


def json_patch(
    kind: kinds.Kind[Any],
    of: Object,
    *operations: dict[str, Any],
    subresource: Literal["", "status"] = "",
) -> commands.Patch:
    """A JSON patch of an object, with its uid as the precondition."""
    return commands.Patch(
        kind=kind,
        namespace=of.metadata.namespace,
        name=of.metadata.name,
        uid=of.metadata.uid,
        patch=encode([test("/metadata/uid", of.metadata.uid), *operations]),
        subresource=subresource,
    )


def with_condition(
    pod: core.Pod, condition: dict[str, str], *, tests_version: bool = True
) -> commands.Patch:
    """Set a condition of a pod: replace the condition of this type, if it still has the cached
    status, or add one. An addition has no value to test, so it tests the resourceVersion, which
    prevents a second condition of the type. ``tests_version=False``, for a patch that follows
    another patch of the same pod: the resourceVersion is tested only if the pod has no condition.
    """
    type_, before = condition["type"], pod.status.conditions
    position = next((at for at, it in enumerate(before) if it.type == type_), None)
    if position is not None:
        path = f"/status/conditions/{position}"
        operations = [
            test(f"{path}/type", type_),
            test(f"{path}/status", before[position].status),
            {"op": "replace", "path": path, "value": condition},
        ]
    else:
        one, first = ("/status/conditions/-", condition), ("/status/conditions", [condition])
        operations = [put(*one) if before else put(*first)]
        if tests_version or not before:
            operations.insert(0, test("/metadata/resourceVersion", pod.metadata.resource_version))
    return json_patch(kinds.PODS, pod, *operations, subresource="status")


def job_status_patch(command: commands.PatchJobStatus) -> bytes:
    """The JSON patch of a status write. It replaces the whole status, so it tests the
    resourceVersion from which the new status was derived: results of an array and used retries are
    recorded nowhere else."""
    before = command.job.metadata
    return encode(
        [
            test("/metadata/uid", before.uid),
            test("/metadata/resourceVersion", before.resource_version),
            put("/status", msgspec.to_builtins(command.status)),
        ]
    )


def event_body(event: commands.RecordEvent) -> bytes:
    """The Kubernetes Event. Events about cluster scoped objects are in namespace ``default``."""
    whole = event.at.isoformat(timespec="seconds").replace("+00:00", "Z")
    # Microseconds preserve the order of Events within one second.
    exact = event.at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return encode(
        {
            "apiVersion": kinds.EVENTS.api_version,
            "kind": kinds.EVENTS.kind,
            "metadata": {"name": event.event_name, "namespace": event_namespace(event)},
            "involvedObject": {
                "apiVersion": event.kind.api_version,
                "kind": event.kind.kind,
                "name": event.name,
                "namespace": event.namespace,
                "uid": event.uid,
            },
            "type": event.type,
            "reason": event.reason,
            # The API server takes at most 1 kB.
            "message": event.message.encode()[:1000].decode(errors="ignore"),
            "count": 1,
            "firstTimestamp": whole,
            "lastTimestamp": whole,
            "eventTime": exact,
            "action": event.reason,
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
            "source": {"component": COMPONENT},
        }
    )


def event_recurrence(event: commands.RecordEvent, count: int) -> bytes:
    """The merge patch for an Event that occurred again."""
    whole = event.at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return encode({"count": count, "lastTimestamp": whole})


def event_namespace(event: commands.RecordEvent) -> str:
    """The namespace of the Event."""
    return event.namespace or "default"


def version_of(obj: Object) -> int:
    """The job version for which a pod or PodGroup was created."""
    return number(obj.metadata.annotation(keys.JOB_VERSION))


def attempt_of(pod: Object) -> int:
    """The attempt of a pod, from 1. A pod that Volcano created has no attempt and counts as the
    first."""
    return max(number(pod.metadata.annotation(keys.ATTEMPT)), 1)


def number(text: str | None) -> int:
    """The number in an annotation; 0 if it is invalid, since users may edit annotations."""
    return count(text or "") or 0


def count(text: str) -> int | None:
    """A 32-bit count as in Kubernetes; None if the text is not one."""
    return int(text) if len(text) < 10 and text.isascii() and text.isdecimal() else None


def is_owned(obj: Object, owner_uid: str) -> bool:
    """Whether the owner with this uid is the object's controller."""
    owner = obj.metadata.controller
    return owner is not None and owner.uid == owner_uid
