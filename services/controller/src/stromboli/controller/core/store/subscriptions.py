"""The topics that the controller materializes, and the kinds that must be synced before it acts."""

from typing import Any

from stromboli.controller.core.store import job_relations
from stromboli.shared import topics
from stromboli.shared.api import kinds

NEEDED: tuple[kinds.Kind[Any], ...] = (
    kinds.PRIORITY_CLASSES,
    kinds.NAMESPACES,
    kinds.QUEUES,
    kinds.JOBS,
    kinds.POD_GROUPS,
    kinds.PODS,
    kinds.COMMANDS,
)
"""Kinds that must be synced before the controller acts. Flows, crons and HyperNodes are optional,
since jobs run even if their CRDs are not installed."""
FOLDED: tuple[topics.Topic, ...] = (
    *(topics.SNAPSHOTS[kind] for kind in (*NEEDED, *job_relations.MAKERS)),
    topics.NODES,
    topics.RESOURCE_QUOTAS,
    topics.HYPER_NODES,
    topics.NUMA_TOPOLOGIES,
    topics.TOPOLOGY,
    topics.EXPLANATIONS,
    topics.BATCH_PLANS,
    topics.SYNC,
)
"""All topics from which the cache is built."""
