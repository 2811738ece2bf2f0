"""Which module takes an item's next step, and which says when it is due."""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from stromboli.controller.core import commands, user_commands
from stromboli.controller.core.jobs import reconcile
from stromboli.controller.core.pod_groups import group_status
from stromboli.controller.core.queues import queue_counts, queue_validation, queues
from stromboli.controller.core.store import cache
from stromboli.controller.core.topology import (
    hyper_node_discovery,
    hyper_node_status,
    numa_topologies,
)
from stromboli.controller.core.unmanaged_pods import reconcile_groups
from stromboli.controller.core.workloads import crons, flows, templates

Plan = Callable[[cache.Cache, str, datetime], commands.Plan]
Due = Callable[[cache.Cache, str, datetime], datetime | None]


def _never(picture: cache.Cache, key: str, now: datetime) -> None:
    """Nothing is due without a change."""


class Steps(msgspec.Struct, frozen=True):
    """What is to do for a key now, and when it needs a look although nothing changed."""

    plan: Plan
    due: Due = _never


STEPS: Mapping[str, Steps] = {
    "job": Steps(reconcile.reconcile, reconcile.due),
    "podgroup": Steps(group_status.reconcile, group_status.due),
    "queue": Steps(queues.reconcile),
    "queue counts": Steps(queue_counts.reconcile),
    "queue rules": Steps(queue_validation.reconcile),
    "stray pods": Steps(reconcile_groups.reconcile),
    "command": Steps(user_commands.reconcile, user_commands.due),
    "flow": Steps(flows.reconcile, flows.due),
    "template": Steps(templates.reconcile),
    "cron": Steps(crons.reconcile, crons.due),
    "hyper nodes": Steps(hyper_node_status.reconcile),
    "discovery": Steps(hyper_node_discovery.reconcile, hyper_node_discovery.due),
    "numatopology": Steps(numa_topologies.reconcile),
}
"""Kind of item -> its steps."""


def plan(picture: cache.Cache, item: cache.ReconcileKey, now: datetime) -> commands.Plan:
    """The item's next step, without what was said already. Raises IllegalMoveError for a job in
    a phase that is none; any other error is a bug that this item triggers."""
    found = STEPS[item.kind].plan(picture, item.key, now)
    news = (tuple(it for it in stage if not picture.was_said(it)) for stage in found)
    return tuple(stage for stage in news if stage)


def due(picture: cache.Cache, item: cache.ReconcileKey, now: datetime) -> datetime | None:
    """When the item needs a look although nothing changed."""
    return STEPS[item.kind].due(picture, item.key, now)
