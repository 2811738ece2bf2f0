"""The input of a session: the decoded objects of a cluster, and measurements."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from stromboli.shared.api import (
    core,
    numa,
    reservation,
    resource,
    scheduling,
    shard,
    storage,
    topology,
)
from stromboli.shared.messages import data, node_topology, node_usage


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Measured usage of a node in percent, averaged over a period such as ``10m``."""

    cpu: Mapping[str, float] = {}
    memory: Mapping[str, float] = {}


class MeasuredUsage(msgspec.Struct, frozen=True):
    """Measured usage of nodes by name, with the time of the measurement."""

    at: datetime
    nodes: Mapping[str, NodeUsage]


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Objects in any order, and data from outside the cluster. ``now``: the session's time, with a
    zone.
    """

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
    advance_reservations: tuple[reservation.AdvanceReservation, ...] = ()
    hyper_nodes: tuple[topology.HyperNode, ...] = ()
    numa_topologies: tuple[numa.Numatopology, ...] = ()
    hardware: tuple[node_topology.TopologyObserved, ...] = ()
    """Reports of the nodes' agents."""
    data_reports: tuple[data.DataObserved, ...] = ()
    """Reports of the nodes' caches of data sets."""
    loads: tuple[node_usage.UsageObserved, ...] = ()
    """Loads that the nodes' agents measured."""
    namespace_labels: Mapping[str, Mapping[str, str]] = {}
    usage: Mapping[str, NodeUsage] = {}
    """Node -> measured usage; nodes without a measurement are absent."""
    memory: Mapping[str, str] = {}
    """Plugin -> the state that it stored in earlier sessions."""
