"""Gangreclaim: a starving gang takes the room it needs from queues beyond their share, whole."""

from collections.abc import Iterator

from stromboli.scheduler.core.actions import bundles, evicting, gangevicting
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities


def run(within: session.Session) -> None:
    """Serve every starving job of queues that lack their share (spec/scheduling 8.6)."""
    starving = evicting.starving(within)
    whole = gangevicting.allows_whole(within, bundles.RECLAIM)
    while starving:
        queue = evicting.ordered_queues(within, starving)[0]
        jobs = starving.pop(queue.name)
        if not within.overused(queue):
            for job in jobs:
                _serve(within, queue, job, whole_allowed=whole)


def _serve(
    within: session.Session, queue: entities.Queue, job: entities.Job, *, whole_allowed: bool
) -> None:
    """Unlike Volcano, it reclaims for the minimum of a job if its queue deserves no more of it."""
    has_claim = within.preemptive(queue, evicting.wanting(within, job))
    least = gangevicting.least(within, job)
    if has_claim or (least and within.preemptive(queue, least)):
        gangevicting.serve(
            within,
            bundles.RECLAIM,
            job,
            _others(within, job),
            whole_allowed=whole_allowed,
            with_surplus=has_claim,
        )


def _others(within: session.Session, job: entities.Job) -> Iterator[entities.Task]:
    for other in within.jobs.values():
        if other.queue != job.queue and within.queue_of(other).reclaimable:
            for task in other.with_status(entities.Status.RUNNING):
                if task.preemptable:
                    yield task
