"""The reconcilers, by the kind of the reconcile key."""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from stromboli.controller.core import commands, user_commands
from stromboli.controller.core.jobs import reconcile
from stromboli.controller.core.pod_groups import group_status
from stromboli.controller.core.queues import queue_counts, queue_validation, queues
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.topology import (
    hyper_node_discovery,
    hyper_node_status,
    numa_topologies,
)
from stromboli.controller.core.unmanaged_pods import reconcile_groups
from stromboli.controller.core.workloads import crons, flows, templates

Plan = Callable[[controller_cache.ControllerCache, str, datetime], commands.Plan]
Due = Callable[[controller_cache.ControllerCache, str, datetime], datetime | None]


def _never(cache: controller_cache.ControllerCache, key: str, now: datetime) -> None:
    """The ``due`` of kinds that need no timer."""


class Reconciler(msgspec.Struct, frozen=True):
    """The functions of a reconciler. ``plan``: the commands for a key. ``due``: when to reconcile
    the key again without a change."""

    plan: Plan
    due: Due = _never


RECONCILERS: Mapping[str, Reconciler] = {
    "job": Reconciler(reconcile.reconcile, reconcile.due),
    "podgroup": Reconciler(group_status.reconcile, group_status.due),
    "queue": Reconciler(queues.reconcile),
    "queue counts": Reconciler(queue_counts.reconcile),
    "queue rules": Reconciler(queue_validation.reconcile),
    "unmanaged pods": Reconciler(reconcile_groups.reconcile),
    "command": Reconciler(user_commands.reconcile, user_commands.due),
    "flow": Reconciler(flows.reconcile, flows.due),
    "template": Reconciler(templates.reconcile),
    "cron": Reconciler(crons.reconcile, crons.due),
    "hyper nodes": Reconciler(hyper_node_status.reconcile),
    "discovery": Reconciler(hyper_node_discovery.reconcile, hyper_node_discovery.due),
    "numatopology": Reconciler(numa_topologies.reconcile),
}
"""Kind of key -> its reconciler."""


def plan(
    cache: controller_cache.ControllerCache, item: controller_cache.ReconcileKey, now: datetime
) -> commands.Plan:
    """The next commands for a key, without Events that were already recorded. Raises
    IllegalTransitionError for a job in an unknown phase; any other exception is a bug."""
    stages = RECONCILERS[item.kind].plan(cache, item.key, now)
    news = (tuple(it for it in stage if not cache.is_recorded(it)) for stage in stages)
    return tuple(stage for stage in news if stage)


def due(
    cache: controller_cache.ControllerCache, item: controller_cache.ReconcileKey, now: datetime
) -> datetime | None:
    """The time at which to reconcile the key even if nothing changes; None if only a change
    requires a reconcile."""
    return RECONCILERS[item.kind].due(cache, item.key, now)
