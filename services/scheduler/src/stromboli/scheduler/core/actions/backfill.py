"""Backfill: tasks that ask for nothing but a place are put where predicates let them (spec 8.3)."""

from collections.abc import Iterator
from functools import cmp_to_key

from stromboli.scheduler.core.framework import ordering, session
from stromboli.scheduler.core.model import entities


def run(within: session.Session) -> None:
    """Every best-effort task that waits is tried once, by queue, job and task order.

    One with a promise is placed where there is room at once; else it keeps the promise, for which
    others may have been evicted.
    """
    for task in list(_waiting(within)):
        job = within.jobs[task.job]
        if within.is_full:
            within.untried.add(job.key)
            continue
        promised, evicted = task.node, task.eviction_occurred
        if task.status is entities.Status.PIPELINED:
            _release_promise(within, task)
        error = _place(within, task)
        if error is not None and promised:
            within.change(task, entities.Status.PIPELINED, promised)
            task.eviction_occurred = evicted
            within.tell_allocated((task,))
        elif error is not None:
            job.fit_errors[task.uid] = error


def _waiting(within: session.Session) -> Iterator[entities.Task]:
    queues = ordering.Heap(cmp_to_key(within.compare_queues), within.queues.values())
    by_queue: dict[str, list[entities.Job]] = {}
    for job in within.waiting_jobs():
        is_tried = job.is_decidable and not job.is_pending
        if is_tried and within.job_valid(job) is None and not within.held_back(job):
            by_queue.setdefault(job.queue, []).append(job)
    while queues:
        for job in within.ordered_jobs(by_queue.get(queues.pop().name, ())):
            promised = job.with_status(entities.Status.PIPELINED)
            yield from within.ordered_tasks(
                task
                for task in (*job.pending, *promised)
                if task.is_best_effort and not task.is_gated
            )


def _release_promise(within: session.Session, task: entities.Task) -> None:
    within.change(task, entities.Status.PENDING, task.node)
    within.tell_deallocated((task,))
    task.node = ""
    task.eviction_occurred = False


def _place(within: session.Session, task: entities.Task) -> entities.FitError | None:
    finder = within.finder
    reason = finder.pre_predicate(task)
    if reason is not None:
        return entities.FitError(message=reason)
    verdict = finder.verdict(task)
    # It takes a place among the node's pods, which those that are to go still hold.
    idle = finder.fits_idle(task)
    candidates = verdict.passed & idle
    if not candidates.any():
        return finder.fit_error(task, verdict, idle | ~verdict.passed)
    within.allocate(task, finder.best(task, candidates))
    return None
