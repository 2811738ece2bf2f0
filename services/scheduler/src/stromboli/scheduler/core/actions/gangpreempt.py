"""The action ``gangpreempt``: a starving gang evicts lower-priority jobs of its queue for all of
its tasks."""

import functools
from collections.abc import Iterator

from stromboli.scheduler.core.actions import eviction_rules, gang_eviction, victim_bundles
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities


def run(ssn: session.Session) -> None:
    """Serve every starving job, queue by queue."""
    starving = eviction_rules.starving_jobs(ssn)
    whole = gang_eviction.allows_whole_jobs(ssn, victim_bundles.PREEMPT)
    for queue in eviction_rules.ordered_queues(ssn, starving):
        for job in starving[queue.name]:
            search = functools.partial(_preempt_for, ssn, job, whole_allowed=whole)
            eviction_rules.spare_jobs(search)


def _preempt_for(
    ssn: session.Session, job: entities.Job, spared: frozenset[str], *, whole_allowed: bool
) -> frozenset[str]:
    victims = _lower_priority_victims(ssn, job, spared)
    return gang_eviction.make_room(
        ssn, victim_bundles.PREEMPT, job, victims, whole_allowed=whole_allowed
    )


def _lower_priority_victims(
    ssn: session.Session, job: entities.Job, spared: frozenset[str]
) -> Iterator[entities.Task]:
    for other in ssn.jobs.values():
        is_lower = other.queue == job.queue and other.priority < job.priority
        if is_lower and other.key not in spared:
            for task in other.with_status(*entities.PREEMPTABLE):
                if task.preemptable:
                    yield task
