"""Objects other than nodes, pods, jobs and queues: quotas, budgets, volumes, claims, HyperNodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from stromboli.scheduler.core.cluster import cluster_objects, data_copies, device_claims
from stromboli.scheduler.core.model import (
    node_attributes,
    node_constraints,
    nodes,
    requirements,
    topology_domains,
)
from stromboli.scheduler.core.numa import nodes as numa_nodes
from stromboli.shared.api import core, meta, numa, reservation, resource, shard, storage, topology
from stromboli.shared.messages import node_topology, node_usage

T = TypeVar("T")
FIELDS: Mapping[type[meta.Object], str] = {
    core.ResourceQuota: "resource_quotas",
    core.PodDisruptionBudget: "disruption_budgets",
    storage.PersistentVolume: "volumes",
    storage.PersistentVolumeClaim: "claims",
    storage.StorageClass: "storage_classes",
    storage.CSINode: "csi_nodes",
    storage.CSIDriver: "csi_drivers",
    storage.CSIStorageCapacity: "storage_capacities",
    resource.ResourceClaim: "resource_claims",
    resource.DeviceClass: "device_classes",
    resource.ResourceSlice: "resource_slices",
    shard.NodeShard: "node_shards",
    reservation.AdvanceReservation: "advance_reservations",
    topology.HyperNode: "hyper_nodes",
    numa.Numatopology: "numa_topologies",
}
"""Type -> field of ``cluster_objects.Cluster``."""


class AuxiliaryObjects:
    """Current objects by kind and key. ``unreadable``: field -> key -> why it cannot be decoded.

    Plugins look up single objects here. They may also read the session's ``cluster``, whose tuples
    are rebuilt only for kinds that changed.
    """

    def __init__(self) -> None:
        self.claims: dict[str, storage.PersistentVolumeClaim] = {}
        self.volumes: dict[str, storage.PersistentVolume] = {}
        self.storage_classes: dict[str, storage.StorageClass] = {}
        self.csi_nodes: dict[str, storage.CSINode] = {}
        self.csi_drivers: dict[str, storage.CSIDriver] = {}
        self.storage_capacities: dict[str, storage.CSIStorageCapacity] = {}
        self.resource_quotas: dict[str, core.ResourceQuota] = {}
        self.disruption_budgets: dict[str, core.PodDisruptionBudget] = {}
        self.resource_claims: dict[str, resource.ResourceClaim] = {}
        self.device_classes: dict[str, resource.DeviceClass] = {}
        self.resource_slices: dict[str, resource.ResourceSlice] = {}
        self.node_shards: dict[str, shard.NodeShard] = {}
        self.advance_reservations: dict[str, reservation.AdvanceReservation] = {}
        self.hyper_nodes: dict[str, topology.HyperNode] = {}
        self.numa_topologies: dict[str, numa.Numatopology] = {}
        self.hardware: dict[str, node_topology.TopologyObserved] = {}
        """Node -> the hardware report of its agent."""
        self.node_usage: dict[str, node_usage.NodeLoad] = {}
        """Node -> the loads that its agent measured; absent while they are unknown."""
        self.data_copies = data_copies.DataCopies()
        """The copies of data sets in the caches of nodes."""
        self.machines = numa_nodes.HardwareCache()
        self.namespace_labels: dict[str, Mapping[str, str]] = {}
        self.unreadable: dict[str, dict[str, str]] = {field: {} for field in FIELDS.values()}
        self._tuples: dict[str, tuple[meta.Object, ...]] = {}
        self._all: dict[str, Any] | None = None
        """Field -> objects, of all fields; None after a change."""
        self._remembered: dict[str, tuple[tuple[object, ...], Any]] = {}
        self._reach: dict[
            str, tuple[storage.PersistentVolume | None, int, list[str], node_attributes.Mask]
        ] = {}
        self._network: (
            tuple[tuple[topology.HyperNode, ...], int, topology_domains.TopologyTree] | None
        ) = None

    def put(self, obj: meta.Object) -> None:
        """Add or update an object of a kind in ``FIELDS``."""
        field = FIELDS[type(obj)]
        device_claims.import_selector_language(obj)
        getattr(self, field)[obj.metadata.key] = obj
        self.unreadable[field].pop(obj.metadata.key, None)
        self._tuples.pop(field, None)
        self._all = None

    def keep_reports(self, before: "AuxiliaryObjects") -> None:
        """Take over the reports of the agents and caches on nodes."""
        self.hardware, self.node_usage = before.hardware, before.node_usage
        self.data_copies = before.data_copies

    def put_usage(self, node: str, message: node_usage.UsageObserved | None) -> None:
        """Replace the loads of a node. They are unknown if ``message`` is None, because its record
        cannot be decoded, or if the agent is silent."""
        self.node_usage.pop(node, None)
        if message is not None and message.silent_since is None:
            self.node_usage[node] = message.usage

    def put_unreadable(self, kind: type[meta.Object], key: str, reason: str) -> None:
        """Add an object that cannot be decoded."""
        self.remove(kind, key)
        self.unreadable[FIELDS[kind]][key] = reason

    def remove(self, kind: type[meta.Object], key: str) -> None:
        """Remove an object, if it is there."""
        field = FIELDS[kind]
        getattr(self, field).pop(key, None)
        self.unreadable[field].pop(key, None)
        self._tuples.pop(field, None)
        self._all = None

    def listed(self, field: str) -> tuple[Any, ...]:
        """The objects of a field ordered by key; the same tuple until one of them changes."""
        if field not in self._tuples:
            objects = getattr(self, field)
            self._tuples[field] = tuple(objects[key] for key in sorted(objects))
        return self._tuples[field]

    def reachable_nodes(self, volume: str, table: nodes.Nodes) -> node_attributes.Mask:
        """Nodes that can access a volume; none for an unknown volume. Read-only; cached until the
        volume or an attribute of a node changes.
        """
        persistent_volume, version = self.volumes.get(volume), table.labelled.placement_version
        kept = self._reach.get(volume)
        # Reordered rows have another list of names.
        is_same = kept is not None and kept[0] is persistent_volume and kept[2] is table.names
        if kept is None or not is_same or kept[1] != version:
            if len(self._reach) > 2 * len(self.volumes) + 16:
                self._reach.clear()
            kept = self._reach[volume] = (
                persistent_volume,
                version,
                table.names,
                _reached(persistent_volume, table),
            )
        return kept[3]

    def cached(self, name: str, parts: Sequence[object], make: Callable[[], T]) -> T:
        """A plugin's cached result, which ``make`` computes again if one of ``parts`` is another
        object or another number than before.
        """
        known = self._remembered.get(name)
        if known is None or not all(
            left is right or (isinstance(left, int) and left == right)
            for left, right in zip(known[0], parts, strict=True)
        ):
            known = self._remembered[name] = (tuple(parts), make())
        value: T = known[1]
        return value

    def network(self, table: nodes.Nodes) -> topology_domains.TopologyTree:
        """The topology tree of the nodes; cached until HyperNodes, nodes or labels change."""
        topology_objects, version = self.listed("hyper_nodes"), table.labelled.placement_version
        if (
            self._network is None
            or self._network[0] is not topology_objects
            or self._network[1] != version
        ):
            labels = [each.metadata.labels or {} for each in table.objects]
            self._network = (
                topology_objects,
                version,
                topology_domains.build_tree(topology_objects, table.rows, labels),
            )
        return self._network[2]

    def network_problems(self, table: nodes.Nodes) -> list[str]:
        """Problems of HyperNodes: invalid ones and ones that cannot be decoded."""
        unreadable = sorted(self.unreadable["hyper_nodes"].items())
        problems = [f"HyperNode {name} cannot be read: {why}" for name, why in unreadable]
        return problems + list(self.network(table).complaints) if self.hyper_nodes else problems

    def merged_with(self, cluster: cluster_objects.Cluster) -> cluster_objects.Cluster:
        """The session's cluster, with its objects replaced by the ones stored here."""
        if self._all is None:
            self._all = {field: self.listed(field) for field in FIELDS.values()}
        return cluster_objects.Cluster(
            now=cluster.now,
            usage=cluster.usage,
            memory=cluster.memory,
            namespace_labels=self.namespace_labels,
            **self._all,
        )


def _reached(volume: storage.PersistentVolume | None, table: nodes.Nodes) -> node_attributes.Mask:
    if volume is None:
        return np.zeros(len(table), np.bool_)
    placed = volume.spec.node_affinity
    if placed is None or placed.required is None:
        return np.ones(len(table), np.bool_)
    return node_constraints.matches(
        table.labelled, requirements.Constraints((), placed.required, ())
    )
