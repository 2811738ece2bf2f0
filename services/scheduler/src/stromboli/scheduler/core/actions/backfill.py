"""The action ``backfill``: places best-effort tasks, which request no resources."""

from collections.abc import Iterator

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities


def run(ssn: session.Session) -> None:
    """Try every pending best-effort task once, in the order of queues, jobs and tasks.

    A nominated task moves to a node that has room now. If there is none, it keeps its nomination,
    for which pods may have been evicted.
    """
    for task in list(_pending_tasks(ssn)):
        job = ssn.jobs[task.job]
        if ssn.is_full:
            ssn.untried.add(job.key)
            continue
        promised, evicted = task.node, task.eviction_occurred
        if task.status is entities.Status.PIPELINED:
            _release_nomination(ssn, task)
        error = _place(ssn, task)
        if error is not None and promised:
            ssn.change(task, entities.Status.PIPELINED, promised)
            task.eviction_occurred = evicted
            ssn.notify_allocated((task,))
        elif error is not None:
            job.refuse((task,), error)


def _pending_tasks(ssn: session.Session) -> Iterator[entities.Task]:
    by_queue: dict[str, list[entities.Job]] = {}
    for job in ssn.waiting_jobs():
        is_tried = job.is_decidable and not job.is_pending and _has_best_effort(job)
        if is_tried and ssn.job_valid(job) is None and not ssn.held_back(job):
            by_queue.setdefault(job.queue, []).append(job)
    if not by_queue:
        return
    queues = ssn.rank_queues(by_queue)
    while queues:
        for job in ssn.ordered_jobs(by_queue[queues.pop().name]):
            promised = job.with_status(entities.Status.PIPELINED)
            yield from ssn.ordered_tasks(
                task
                for task in (*job.pending, *promised)
                if task.is_best_effort and not task.is_gated
            )


def _has_best_effort(job: entities.Job) -> bool:
    """Return whether the job has a pending or nominated best-effort task."""
    promised = job.by_status.get(entities.Status.PIPELINED, {})
    return job.pending_best_effort > 0 or any(each.is_best_effort for each in promised.values())


def _release_nomination(ssn: session.Session, task: entities.Task) -> None:
    ssn.change(task, entities.Status.PENDING, task.node)
    ssn.notify_deallocated((task,))
    task.node = ""
    task.eviction_occurred = False


def _place(ssn: session.Session, task: entities.Task) -> entities.FitError | None:
    finder = ssn.finder
    reason = finder.pre_predicate(task)
    if reason is not None:
        return entities.FitError(message=reason)
    filter_result = finder.filter_result(task)
    # The task takes one of the node's pod slots, which terminating pods still hold.
    idle = finder.fits_idle(task)
    candidates = filter_result.passed & idle
    if not candidates.any():
        return finder.fit_error(task, filter_result, idle | ~filter_result.passed)
    ssn.allocate(task, finder.best(task, candidates))
    return None
