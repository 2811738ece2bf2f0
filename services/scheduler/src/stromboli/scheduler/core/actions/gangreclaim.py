"""Gangreclaim: a starving gang takes the room it needs from queues beyond their share, whole."""

from collections.abc import Iterator

from stromboli.scheduler.core.actions import bundles, evicting, gangevicting
from stromboli.scheduler.core.framework import model, session


def run(within: session.Session) -> None:
    """Serve every starving job of queues that lack their share (spec/scheduling 8.6)."""
    starving = evicting.starving(within)
    whole = gangevicting.allows_whole(within, bundles.RECLAIM)
    while starving:
        queue = evicting.ordered_queues(within, starving)[0]
        jobs = starving.pop(queue.name)
        if not within.overused(queue):
            for job in jobs:
                if within.preemptive(queue, gangevicting.least(within, job)):
                    gangevicting.serve(
                        within, bundles.RECLAIM, job, _others(within, job), whole_allowed=whole
                    )


def _others(within: session.Session, job: model.Job) -> Iterator[model.Task]:
    for other in within.jobs.values():
        if other.queue != job.queue and within.queue_of(other).reclaimable:
            for task in other.with_status(model.Status.RUNNING):
                if task.preemptable:
                    yield task
