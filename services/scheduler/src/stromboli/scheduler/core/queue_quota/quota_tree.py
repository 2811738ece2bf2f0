"""Quotas of queues in a tree: children inherit limits, and usage is summed towards the root."""

from collections.abc import Mapping

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import resource_vectors
from stromboli.scheduler.core.queue_quota import hierarchy, quotas, shares


def open_quotas(ssn: session.Session, tree: hierarchy.Hierarchy) -> dict[str, quotas.QueueQuota]:
    """Return a quota for every queue in the tree, with or without jobs."""
    limitless = [resource_vectors.INFINITE] * len(ssn.resources.names)
    queue_quotas = {
        name: quotas.open_quota(ssn, ssn.queues[name], limitless)
        for name in tree.top_down()
        if name in ssn.queues
    }
    for name in reversed(tree.top_down()):
        if name != hierarchy.ROOT and tree.ancestors(name)[0] in queue_quotas:
            _aggregate(queue_quotas[tree.ancestors(name)[0]], queue_quotas[name])
    root = queue_quotas.get(hierarchy.ROOT)
    if root is not None:
        root.real_capability = list(root.capability)
    for name in tree.top_down():
        _limit_children(name, tree, queue_quotas, limitless)
    return queue_quotas


def _aggregate(parent: quotas.QueueQuota, child: quotas.QueueQuota) -> None:
    parent.allocated = shares.sum_of(parent.allocated, child.allocated)
    parent.request = shares.sum_of(parent.request, child.request)
    parent.inqueue = shares.sum_of(parent.inqueue, child.inqueue)
    parent.elastic = shares.sum_of(parent.elastic, child.elastic)


def _limit_children(
    name: str,
    tree: hierarchy.Hierarchy,
    queue_quotas: Mapping[str, quotas.QueueQuota],
    limitless: shares.Row,
) -> None:
    """Limit each child to its parent's real capability less the guarantees of its siblings."""
    parent = queue_quotas.get(name)
    children = [queue_quotas[child] for child in tree.children[name]]
    guaranteed = [0] * len(limitless)
    for child in children:
        guaranteed = shares.sum_of(guaranteed, child.guarantee)
    capability = parent.capability if parent else limitless
    free = shares.difference(parent.real_capability if parent else limitless, guaranteed)
    for child in children:
        child.capability = [
            above if own >= resource_vectors.INFINITE else own
            for own, above in zip(child.capability, capability, strict=True)
        ]
        child.real_capability = shares.minimum(
            shares.sum_of(free, child.guarantee), child.capability
        )
