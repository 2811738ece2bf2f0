"""Existing volumes, and nodes where new ones can be provisioned (Kubernetes plugin VolumeBinding).

A claim gets the smallest sufficient volume among those without a claim. If there is none, its
storage class may provision one on nodes within its allowed topologies and, if the driver reports
capacity, with enough of it.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stromboli.scheduler.core.cluster import auxiliary_objects
from stromboli.scheduler.core.model import nodes, pod_terms
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import keys
from stromboli.shared.api import storage
from stromboli.shared.formats import units

NO_PROVISIONER = "kubernetes.io/no-provisioner"
_AVAILABLE = ("", "Available")
UNREADABLE_SIZE = 2**80
"""The size of a claim whose request cannot be read: no volume is large enough."""


class ClaimNodes(NamedTuple):
    """Nodes where claims can be bound. ``with_capacity``: those of them where provisioned volumes
    also have room."""

    found: extension_points.Mask
    with_capacity: extension_points.Mask


class VolumeInventory:
    """The volumes of a session. ``taken``: those that the session chose for claims."""

    def __init__(self, around: auxiliary_objects.AuxiliaryObjects, table: nodes.Nodes) -> None:
        self._around = around
        self._table = table
        self._by_class: dict[str, list[storage.PersistentVolume]] | None = None
        self.taken: set[str] = set()

    def is_late(self, claim: storage.PersistentVolumeClaim) -> bool:
        """Return whether the claim's volume is chosen after the pod's node
        (WaitForFirstConsumer)."""
        of = self._class(claim)
        return of is not None and of.volume_binding_mode == storage.LATE

    def reach(self, volume: str) -> extension_points.Mask:
        """Return the nodes that reach a volume; none for a volume that does not exist."""
        return self._around.reachable_nodes(volume, self._table)

    def places(self, claims: Sequence[storage.PersistentVolumeClaim]) -> ClaimNodes:
        """Return the nodes where all of the claims can be bound together. O(claims x volumes)."""
        bindable = np.ones(len(self._table), np.bool_)
        with_capacity = bindable.copy()
        used: dict[str, extension_points.Mask] = {}
        for claim in _by_size(claims):
            open_ = np.ones(len(self._table), np.bool_)
            for volume in self._candidates(claim):
                name = volume.metadata.name
                chosen = open_ & self.reach(name)
                if name in used:
                    chosen &= ~used[name]
                if len(claims) > 1:
                    used[name] = used[name] | chosen if name in used else chosen
                open_ &= ~chosen
                if not open_.any():
                    break
            provisionable = self._provisionable(claim)
            bindable &= ~open_ | provisionable
            with_capacity &= ~open_ | self._has_room(claim)
        return ClaimNodes(bindable, with_capacity)

    def choose(
        self, claims: Sequence[storage.PersistentVolumeClaim], row: int
    ) -> Iterator[tuple[storage.PersistentVolumeClaim, str]]:
        """Yield (claim, volume) for this node; the volume is empty if one must be provisioned."""
        used: set[str] = set()
        for claim in _by_size(claims):
            names = (each.metadata.name for each in self._candidates(claim))
            name = next((n for n in names if n not in used and self.reach(n)[row]), "")
            used.add(name)
            yield claim, name

    def _candidates(
        self, claim: storage.PersistentVolumeClaim
    ) -> Iterator[storage.PersistentVolume]:
        """Return suitable volumes, those reserved for the claim first, then by size."""
        if claim.metadata.annotation(keys.SELECTED_NODE):
            return  # A volume is being provisioned for the claim.
        if self._by_class is None:
            self._by_class = {}
            for volume in sorted(self._around.volumes.values(), key=_by_capacity):
                self._by_class.setdefault(volume.spec.storage_class_name, []).append(volume)
        of_class = self._by_class.get(claim.spec.storage_class_name or "", ())
        will_do = [
            each
            for each in of_class
            if each.metadata.name not in self.taken and _suits(each, claim)
        ]
        yield from sorted(will_do, key=lambda each: each.spec.claim_ref is None)

    def _provisionable(self, claim: storage.PersistentVolumeClaim) -> extension_points.Mask:
        """Return the nodes for which the claim's storage class provisions volumes."""
        of = self._class(claim)
        if of is None or of.provisioner in ("", NO_PROVISIONER) or claim.spec.selector is not None:
            return np.zeros(len(self._table), np.bool_)
        chosen = claim.metadata.annotation(keys.SELECTED_NODE)
        if chosen:
            return self._one_of([chosen])
        if not of.allowed_topologies:
            return np.ones(len(self._table), np.bool_)
        anywhere = np.zeros(len(self._table), np.bool_)
        for term in of.allowed_topologies:
            there = np.ones(len(self._table), np.bool_)
            for wanted in term.match_label_expressions:
                codes, known = self._table.labelled.label_codes(wanted.key)
                there &= np.isin(codes, [known[each] for each in wanted.values if each in known])
            anywhere |= there
        return anywhere

    def _has_room(self, claim: storage.PersistentVolumeClaim) -> extension_points.Mask:
        """Return the nodes where the driver reports capacity for a volume of this size."""
        of = self._class(claim)
        driver = self._around.csi_drivers.get(of.provisioner) if of is not None else None
        chosen = claim.metadata.annotation(keys.SELECTED_NODE)
        if of is None or driver is None or not driver.spec.storage_capacity or chosen:
            return np.ones(len(self._table), np.bool_)
        size, with_capacity = _wanted(claim), np.zeros(len(self._table), np.bool_)
        for left in self._around.listed("storage_capacities"):
            largest = (
                left.capacity if left.maximum_volume_size is None else left.maximum_volume_size
            )
            if left.storage_class_name == of.metadata.name and _bytes(largest) >= size:
                meant = pod_terms.selector(left.node_topology, {})
                if meant is not None:
                    labels = (each.metadata.labels or {} for each in self._table.objects)
                    with_capacity |= np.fromiter(
                        map(meant.matches, labels), np.bool_, len(with_capacity)
                    )
        return with_capacity

    def _one_of(self, names: Collection[str]) -> extension_points.Mask:
        return np.isin(np.array(self._table.names), list(names))

    def _class(self, claim: storage.PersistentVolumeClaim) -> storage.StorageClass | None:
        return self._around.storage_classes.get(claim.spec.storage_class_name or "")


