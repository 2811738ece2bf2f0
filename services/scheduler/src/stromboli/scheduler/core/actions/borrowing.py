"""Lets a gang that exceeds its queue's deserved share borrow idle room.

The plugin proportion gives a queue no more than its deserved share while others have requests. A
gang is indivisible: if the minimum of each waiting gang exceeds the share of its queue, nothing
starts and the cluster is idle, for as long as those requests exist. Volcano leaves such gangs
waiting. Here one of them borrows:

1. While a gang that has not started is refused because of its queue's share, the session's memory
   keeps the time since which no session has decided anything and no pod has been terminating.
   Another session is requested for ``BORROW_AFTER`` later.
2. In that session the first such gang, in the order of queues and jobs, that fits on idle nodes
   within the capability of its queue is bound.

A queue that has reached its share borrows nothing. Borrowing never delays a gang that is within the
share of its queue: reclaim takes back from queues beyond their share. The pass runs after all
actions, so it never lends room that a gang within its share could use, or could make by evictions.

Cost: one check per waiting job, up to the first refused gang. Once ``BORROW_AFTER`` has passed, at
most one placement attempt per refused gang.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from stromboli.scheduler.core.actions import allocate
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities

NAME = "borrowing"
"""Key of the session's memory."""
BORROW_AFTER = timedelta(seconds=10)
"""Time without decisions before a gang borrows, so that pending pod creations and evictions finish
first."""


def borrow(ssn: session.Session) -> None:
    """Bind one gang beyond the share of its queue, if nothing else has started for long enough.

    Call it after the actions.
    """
    since = _read(ssn.cluster.memory.get(NAME, ""))
    if not (ssn.can_borrow and any(_refused_gangs(ssn))):
        if since is not None:
            ssn.remember[NAME] = ""
        return
    if since is None or since > ssn.now or not _is_idle(ssn):
        since = ssn.now
    if ssn.reached(since + BORROW_AFTER) and _bind_first(ssn):
        since = ssn.now
    ssn.remember[NAME] = since.isoformat()


def _is_idle(ssn: session.Session) -> bool:
    """Whether the session has decided nothing, and no pod is terminating or nominated."""
    decided = ssn.decisions
    has_decided = bool(decided.admitted or decided.binds or decided.evictions or ssn.untried)
    return not (has_decided or ssn.nodes.releasing.any() or ssn.nodes.pipelined.any())


def _refused_gangs(ssn: session.Session) -> Iterator[entities.Job]:
    return (
        job
        for job in ssn.waiting_jobs()
        if job.is_refused_by_queue
        and any(error.is_share for error in job.fit_errors.values())
        and not (job.is_pending or ssn.job_ready(job))
    )


def _bind_first(ssn: session.Session) -> bool:
    by_queue: dict[str, list[entities.Job]] = {}
    for job in _refused_gangs(ssn):
        by_queue.setdefault(job.queue, []).append(job)
    queues = ssn.rank_queues(by_queue)
    key = ssn.job_key()
    ssn.is_borrowing = True
    try:
        while queues:
            queue = queues.pop()
            for job in () if ssn.overused(queue) else sorted(by_queue[queue.name], key=key):
                if allocate.bind_gang(ssn, queue, job):
                    return True
        return False
    finally:
        ssn.is_borrowing = False


def _read(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:  # written by another version: the wait starts again
        return None
