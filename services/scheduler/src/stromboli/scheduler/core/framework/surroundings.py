"""What sessions look at besides nodes, pods, jobs and queues: quotas, volumes, the network."""

from collections.abc import Mapping
from typing import Any

from stromboli.scheduler.core.framework import cluster, domains, nodes
from stromboli.scheduler.core.numa import nodes as numa_nodes
from stromboli.shared.api import core, meta, numa, resource, shard, topology
from stromboli.shared.messages import node_topology

FIELDS: Mapping[type[meta.Object], str] = {
    core.ResourceQuota: "resource_quotas",
    core.PodDisruptionBudget: "disruption_budgets",
    core.PersistentVolume: "volumes",
    core.PersistentVolumeClaim: "claims",
    core.StorageClass: "storage_classes",
    resource.ResourceClaim: "resource_claims",
    resource.DeviceClass: "device_classes",
    resource.ResourceSlice: "resource_slices",
    shard.NodeShard: "node_shards",
    topology.HyperNode: "hyper_nodes",
    numa.Numatopology: "numa_topologies",
}
"""Struct -> field of ``cluster.Cluster``."""


class Surroundings:
    """Objects by kind and key, as they are now. ``unread``: field -> key -> why it cannot be read.

    Plugins with many objects to look at look them up here; others take them from the session's
    ``cluster``, whose tuples are made anew only for kinds that changed.
    """

    def __init__(self) -> None:
        self.claims: dict[str, core.PersistentVolumeClaim] = {}
        self.volumes: dict[str, core.PersistentVolume] = {}
        self.storage_classes: dict[str, core.StorageClass] = {}
        self.resource_quotas: dict[str, core.ResourceQuota] = {}
        self.disruption_budgets: dict[str, core.PodDisruptionBudget] = {}
        self.resource_claims: dict[str, resource.ResourceClaim] = {}
        self.device_classes: dict[str, resource.DeviceClass] = {}
        self.resource_slices: dict[str, resource.ResourceSlice] = {}
        self.node_shards: dict[str, shard.NodeShard] = {}
        self.hyper_nodes: dict[str, topology.HyperNode] = {}
        self.numa_topologies: dict[str, numa.Numatopology] = {}
        self.hardware: dict[str, node_topology.TopologyObserved] = {}
        """Node -> what its agent tells of it."""
        self.machines = numa_nodes.Machines()
        self.namespace_labels: dict[str, Mapping[str, str]] = {}
        self.knows_volumes = True
        """Volumes and claims are seen; else nothing is known of them and nothing hangs on them."""
        self.unread: dict[str, dict[str, str]] = {field: {} for field in FIELDS.values()}
        self._tuples: dict[str, tuple[meta.Object, ...]] = {}
        self._network: tuple[tuple[topology.HyperNode, ...], int, domains.Tree] | None = None

    def put(self, found: meta.Object) -> None:
        """An object as it is now; of a kind in ``FIELDS``."""
        field = FIELDS[type(found)]
        getattr(self, field)[found.metadata.key] = found
        self.unread[field].pop(found.metadata.key, None)
        self._tuples.pop(field, None)

    def lose(self, kind: type[meta.Object], key: str, reason: str) -> None:
        """It is there and cannot be read."""
        self.remove(kind, key)
        self.unread[FIELDS[kind]][key] = reason

    def remove(self, kind: type[meta.Object], key: str) -> None:
        """It is gone."""
        field = FIELDS[kind]
        getattr(self, field).pop(key, None)
        self.unread[field].pop(key, None)
        self._tuples.pop(field, None)

    def listed(self, field: str) -> tuple[Any, ...]:
        """The objects of a field in the order of keys; the same tuple until one of them changes."""
        if field not in self._tuples:
            objects = getattr(self, field)
            self._tuples[field] = tuple(objects[key] for key in sorted(objects))
        return self._tuples[field]

    def network(self, table: nodes.Nodes) -> domains.Tree:
        """The nodes' places on the network. Made anew when HyperNodes, nodes or labels changed."""
        found, version = self.listed("hyper_nodes"), table.labelled.placement_version
        if self._network is None or self._network[0] is not found or self._network[1] != version:
            labels = [each.metadata.labels or {} for each in table.objects]
            self._network = (found, version, domains.tree(found, table.rows, labels))
        return self._network[2]

    def network_problems(self, table: nodes.Nodes) -> list[str]:
        """What of the HyperNodes makes no sense or cannot be read."""
        unread = sorted(self.unread["hyper_nodes"].items())
        found = [f"HyperNode {name} cannot be read: {why}" for name, why in unread]
        return found + list(self.network(table).complaints) if self.hyper_nodes else found

    def seen_with(self, given: cluster.Cluster) -> cluster.Cluster:
        """What a session is given, with the objects here instead of its own."""
        fields: dict[str, Any] = {field: self.listed(field) for field in FIELDS.values()}
        return cluster.Cluster(
            now=given.now,
            usage=given.usage,
            memory=given.memory,
            namespace_labels=self.namespace_labels,
            **fields,
        )
