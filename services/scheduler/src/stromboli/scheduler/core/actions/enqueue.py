"""The action ``enqueue``: PodGroups whose queue has room leave the phase Pending.

Sessions skip jobs that their queue refused (``unadmitted_jobs``). Plugins vote here on the first of
these jobs in each class, and on the next one once the first is admitted. The admitted jobs are the
same as with a vote on every job, because a refusal of one job refuses all jobs of its class.
"""

from collections.abc import Iterator

from stromboli.scheduler.core.framework import ordering, session
from stromboli.scheduler.core.model import entities


def run(ssn: session.Session) -> None:
    """Vote on every pending job, queue by queue. A rejected job does not stop the next one."""
    waiting = _PendingJobs(ssn)
    if not waiting.queues:
        return
    queues = ssn.rank_queues(waiting.queues)
    while queues:
        queue = queues.pop()
        jobs = waiting.queues[queue.name]
        job = jobs.pop()
        if _vote(ssn, queue, job):
            waiting.add_next(job)
        if jobs:
            queues.push(queue)


class _PendingJobs:
    """The jobs to vote on, by queue and in job order."""

    def __init__(self, ssn: session.Session) -> None:
        self._session = ssn
        self._following: dict[str, Iterator[entities.Job]] = {}
        self.queues: dict[str, ordering.Heap[entities.Job]] = {}
        for job in ssn.waiting_jobs():
            if job.is_pending and job.is_decidable:
                self._push(job)
        for jobs in ssn.unadmitted_jobs():
            first = next(jobs)
            if ssn.job_enqueueable(first):
                self._resume(first, jobs)

    def add_next(self, admitted: entities.Job) -> None:
        """Add the job behind this one, if it was the first one of a class of skipped jobs."""
        others = self._following.pop(admitted.key, None)
        following = None if others is None else next(others, None)
        if others is not None and following is not None:
            self._resume(following, others)

    def _resume(self, job: entities.Job, others: Iterator[entities.Job]) -> None:
        self._session.resume(job)
        self._following[job.key] = others
        self._push(job)

    def _push(self, job: entities.Job) -> None:
        heap = self.queues.get(job.queue)
        if heap is None:
            heap = self.queues[job.queue] = ordering.Heap(self._session.job_key())
        heap.push(job)


def _vote(ssn: session.Session, queue: entities.Queue, job: entities.Job) -> bool:
    """Admit the job, or record the reason against it; return whether it was admitted."""
    # A closed queue admits no job, not even one without minResources.
    if not queue.is_open:
        job.fit_error = f"queue {queue.name} is {queue.state}"
    elif waits := ssn.reservations.waits(job):
        job.fit_error = waits
    elif held_back := ssn.held_back(job):
        job.fit_error = held_back
    elif job.min_request is None or ssn.job_enqueueable(
        job, has_own_nodes=ssn.reservations.use(job).is_open
    ):
        ssn.job_enqueued(job)
        ssn.admit(job)
        return True
    else:
        job.fit_error = f"queue {queue.name} has no room for the job's minResources"
        ssn.job_blocked(job)
    return False
