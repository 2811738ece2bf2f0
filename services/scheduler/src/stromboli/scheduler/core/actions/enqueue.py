"""The action ``enqueue``: PodGroups whose queue has room leave the phase Pending."""

from stromboli.scheduler.core.framework import ordering, session
from stromboli.scheduler.core.model import entities


def run(ssn: session.Session) -> None:
    """Vote on every pending job, queue by queue. A rejected job does not stop the next one."""
    waiting: dict[str, ordering.Heap[entities.Job]] = {}
    for job in ssn.waiting_jobs():
        if job.is_pending and job.is_decidable:
            heap = waiting.setdefault(job.queue, ordering.Heap(ssn.job_key()))
            heap.push(job)
    queues = ssn.rank_queues(waiting)
    while queues:
        queue = queues.pop()
        heap = waiting[queue.name]
        _vote(ssn, queue, heap.pop())
        if heap:
            queues.push(queue)


def _vote(ssn: session.Session, queue: entities.Queue, job: entities.Job) -> None:
    # A closed queue admits no job, also none without minResources.
    if not queue.is_open:
        job.fit_error = f"queue {queue.name} is {queue.state}"
    elif held_back := ssn.held_back(job):
        job.fit_error = held_back
    elif job.min_resources is None or ssn.job_enqueueable(job):
        ssn.job_enqueued(job)
        ssn.admit(job)
    else:
        job.fit_error = f"queue {queue.name} has no room for its minResources"
        ssn.job_blocked(job)
