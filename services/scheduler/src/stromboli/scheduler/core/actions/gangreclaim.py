"""The action ``gangreclaim``: a starving gang reclaims what other queues use above their share."""

from collections.abc import Container, Iterator

from stromboli.scheduler.core.actions import eviction_rules, gang_eviction, victim_bundles
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities


def run(ssn: session.Session) -> None:
    """Serve every starving job of queues that are below their share."""
    starving = eviction_rules.starving_jobs(ssn)
    whole = gang_eviction.allows_whole_jobs(ssn, victim_bundles.RECLAIM)
    while starving:
        queue = eviction_rules.ordered_queues(ssn, starving)[0]
        jobs = starving.pop(queue.name)
        if not ssn.overused(queue):
            for job in jobs:
                _reclaim_for(ssn, queue, job, whole_allowed=whole)


def _reclaim_for(
    ssn: session.Session, queue: entities.Queue, job: entities.Job, *, whole_allowed: bool
) -> None:
    """Reclaim for all pending tasks of the job, or for its minimum if its queue deserves no
    more."""
    has_claim = ssn.preemptive(queue, eviction_rules.pending_tasks(ssn, job))
    least = gang_eviction.minimum_tasks(ssn, job)
    if has_claim or (least and ssn.preemptive(queue, least)):
        spared = {job.queue}  # and the queues that would take the room back
        while more := gang_eviction.make_room(
            ssn,
            victim_bundles.RECLAIM,
            job,
            _victims_of_other_queues(ssn, spared),
            whole_allowed=whole_allowed,
            with_surplus=has_claim,
        ):
            spared |= {ssn.jobs[key].queue for key in more}


def _victims_of_other_queues(
    ssn: session.Session, spared: Container[str]
) -> Iterator[entities.Task]:
    for other in ssn.jobs.values():
        if other.queue not in spared and ssn.queue_of(other).reclaimable:
            for task in other.with_status(entities.Status.RUNNING):
                if task.preemptable:
                    yield task
