"""The topics that the scheduler's cache reads."""

from stromboli.scheduler.core.cache import claim_cache
from stromboli.scheduler.core.cache.data_sets import node_reports
from stromboli.shared import topics

TOPICS: tuple[topics.Topic, ...] = (
    topics.NODES,
    topics.NAMESPACES,
    topics.PODS,
    topics.POD_GROUPS,
    topics.QUEUES,
    topics.PRIORITY_CLASSES,
    topics.HYPER_NODES,
    topics.NUMA_TOPOLOGIES,
    topics.RESOURCE_QUOTAS,
    topics.DISRUPTION_BUDGETS,
    *claim_cache.TOPICS,
    topics.NODE_SHARDS,
    topics.ADVANCE_RESERVATIONS,
    topics.DECISIONS,
    topics.OUTCOMES,
    topics.EXPLANATIONS,
    topics.BATCH_PLANS,
    *node_reports.TOPICS,
)
"""The topics that the cache is built from."""
