"""Reduces manifests to the fields that the scheduler reads, so that its decisions can be reproduced
on another machine.

The Structs have no fields for environment variables, commands or contents of volumes. Annotations
may contain anything, such as kubectl's copy of the whole object, so only scheduling annotations are
kept. Messages of conditions are removed.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import core, kinds, meta, resource, scheduling
from stromboli.shared.api.kinds import Kind

CLAIM_KINDS: tuple[Kind[Any], ...] = (
    kinds.STORAGE_CLASSES,
    kinds.PERSISTENT_VOLUMES,
    kinds.PERSISTENT_VOLUME_CLAIMS,
    kinds.CSI_NODES,
    kinds.CSI_DRIVERS,
    kinds.CSI_STORAGE_CAPACITIES,
    kinds.DEVICE_CLASSES,
    kinds.RESOURCE_SLICES,
    kinds.RESOURCE_CLAIMS,
)
"""Kinds that describe the volumes and devices of pods."""

SCHEDULING_KINDS: tuple[Kind[Any], ...] = (
    kinds.NODES,
    kinds.NAMESPACES,
    kinds.PRIORITY_CLASSES,
    kinds.QUEUES,
    kinds.HYPER_NODES,
    kinds.NUMA_TOPOLOGIES,
    kinds.RESOURCE_QUOTAS,
    kinds.DISRUPTION_BUDGETS,
    *CLAIM_KINDS,
    kinds.NODE_SHARDS,
    kinds.ADVANCE_RESERVATIONS,
    kinds.POD_GROUPS,
    kinds.PODS,
)
"""Kinds that scheduling sessions read."""

_KEPT_ANNOTATIONS = (
    "volcano.sh/",
    "scheduling.k8s.io/",
    keys.PREFIX,
    "nvidia.com/",
    "sla-waiting-time",
    keys.SELECTED_NODE,
)
_NODE_LOCKS = frozenset({"gpu", "hamivgpu"})
"""Annotations by which GPU sharing locks a node while a device plugin sets up a pod (Volcano)."""
_OMITTED_ANNOTATIONS = (keys.TRACEPARENT, keys.LAST_APPLIED)


def reduce_manifest(kind: Kind[Any], raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """The manifest of an object, reduced to scheduling fields. Raises msgspec.DecodeError."""
    obj = kind.decode(raw)
    less: dict[str, Any] = {"metadata": _metadata(obj.metadata)}
    if isinstance(obj, core.Pod):
        less["status"] = msgspec.structs.replace(
            obj.status,
            reason="",
            pod_ip="",
            container_statuses=(),
            conditions=_without_condition_messages(obj.status.conditions),
        )
    elif isinstance(obj, core.Node | scheduling.PodGroup):
        conditions = _without_condition_messages(obj.status.conditions)
        less["status"] = msgspec.structs.replace(obj.status, conditions=conditions)
    elif isinstance(obj, resource.DeviceClass):
        less["spec"] = msgspec.structs.replace(obj.spec, config=())
    elif isinstance(obj, resource.ResourceClaim):
        devices = msgspec.structs.replace(obj.spec.devices, config=())
        less["spec"] = msgspec.structs.replace(obj.spec, devices=devices)
        less["status"] = _without_parameters(obj.status)
    manifest = msgspec.to_builtins(msgspec.structs.replace(obj, **less))
    return {"apiVersion": kind.api_version, "kind": kind.kind, **manifest}


def scheduling_annotations(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """The annotations that scheduling may depend on."""
    return {
        key: value
        for key, value in (annotations or {}).items()
        if key in _NODE_LOCKS
        or (any(kept in key for kept in _KEPT_ANNOTATIONS) and key not in _OMITTED_ANNOTATIONS)
    }


def _metadata(whole: meta.ObjectMeta) -> meta.ObjectMeta:
    annotations = scheduling_annotations(whole.annotations)
    return msgspec.structs.replace(
        whole, annotations=annotations or None, owner_references=(), finalizers=()
    )


def _without_parameters(status: resource.ResourceClaimStatus) -> resource.ResourceClaimStatus:
    if status.allocation is None:
        return status
    devices = msgspec.structs.replace(status.allocation.devices, config=())
    allocation = msgspec.structs.replace(status.allocation, devices=devices)
    return msgspec.structs.replace(status, allocation=allocation)


def _without_condition_messages(conditions: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(msgspec.structs.replace(condition, message="") for condition in conditions)
