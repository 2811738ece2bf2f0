"""The state of a cluster as lists of objects, sent from the scheduler to its forecast process."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.shared import snapshot
from stromboli.shared.api import core, kinds, meta, scheduling_view

NAMESPACES = "namespaces"
_KINDS: Mapping[type, kinds.Kind[Any]] = {
    kind.struct: kind for kind in scheduling_view.SCHEDULING_KINDS
}
_ELEMENTS: Mapping[str, type] = {
    field: get_args(hint)[0]
    for field, hint in get_type_hints(cluster_objects.Cluster).items()
    if get_origin(hint) is tuple
}
FIELDS: Mapping[str, kinds.Kind[Any]] = {
    NAMESPACES: kinds.NAMESPACES,
    **{field: _KINDS[element] for field, element in _ELEMENTS.items() if element in _KINDS},
}
"""Name of a list -> the kind of its objects: the fields of ``cluster_objects.Cluster``, and the
namespaces."""


class Present(msgspec.Struct, frozen=True):
    """Lists of objects by name. ``now``: the time of the state."""

    now: datetime
    objects: Mapping[str, Sequence[meta.Object]]


def of_snapshot(snapshot_view: snapshot.Snapshot, now: datetime) -> Present:
    """All readable objects of the snapshot; nothing changes them later. O(objects)."""
    return Present(
        now, {field: list(snapshot_view.objects(kind)) for field, kind in FIELDS.items()}
    )


def cluster(present: Present) -> cluster_objects.Cluster:
    """The objects as the input of a session."""
    objects = dict(present.objects)
    labels = {
        each.metadata.name: each.metadata.labels or {}
        for each in objects.pop(NAMESPACES, ())
        if isinstance(each, core.Namespace)
    }
    lists: dict[str, Any] = {field: tuple(objs) for field, objs in objects.items()}
    return cluster_objects.Cluster(now=present.now, namespace_labels=labels, **lists)
