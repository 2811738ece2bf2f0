"""Gangpreempt: a starving gang takes the room it needs from lower jobs of its queue, whole."""

from collections.abc import Iterator

from stromboli.scheduler.core.actions import bundles, evicting, gangevicting
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities


def run(within: session.Session) -> None:
    """Serve every starving job, queue by queue (spec/scheduling 8.6)."""
    starving = evicting.starving(within)
    whole = gangevicting.allows_whole(within, bundles.PREEMPT)
    for queue in evicting.ordered_queues(within, starving):
        for job in starving[queue.name]:
            gangevicting.serve(
                within, bundles.PREEMPT, job, _lower(within, job), whole_allowed=whole
            )


def _lower(within: session.Session, job: entities.Job) -> Iterator[entities.Task]:
    for other in within.jobs.values():
        if other.queue == job.queue and other.priority < job.priority:
            for task in other.with_status(*entities.PREEMPTABLE):
                if task.preemptable:
                    yield task
