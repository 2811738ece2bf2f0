"""Volumes: a pod goes to a node that reaches its volumes (Kubernetes plugins VolumeBinding,
VolumeZone).

Pods of a bound claim can only be placed on the nodes of its volume. A claim that waits for its
first consumer is bound after the node is chosen and before the pod is bound: a preparation of the
bind. A volume that the session chose belongs to its claim until no task of the session uses the
claim.
"""

from collections.abc import Hashable, Iterator, Sequence

import msgspec
import numpy as np

from stromboli.scheduler.core.cluster import device_claims
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.predicates import volume_inventory
from stromboli.shared.api import storage
from stromboli.shared.messages import scheduling as messages

CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NONE_FREE = "node(s) didn't find available persistent volumes to bind"
NO_ROOM = "node(s) did not have enough free storage"
ELSEWHERE = "node(s) had no available volume zone"
_ZONES = (
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
)
"""Zone labels that volume and node must share, each with its deprecated name."""


class _ChosenVolume(msgspec.Struct, eq=False):
    """The volume for a claim, existing or to be provisioned. ``users``: tasks."""

    volume: str
    reached: extension_points.Mask
    users: set[str]


class Claims:
    """The claims of a session's pods. ``with_zones``: zone labels of volumes count."""

    def __init__(self, ssn: session.Session, *, with_zones: bool = True) -> None:
        self._table = ssn.nodes
        around = ssn.model.auxiliary
        self._claims = around.claims
        self._unread = around.unreadable["claims"]
        self._volumes = around.volumes
        self._stock = volume_inventory.VolumeInventory(around, ssn.nodes)
        self._zones = _ZONES if with_zones else ()
        self._chosen: dict[str, _ChosenVolume] = {}
        self.on_allocate([task for _, task in sorted(ssn.model.pod_index.claimants.items())])

    def missing(self, task: entities.Task) -> str | None:
        """Return why no node is feasible: a claim is absent, or must be bound before scheduling."""
        for key in device_claims.volume_keys(task.pod):
            name = key.partition("/")[2]
            if key in self._unread:
                return f'persistentvolumeclaim "{name}" cannot be read: {self._unread[key]}'
            claim = self._claims.get(key)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if claim.metadata.deletion_timestamp is not None:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if not claim.spec.volume_name and not self._stock.is_late(claim):
                return "pod has unbound immediate PersistentVolumeClaims"
        return None

    def class_key(self, task: entities.Task) -> Hashable:
        """Return the key that distinguishes tasks of one class: claims that belong to one pod
        alone."""
        return task.uid if task.task_class.has_own_claims else None

    def reachable(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """Return the nodes that reach the volumes of bound claims."""
        node_checks = []
        for claim in self._of(task):
            if claim.spec.volume_name:
                reached = self._stock.reach(claim.spec.volume_name)
                node_checks.append(
                    extension_points.Check(
                        CONFLICT,
                        extension_points.Code.UNRESOLVABLE,
                        reached[view.rows],
                        is_lasting=True,
                    )
                )
                zoned = self._zoned(self._volumes.get(claim.spec.volume_name))
                if zoned is not None:
                    node_checks.append(
                        extension_points.Check(
                            ELSEWHERE,
                            extension_points.Code.UNRESOLVABLE,
                            zoned[view.rows],
                            is_lasting=True,
                        )
                    )
        return node_checks

    def obtainable(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """Return the nodes where unbound claims can be bound, without volumes that the session
        chose for other claims."""
        open_ = [claim for claim in self._of(task) if not claim.spec.volume_name]
        if not open_:
            return []
        reached = np.ones(len(self._table), np.bool_)
        lacking = []
        for claim in open_:
            chosen = self._chosen.get(claim.metadata.key)
            if chosen is None:
                lacking.append(claim)
            else:
                reached = reached & chosen.reached
        places = self._stock.places(lacking)
        bindable = reached & places.found
        return [
            extension_points.Check(
                NONE_FREE, extension_points.Code.UNRESOLVABLE, bindable[view.rows], is_lasting=True
            ),
            extension_points.Check(
                NO_ROOM, extension_points.Code.UNRESOLVABLE, places.with_capacity[view.rows]
            ),
        ]

    def on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        """Choose volumes for tasks that were placed or restored."""
        for task in tasks:
            self._refresh_claim(task)

    def on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        """Release the volumes of claims that are no longer in use."""
        for task in tasks:
            for key in device_claims.volume_keys(task.pod):
                chosen = self._chosen.get(key)
                if chosen is not None:
                    chosen.users.discard(task.uid)
                    if not chosen.users:
                        self._stock.taken.discard(chosen.volume)
                        del self._chosen[key]

    def preparations(self, task: entities.Task) -> Iterator[messages.ClaimedVolume]:
        """Return the claims to be bound before the bind of the pod."""
        for claim in self._of(task):
            chosen = self._chosen.get(claim.metadata.key)
            if chosen is not None:
                yield messages.ClaimedVolume(
                    claim=claim.metadata.name, uid=claim.metadata.uid, volume=chosen.volume
                )

    def _of(self, task: entities.Task) -> list[storage.PersistentVolumeClaim]:
        claims = (self._claims.get(key) for key in device_claims.volume_keys(task.pod))
        return [claim for claim in claims if claim is not None]

    def _refresh_claim(self, task: entities.Task) -> None:
        row = self._table.rows.get(task.node)
        open_ = [claim for claim in self._of(task) if not claim.spec.volume_name]
        if row is None or not open_:
            return
        lacking = [claim for claim in open_ if claim.metadata.key not in self._chosen]
        for claim, volume in self._stock.choose(lacking, row):
            self._stock.taken.add(volume)
            reached = self._stock.reach(volume) if volume else np.arange(len(self._table)) == row
            self._chosen[claim.metadata.key] = _ChosenVolume(volume, reached, set())
        for claim in open_:
            self._chosen[claim.metadata.key].users.add(task.uid)

    def _zoned(self, volume: storage.PersistentVolume | None) -> extension_points.Mask | None:
        """Return the nodes in the volume's zone; None if it has none. Nodes without zone labels
        match."""
        labels = {} if volume is None else volume.metadata.labels or {}
        wanted = [
            (names, value.split("__"))
            for names in self._zones
            for key in names
            if (value := labels.get(key)) is not None
        ]
        if not wanted:
            return None
        passed = np.ones(len(self._table), np.bool_)
        unzoned = np.ones(len(self._table), np.bool_)
        for names in _ZONES:
            for name in names:
                unzoned &= self._table.labelled.label_codes(name)[0] < 0
        for names, values in wanted:
            there = np.zeros(len(self._table), np.bool_)
            for name in names:
                codes, known = self._table.labelled.label_codes(name)
                there |= np.isin(codes, [known[each] for each in values if each in known])
            passed &= there
        return passed | unzoned
