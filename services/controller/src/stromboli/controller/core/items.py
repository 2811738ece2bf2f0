"""Which module takes an item's next step, and which says when it is due."""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from stromboli.controller.core import (
    commands,
    crons,
    discovery,
    flows,
    group_status,
    hyper_nodes,
    jobs,
    numa_topologies,
    queue_counts,
    queue_rules,
    queues,
    stray_pods,
    templates,
    user_commands,
    view,
)

Plan = Callable[[view.View, str, datetime], commands.Plan]
Due = Callable[[view.View, str, datetime], datetime | None]


def _never(picture: view.View, key: str, now: datetime) -> None:
    """Nothing is due without a change."""


class Steps(msgspec.Struct, frozen=True):
    """What is to do for a key now, and when it needs a look although nothing changed."""

    plan: Plan
    due: Due = _never


STEPS: Mapping[str, Steps] = {
    "job": Steps(jobs.reconcile, jobs.due),
    "podgroup": Steps(group_status.reconcile, group_status.due),
    "queue": Steps(queues.reconcile),
    "queue counts": Steps(queue_counts.reconcile),
    "queue rules": Steps(queue_rules.reconcile),
    "stray pods": Steps(stray_pods.reconcile),
    "command": Steps(user_commands.reconcile, user_commands.due),
    "flow": Steps(flows.reconcile, flows.due),
    "template": Steps(templates.reconcile),
    "cron": Steps(crons.reconcile, crons.due),
    "hyper nodes": Steps(hyper_nodes.reconcile),
    "discovery": Steps(discovery.reconcile, discovery.due),
    "numatopology": Steps(numa_topologies.reconcile),
}
"""Kind of item -> its steps."""


def plan(picture: view.View, item: view.Item, now: datetime) -> commands.Plan:
    """The item's next step, without what was said already. Raises IllegalMoveError for a job in
    a phase that is none; any other error is a bug that this item triggers."""
    found = STEPS[item.kind].plan(picture, item.key, now)
    news = (tuple(it for it in stage if not picture.was_said(it)) for stage in found)
    return tuple(stage for stage in news if stage)


def due(picture: view.View, item: view.Item, now: datetime) -> datetime | None:
    """When the item needs a look although nothing changed."""
    return STEPS[item.kind].due(picture, item.key, now)
