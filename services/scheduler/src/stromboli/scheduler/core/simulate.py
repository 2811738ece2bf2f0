"""One session as a pure function: a cluster's objects and a configuration in, decisions out.

The case document has the format of the conformance cases: ``name``, ``now``, ``config`` (as the
configuration file), ``objects`` (Kubernetes manifests) and ``shard`` (mode, name, nodes).
``hyperNodeNodes`` and ``hyperNodeTiers``, if present, give the nodes and tiers of HyperNodes and
replace their members. Other fields are ignored.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.actions import borrowing, reservation_evictions
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.scheduler.core.framework import closing, opening, plugin_isolation, session, timing
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.plugins import sharding
from stromboli.shared import decoding
from stromboli.shared.api import (
    core,
    meta,
    numa,
    reservation,
    resource,
    scheduling,
    shard,
    storage,
    topology,
)
from stromboli.shared.messages import scheduling as messages


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """The decisions of a session. Keys are ``namespace/name``.

    ``pipelined``: PodGroup -> pod -> nominated node. ``explanations``: PodGroup -> why tasks wait.
    Pods whose volumes must be bound first are Binding, but not among ``binds`` yet.
    """

    name: str
    binds: Mapping[str, str]
    evictions: tuple[str, ...]
    pipelined: Mapping[str, Mapping[str, str]]
    pod_group_phases: Mapping[str, str]
    task_status_counts: Mapping[str, Mapping[str, int]]
    explanations: Mapping[str, str]


class Shard(msgspec.Struct, frozen=True):
    """The NodeShard of the session: its nodes, and whether the mode is hard or soft."""

    mode: str
    name: str
    nodes: tuple[str, ...] = ()


class _CaseDocument(msgspec.Struct, rename="camel"):
    now: datetime
    objects: list[dict[str, Any]]
    name: str = ""
    config: dict[str, Any] = {}
    shard: Shard | None = None
    hyper_node_nodes: dict[str, frozenset[str]] | None = None
    hyper_node_tiers: dict[int, tuple[str, ...]] | None = None


FIELDS: Mapping[str, tuple[str, type[meta.Object]]] = {
    "Node": ("nodes", core.Node),
    "Pod": ("pods", core.Pod),
    "PodGroup": ("pod_groups", scheduling.PodGroup),
    "Queue": ("queues", scheduling.Queue),
    "PriorityClass": ("priority_classes", core.PriorityClass),
    "ResourceQuota": ("resource_quotas", core.ResourceQuota),
    "PodDisruptionBudget": ("disruption_budgets", core.PodDisruptionBudget),
    "PersistentVolume": ("volumes", storage.PersistentVolume),
    "PersistentVolumeClaim": ("claims", storage.PersistentVolumeClaim),
    "StorageClass": ("storage_classes", storage.StorageClass),
    "CSINode": ("csi_nodes", storage.CSINode),
    "CSIDriver": ("csi_drivers", storage.CSIDriver),
    "CSIStorageCapacity": ("storage_capacities", storage.CSIStorageCapacity),
    "ResourceClaim": ("resource_claims", resource.ResourceClaim),
    "DeviceClass": ("device_classes", resource.DeviceClass),
    "ResourceSlice": ("resource_slices", resource.ResourceSlice),
    "NodeShard": ("node_shards", shard.NodeShard),
    "AdvanceReservation": ("advance_reservations", reservation.AdvanceReservation),
    "HyperNode": ("hyper_nodes", topology.HyperNode),
    "Numatopology": ("numa_topologies", numa.Numatopology),
}
"""Kind -> field of the cluster, and the type to decode; other kinds are ignored."""


def simulate(document: bytes | str) -> Outcome:
    """Run the session of a case document (JSON).

    Raises ValueError (msgspec's errors are subclasses) that names the part that cannot be read.
    """
    case = decoding.from_json(document, _CaseDocument)
    configured = config_reader.read_configuration(case.config, actions.NAMES, plugins.NAMES)
    cluster = cluster_from_manifests(case.objects, case.now)
    if case.shard is not None:
        configured, cluster = _with_shard(configured, cluster, case.shard)
    if case.hyper_node_nodes and case.hyper_node_tiers:
        resolved = _resolved_hyper_nodes(
            case.hyper_node_nodes, case.hyper_node_tiers, cluster.hyper_nodes
        )
        cluster = msgspec.structs.replace(cluster, hyper_nodes=resolved)
    return summarize(case.name, run(configured, cluster))


def run(
    configured: configuration.Configuration,
    cluster: cluster_objects.Cluster,
    find: opening.FindPlugin = plugins.find,
    plugin_failures: plugin_isolation.FailureHistory | None = None,
) -> session.Session:
    """Open a session, run the configured actions, close it; repeat without plugins that fail."""
    return plugin_isolation.run_isolated(
        configured,
        lambda how, which: opening.open_session(how, cluster, which),
        run_actions,
        find,
        cluster.now,
        plugin_isolation.FailureHistory() if plugin_failures is None else plugin_failures,
    )


def run_actions(opened: session.Session) -> None:
    """Evict from reserved nodes, run the configured actions and the borrowing pass, and close the
    session.

    If a gang is admitted after an action that could have placed it, another session is requested:
    the admission alone triggers none.
    """
    reservation_evictions.evict(opened)
    has_placed, admitted = False, opened.decisions.admitted
    for name in opened.configuration.actions:
        before = len(admitted)
        with opened.timed(timing.ACTION, name):
            actions.find(name)(opened)
        if has_placed and len(admitted) > before:
            opened.request_session_at(opened.now + timedelta.resolution)
        has_placed = has_placed or name != "enqueue"
    if "allocate" in opened.configuration.actions:
        borrowing.borrow(opened)
    opened.close()


def summarize(name: str, closed: session.Session) -> Outcome:
    """The decisions of a closed session."""
    decided = closed.decisions
    jobs = closed.jobs.values()
    return Outcome(
        name=name,
        binds={
            task: node
            for task, node in sorted(decided.binds.items())
            if not any(
                isinstance(step, messages.ClaimedVolume)
                for step in decided.preparations.get(task, ())
            )
        },
        evictions=tuple(sorted(eviction.task for eviction in decided.evictions)),
        pipelined={job.key: promised for job in jobs if (promised := _nominations(job))},
        pod_group_phases={job.key: closing.phase(job) for job in jobs},
        task_status_counts={job.key: closing.counts(job) for job in jobs},
        explanations={job.key: job.explain() for job in jobs if _waits(job)},
    )


def _nominations(job: entities.Job) -> dict[str, str]:
    return {task.key: task.node for task in job.with_status(entities.Status.PIPELINED)}


def _waits(job: entities.Job) -> bool:
    return job.count(entities.Status.PENDING, entities.Status.PIPELINED) > 0


def _with_shard(
    configured: configuration.Configuration, cluster: cluster_objects.Cluster, which: Shard
) -> tuple[configuration.Configuration, cluster_objects.Cluster]:
    """The configuration and cluster with the shard and the plugin ``sharding`` added."""
    options = configuration.PluginOptions(
        sharding.NAME, arguments={"sharding.mode": which.mode, "sharding.name": which.name}
    )
    own = shard.NodeShard(
        metadata=meta.ObjectMeta(name=which.name),
        spec=shard.NodeShardSpec(nodes_desired=which.nodes),
    )
    return (
        msgspec.structs.replace(configured, tiers=(*configured.tiers, (options,))),
        msgspec.structs.replace(cluster, node_shards=(*cluster.node_shards, own)),
    )


def _resolved_hyper_nodes(
    nodes: Mapping[str, frozenset[str]],
    tiers: Mapping[int, Iterable[str]],
    named: Iterable[topology.HyperNode],
) -> tuple[topology.HyperNode, ...]:
    """HyperNodes with these nodes and tiers; tier names are those of the given HyperNodes."""
    tier_of = {name: tier for tier, names in tiers.items() for name in names if name in nodes}
    tier_names = {each.spec.tier: each.spec.tier_name for each in named}

    def member(type_: str, name: str) -> topology.Member:
        exact = topology.ExactMatch(name=name)
        return topology.Member(type=type_, selector=topology.MemberSelector(exact_match=exact))

    def hyper_node(name: str, tier: int) -> topology.HyperNode:
        below = [
            other for other in tier_of if tier_of[other] < tier and nodes[other] <= nodes[name]
        ]
        spec = topology.HyperNodeSpec(
            tier=tier,
            tier_name=tier_names.get(tier, ""),
            members=(
                *(member("Node", node) for node in sorted(nodes[name])),
                *(member("HyperNode", other) for other in sorted(below)),
            ),
        )
        return topology.HyperNode(metadata=meta.ObjectMeta(name=name), spec=spec)

    return tuple(hyper_node(name, tier) for name, tier in sorted(tier_of.items()))


def cluster_from_manifests(
    objects: Iterable[Mapping[str, Any]], now: datetime
) -> cluster_objects.Cluster:
    """The session's input for these manifests. Raises msgspec.ValidationError."""
    objs: dict[str, list[meta.Object]] = defaultdict(list)
    labels: dict[str, dict[str, str]] = {}
    for each in objects:
        kind = each.get("kind", "")
        if kind in FIELDS:
            field, struct = FIELDS[kind]
            objs[field].append(decoding.convert(each, struct))
        elif kind == "Namespace":
            metadata = decoding.convert(each, meta.Object).metadata
            labels[metadata.name] = metadata.labels or {}
    fields = {field: tuple(objects) for field, objects in objs.items()}
    return decoding.convert(
        {"now": now, "namespace_labels": labels, **fields}, cluster_objects.Cluster
    )
