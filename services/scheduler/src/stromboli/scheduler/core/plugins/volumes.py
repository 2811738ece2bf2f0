"""Volumes: a pod goes where its volumes can be reached (Kubernetes' VolumeBinding).

A claim that is bound ties its pod to the nodes of its volume. One that waits for its first
consumer is bound once a node is chosen, before the pod is: that is a preparation of the bind.
"""

import numpy as np

from stromboli.scheduler.core import constraints, shapes
from stromboli.scheduler.core.framework import model, points, session, views
from stromboli.shared import units
from stromboli.shared.api import core

CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NONE_FREE = "node(s) didn't find available persistent volumes to bind"
_BIND = "bind claim "
_LATE = "WaitForFirstConsumer"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class Claims:
    """The claims of a session's pods."""

    def __init__(self, within: session.Session) -> None:
        self._labelled = within.nodes.labelled
        known = within.world.surroundings
        self._is_known = known.knows_volumes
        self._claims = known.claims
        self._volumes = known.volumes
        self._classes = known.storage_classes

    def missing(self, task: model.Task) -> str | None:
        """Why no node can help: a claim is not there, or should be bound by now."""
        for key in _keys(task) if self._is_known else ():
            claim = self._claims.get(key)
            if claim is None:
                name = key.partition("/")[2]
                return f'persistentvolumeclaim "{name}" not found'
            if not claim.spec.volume_name and not self._is_late(claim):
                return "pod has unbound immediate PersistentVolumeClaims"
        return None

    def checks(self, task: model.Task, view: views.View) -> list[points.Check]:
        """Nodes that reach the bound volumes, and where the others could be had."""
        found = []
        for key in _keys(task):
            claim = self._claims.get(key)
            if claim is None:
                continue
            if claim.spec.volume_name:
                reached = self._reach(self._volumes.get(claim.spec.volume_name))
                found.append(points.Check(CONFLICT, points.Code.UNRESOLVABLE, reached[view.rows]))
            elif not self._is_provisioned(claim):
                free = self._free(claim)
                found.append(points.Check(NONE_FREE, points.Code.UNRESOLVABLE, free[view.rows]))
        return found

    def preparations(self, task: model.Task) -> list[str]:
        """Claims to be bound before the pod is."""
        return [
            f"{_BIND}{key}"
            for key in _keys(task)
            if key in self._claims and not self._claims[key].spec.volume_name
        ]

    def _class(self, claim: core.PersistentVolumeClaim) -> core.StorageClass | None:
        return self._classes.get(claim.spec.storage_class_name or "")

    def _is_late(self, claim: core.PersistentVolumeClaim) -> bool:
        found = self._class(claim)
        return found is not None and found.volume_binding_mode == _LATE

    def _is_provisioned(self, claim: core.PersistentVolumeClaim) -> bool:
        found = self._class(claim)
        return found is not None and found.provisioner not in ("", _NO_PROVISIONER)

    def _reach(self, volume: core.PersistentVolume | None) -> points.Mask:
        """Nodes of a volume; a volume that is gone is reached from nowhere."""
        if volume is None:
            return np.zeros(len(self._labelled), np.bool_)
        placed = volume.spec.node_affinity
        if placed is None or placed.required is None:
            return np.ones(len(self._labelled), np.bool_)
        return constraints.matches(self._labelled, shapes.Constraints((), placed.required, ()))

    def _free(self, claim: core.PersistentVolumeClaim) -> points.Mask:
        """Nodes that reach a volume nobody claims, of the class and large enough."""
        wanted = _storage(claim.spec.resources.requests)
        free = np.zeros(len(self._labelled), np.bool_)
        for volume in self._volumes.values():
            if (
                volume.spec.claim_ref is None
                and volume.spec.storage_class_name == (claim.spec.storage_class_name or "")
                and _storage(volume.spec.capacity) >= wanted
            ):
                free |= self._reach(volume)
        return free


def is_binding(step: str) -> bool:
    """The preparation binds a volume."""
    return step.startswith(_BIND)


def _keys(task: model.Task) -> list[str]:
    return [
        f"{task.namespace}/{volume.persistent_volume_claim.claim_name}"
        for volume in task.pod.spec.volumes
        if volume.persistent_volume_claim is not None
    ]


def _storage(amounts: dict[str, core.Quantity] | None) -> int:
    return units.amount("storage", (amounts or {}).get("storage", 0))
