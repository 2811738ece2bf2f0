"""The second pass of a session: places the planned members of gangs that it admits.

A gang that fits idle room is admitted and bound by one statement, and its pods are created with
their nodes. The pass runs on the model with the decisions of the session applied, as they will be
assumed: plugins see the same objects as after the creation of pending pods.

Only ``allocate`` and ``backfill`` run, and only for these gangs, so nothing is evicted for planned
members. A gang that does not fit is only admitted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stromboli.scheduler.core.actions import allocate, backfill
from stromboli.scheduler.core.cache import claim_cache, cluster_cache, pod_plans
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.shared.api import core, kinds, scheduling
from stromboli.shared.messages import plans
from stromboli.shared.messages import scheduling as messages

_EXTENDER = "extender"
"""The plugin that is left out of the pass, because its answers are recorded for the first pass
only."""

Plans = Mapping[str, plans.PodsPlanned]
"""PodGroup -> its plan."""


def plans_of(
    cache: cluster_cache.ClusterCache,
    by: configuration.Configuration,
    decided: Iterable[messages.StatementDecided],
) -> Plans:
    """The plans of gangs that these statements admit and that have no pods. O(planned pods)."""
    is_extended = any(options.name == _EXTENDER for tier in by.tiers for options in tier)
    if is_extended or "allocate" not in by.actions:
        return {}
    plan_by_gang = {}
    for statement in decided:
        group = cache.snapshot.get(kinds.POD_GROUPS, statement.pod_group)
        if not statement.enqueue or group is None or cache.model.members(statement.pod_group):
            continue
        plan = cache.plans.plan_for(group)
        if plan is not None and plan.tasks and not _has_taken_names(cache, plan):
            plan_by_gang[statement.pod_group] = plan
    return plan_by_gang


def _has_taken_names(cache: cluster_cache.ClusterCache, plan: plans.PodsPlanned) -> bool:
    """Whether a pod has the name of a planned one, such as a terminating pod of an earlier
    version."""
    return any(
        cache.snapshot.state(kinds.PODS, pod.metadata.key) is not None
        or cache.assumed.bind_of(pod.metadata.key) is not None
        for _, _, pod in pod_plans.pods_of(plan)
    )


def apply_decisions(
    cache: cluster_cache.ClusterCache, decided: Iterable[messages.StatementDecided], of: Plans
) -> None:
    """Apply the statements and the planned pods to the model. ``undo`` reverts it."""
    for statement in decided:
        for bind in statement.binds:
            pod = cache.quarantine.state(kinds.PODS, f"{bind.namespace}/{bind.pod}")
            if isinstance(pod, core.Pod):
                bound = claim_cache.with_annotations(pod, bind.annotations)
                cache.model.put_pod(bound, bind.node)
        for eviction in statement.evictions:
            pod = cache.quarantine.state(kinds.PODS, f"{eviction.namespace}/{eviction.pod}")
            if isinstance(pod, core.Pod):
                cache.model.put_pod(pod, is_evicted=True)
        group = cache.quarantine.state(kinds.POD_GROUPS, statement.pod_group)
        if statement.enqueue and isinstance(group, scheduling.PodGroup):
            cache.model.put_pod_group(group, is_enqueued=True)
    for plan in of.values():
        for _, _, pod in pod_plans.pods_of(plan):
            cache.model.put_pod(pod)


def place(opened: session.Session, first: session.Session, of: Plans) -> None:
    """Run the second pass with the queue reservations of the first one."""
    opened.waiting = [key for key in opened.waiting if key in of]
    opened.keep_reservations(first)
    allocate.run(opened)
    if "backfill" in opened.configuration.actions:
        backfill.run(opened)


def bound(
    cache: cluster_cache.ClusterCache, placed: session.Session, of: Plans
) -> dict[str, tuple[messages.Bind, ...]]:
    """PodGroup -> the binds of its planned pods. Call it before the session is rolled back."""
    return {key: binds for key, plan in of.items() if (binds := tuple(_binds(cache, placed, plan)))}


def _binds(
    cache: cluster_cache.ClusterCache, placed: session.Session, plan: plans.PodsPlanned
) -> Iterator[messages.Bind]:
    decided = placed.decisions
    for task, index, pod in pod_plans.pods_of(plan):
        key = pod.metadata.key
        node = cache.snapshot.get(kinds.NODES, decided.binds.get(key, ""))
        if node is None or key in decided.preparations:
            continue
        yield messages.Bind(
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            uid="",
            node=node.metadata.name,
            task=task.task,
            version=plan.version,
            index=index,
            annotations=decided.annotations.get(key, {}),
            plan=plan.digest,
            node_uid=node.metadata.uid,
        )


def undo(
    cache: cluster_cache.ClusterCache, decided: Sequence[messages.StatementDecided], of: Plans
) -> None:
    """Revert ``apply_decisions``, after the session of the second pass was rolled back."""
    for plan in of.values():
        for _, _, pod in pod_plans.pods_of(plan):
            cache.model.remove_pod(pod.metadata.key)
    for statement in decided:
        cache.refresh_statement(statement)