def _suits(volume: storage.PersistentVolume, claim: storage.PersistentVolumeClaim) -> bool:
    kept_for, metadata = volume.spec.claim_ref, claim.metadata
    if kept_for is not None:
        named = (kept_for.namespace, kept_for.name) == (metadata.namespace, metadata.name)
        if not named or kept_for.uid not in ("", metadata.uid):
            return False
    elif volume.status.phase not in _AVAILABLE:
        return False
    if claim.spec.selector is not None:
        meant = pod_terms.selector(claim.spec.selector, {})
        if meant is None or not meant.matches(volume.metadata.labels or {}):
            return False
    return (
        volume.metadata.deletion_timestamp is None
        and volume.spec.volume_mode == claim.spec.volume_mode
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and _bytes((volume.spec.capacity or {}).get("storage")) >= _wanted(claim)
    )


def _by_size(
    claims: Sequence[storage.PersistentVolumeClaim],
) -> list[storage.PersistentVolumeClaim]:
    """Order claims by size: small ones first, so that large volumes are left to large claims."""
    return sorted(claims, key=lambda each: (_wanted(each), each.metadata.name))


def _by_capacity(volume: storage.PersistentVolume) -> tuple[int, str]:
    return _bytes((volume.spec.capacity or {}).get("storage")), volume.metadata.name


def _wanted(claim: storage.PersistentVolumeClaim) -> int:
    return _bytes((claim.spec.resources.requests or {}).get("storage"), unclear=UNREADABLE_SIZE)


def _bytes(quantity: str | int | float | None, unclear: int = 0) -> int:
    """Return whole bytes; ``unclear`` if the value is not a quantity."""
    try:
        return units.amount("memory", quantity or 0)
    except ValueError:
        return unclear
