"""What a session is given: the objects of a cluster, decoded, and what others measured."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from stromboli.shared.api import core, numa, resource, scheduling, shard, storage, topology
from stromboli.shared.messages import node_topology


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Measured use of a node in percent, averaged over a period such as ``10m``."""

    cpu: Mapping[str, float] = {}
    memory: Mapping[str, float] = {}


class MeasuredUsage(msgspec.Struct, frozen=True):
    """Measured use of nodes by name, as it was ``at`` that time."""

    at: datetime
    nodes: Mapping[str, NodeUsage]


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Objects in any order, and answers from outside. ``now`` is the session's time, with zone."""

    now: datetime
    nodes: tuple[core.Node, ...] = ()
    pods: tuple[core.Pod, ...] = ()
    pod_groups: tuple[scheduling.PodGroup, ...] = ()
    queues: tuple[scheduling.Queue, ...] = ()
    priority_classes: tuple[core.PriorityClass, ...] = ()
    resource_quotas: tuple[core.ResourceQuota, ...] = ()
    disruption_budgets: tuple[core.PodDisruptionBudget, ...] = ()
    volumes: tuple[storage.PersistentVolume, ...] = ()
    claims: tuple[storage.PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[storage.StorageClass, ...] = ()
    csi_nodes: tuple[storage.CSINode, ...] = ()
    csi_drivers: tuple[storage.CSIDriver, ...] = ()
    storage_capacities: tuple[storage.CSIStorageCapacity, ...] = ()
    resource_claims: tuple[resource.ResourceClaim, ...] = ()
    device_classes: tuple[resource.DeviceClass, ...] = ()
    resource_slices: tuple[resource.ResourceSlice, ...] = ()
    node_shards: tuple[shard.NodeShard, ...] = ()
    hyper_nodes: tuple[topology.HyperNode, ...] = ()
    numa_topologies: tuple[numa.Numatopology, ...] = ()
    hardware: tuple[node_topology.TopologyObserved, ...] = ()
    """What nodes' agents tell of them."""
    namespace_labels: Mapping[str, Mapping[str, str]] = {}
    usage: Mapping[str, NodeUsage] = {}
    """Node -> measured use; a node that is absent has no measurement."""
    memory: Mapping[str, str] = {}
    """What plugins remembered at the close of earlier sessions, by plugin."""
