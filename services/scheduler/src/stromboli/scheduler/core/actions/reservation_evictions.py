"""Evictions at the start and at the end of AdvanceReservations, before the configured actions.

The rules are in ``advance_reservations.rule``. Pods in their minimum run time (plugin
``eviction-limits``) are evicted at its end. PodDisruptionBudgets are not considered: the nodes have
been promised.
"""

from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities

NAME = "reservation"
"""The reason of the evictions."""
NEXT_PART = timedelta(seconds=1)
"""Delay until the session that evicts the tasks beyond this session's limit of decisions."""
_EVICTABLE = frozenset({entities.Status.RUNNING, entities.Status.BOUND})


def evict(ssn: session.Session) -> None:
    """Evict the tasks that must leave reserved nodes now, in the order of their keys.

    O(tasks on these nodes); nothing without such a reservation.
    """
    tasks = {task.key: task for task in _leaving(ssn)}
    if not tasks:
        return
    victims = ssn.evictable(None, [task for _, task in sorted(tasks.items())])
    for task in victims:
        if ssn.is_full:
            ssn.request_session_at(ssn.now + NEXT_PART)
            return
        moved = ssn.statement()
        moved.evict(task, NAME)
        moved.commit()


def _leaving(ssn: session.Session) -> Iterator[entities.Task]:
    rule = ssn.reservations
    for each in rule.closed_to_others():
        yield from (
            task
            for task, job in _tasks(ssn, each.mask)
            if rule.use(job).name != each.name or rule.use(job).waits
        )
    for each in rule.closed_to_users():
        yield from (task for task, job in _tasks(ssn, each.mask) if rule.use(job).name == each.name)


def _tasks(
    ssn: session.Session, mask: np.typing.NDArray[np.bool_]
) -> Iterator[tuple[entities.Task, entities.Job]]:
    for row in np.flatnonzero(mask).tolist():
        for task in ssn.nodes.tasks[row].values():
            job = ssn.job_of(task)
            if job is not None and not job.frozen and task.status in _EVICTABLE:
                yield task, job
