"""The action ``allocate``: binds gangs to idle nodes, each gang as a whole or not at all.

The first queue in queue order gives its first job a turn. In one turn, a job that is not ready gets
all tasks that it lacks for its minimum, and a ready job gets one task. After each turn queues and
jobs are ordered again, since shares have changed.
"""

from collections.abc import Callable, Iterable

import msgspec

from stromboli.scheduler.core.actions import gang_packing, subgroups, topology_placement
from stromboli.scheduler.core.framework import ordering, session, statement
from stromboli.scheduler.core.model import entities, subjobs


class JobAttempt(msgspec.Struct, eq=False):
    """The tasks of a job, or of one of its subgroups, that are still to be tried; the next one is
    last."""

    job: entities.Job
    tasks: list[entities.Task]
    failed_roles: set[str]
    subjob: entities.SubJob | None = None


def run(ssn: session.Session) -> None:
    """Try the jobs of each queue in turn until no queue has a job left."""
    waiting: dict[str, ordering.Heap[JobAttempt]] = {}
    for job in ssn.waiting_jobs():
        attempt = _job_attempt(ssn, job)
        if attempt is not None:
            waiting.setdefault(job.queue, _queue_heap(ssn)).push(attempt)
    if not waiting:
        return
    queues = ssn.rank_queues(waiting)
    while queues:
        if ssn.is_full:
            ssn.untried.update(attempt.job.key for heap in waiting.values() for attempt in heap)
            return
        queue = queues.pop()
        if waiting[queue.name] and not ssn.overused(queue):
            _give_turn(ssn, queue, waiting[queue.name])
            queues.push(queue)
        else:
            del waiting[queue.name]


def bind_gang(ssn: session.Session, queue: entities.Queue, job: entities.Job) -> bool:
    """Bind the minimum of one job, or nothing. Returns whether it was bound."""
    attempt = _job_attempt(ssn, job)
    if attempt is None or ssn.held_back(job):
        return False
    return _try_job(ssn, queue, attempt)


def rehearse(
    ssn: session.Session,
    jobs: Iterable[entities.Job],
    trial: statement.Statement,
    is_over: Callable[[], bool],
) -> None:
    """Add the placements that the jobs lack to ``trial``, in the order of ``run``, until
    ``is_over``. Decides nothing; plugins are not notified of jobs that do not start, but the order
    of the jobs follows the trial."""
    waiting: dict[str, ordering.Heap[JobAttempt]] = {}
    for job in jobs:
        ssn.job_order_changed(job)
        is_tried = not job.is_pending and ssn.job_valid(job) is None
        attempt = _job_attempt(ssn, job) if is_tried and not ssn.topology.problem(job) else None
        if attempt is not None:
            waiting.setdefault(job.queue, _queue_heap(ssn)).push(attempt)
    queues = ssn.rank_queues(waiting)
    while queues and not is_over():
        queue = queues.pop()
        if waiting[queue.name] and not ssn.overused(queue):
            _rehearse_turn(ssn, queue, waiting[queue.name], trial)
            queues.push(queue)


def _rehearse_turn(
    ssn: session.Session,
    queue: entities.Queue,
    heap: ordering.Heap[JobAttempt],
    trial: statement.Statement,
) -> None:
    attempt, part = heap.pop(), ssn.statement()
    if ssn.job_order_changed(attempt.job):
        heap.push(attempt)
        return
    is_ready = not ssn.held_back(attempt.job) and _place_job(ssn, queue, attempt, part)
    if is_ready or ssn.job_pipelined(attempt.job):
        trial.merge(part)
    else:
        part.discard()
    if is_ready and attempt.tasks:
        heap.push(attempt)


def _give_turn(
    ssn: session.Session, queue: entities.Queue, heap: ordering.Heap[JobAttempt]
) -> None:
    """Try the queue's first job."""
    attempt = heap.pop()
    if ssn.job_order_changed(attempt.job):
        heap.push(attempt)
        return
    attempt.job.fit_error = ssn.held_back(attempt.job)
    if attempt.job.fit_error:
        return
    is_bound = _try_job(ssn, queue, attempt)
    if not is_bound:
        ssn.job_blocked(attempt.job)
    elif attempt.tasks:
        heap.push(attempt)
    behind = _next_equal(ssn, attempt.job) if is_bound or attempt.job.waiting else None
    if behind is not None:
        heap.push(behind)


def _next_equal(ssn: session.Session, job: entities.Job) -> JobAttempt | None:
    """The next equal gang (``equal_gangs``), if the session has skipped it so far."""
    key = ssn.model.equal_gangs.after(job.key)
    if key is None or not ssn.skips(key):
        return None
    behind = ssn.jobs[key]
    ssn.resume(behind)
    return _job_attempt(ssn, behind)


def _queue_heap(ssn: session.Session) -> ordering.Heap[JobAttempt]:
    key = ssn.job_key()
    return ordering.Heap(lambda attempt: key(attempt.job))


def _job_attempt(ssn: session.Session, job: entities.Job) -> JobAttempt | None:
    """Return the tasks to be tried for a job; None if the job must wait as a whole."""
    if not job.is_decidable:
        return None
    if job.is_pending and "enqueue" in ssn.configuration.actions:
        return None
    # A job that waits for its reservation blocks no other job: it waits for a time, not for room.
    job.fit_error = ssn.reservations.waits(job)
    if job.fit_error:
        return None
    if job.is_pending:
        ssn.admit(job)
    invalid = ssn.job_valid(job)
    if invalid is not None:
        job.fit_error = invalid.message
        ssn.job_blocked(job)
        return None
    job.topology_error = ssn.topology.problem(job)
    if job.topology_error:
        ssn.job_blocked(job)
        return None
    tasks = ssn.ordered_tasks(
        task for task in job.unplaced if not task.is_gated and not task.is_best_effort
    )
    return JobAttempt(job, job.most_needed_first(tasks)[::-1], set()) if tasks else None


def _try_job(ssn: session.Session, queue: entities.Queue, attempt: JobAttempt) -> bool:
    """Give the job one turn. Returns whether it was bound, so that its remaining tasks get a
    turn."""
    trial = ssn.statement()
    if _place_job(ssn, queue, attempt, trial):
        trial.commit()
        return True
    if not ssn.job_pipelined(attempt.job):
        trial.discard()
    return False


def _place_job(
    ssn: session.Session, queue: entities.Queue, attempt: JobAttempt, trial: statement.Statement
) -> bool:
    """Place tasks of the job until it is ready. Returns whether it is."""
    job = attempt.job

    def place(
        subjob: entities.SubJob | None, tasks: list[entities.Task], part: statement.Statement
    ) -> None:
        _place(ssn, queue, JobAttempt(job, tasks, set(), subjob), part)

    if ssn.topology.is_constrained(job):
        topology_placement.place(ssn, job, attempt.tasks, trial, place)
    elif job.sub_group_minimums:
        subgroups.place(ssn, job, attempt.tasks, trial, place)
    else:
        _place(ssn, queue, attempt, trial)
    return ssn.job_ready(job)


def _place(
    ssn: session.Session, queue: entities.Queue, attempt: JobAttempt, trial: statement.Statement
) -> None:
    """Place tasks in task order. If a gang of unequal tasks finds too little room, pack its
    tasks."""
    tasks = list(attempt.tasks)
    _place_in_order(ssn, queue, attempt, trial)
    unit = topology_placement.PlacementUnit(attempt.job, attempt.subjob)
    if not trial.operations or unit.is_ready(ssn) or unit.is_pipelined(ssn):
        return
    trial.discard()
    placed = {task.uid for task in gang_packing.place(ssn, queue, unit, tasks, trial)}
    if placed:
        attempt.failed_roles.clear()
        attempt.tasks[:] = [task for task in tasks if task.uid not in placed]
        for uid in placed & attempt.job.fit_errors.keys():
            del attempt.job.fit_errors[uid]


def _place_in_order(
    ssn: session.Session, queue: entities.Queue, attempt: JobAttempt, trial: statement.Statement
) -> None:
    """Place tasks until the job, or its subgroup, is ready or no task is left.

    Identical tasks are placed in one batch, limited by the quota of the queue and by the number of
    tasks that the job certainly still needs. The result is the same as with one task at a time.
    """
    job, tasks = attempt.job, attempt.tasks
    while tasks:
        task = tasks[-1]
        run = _identical_tasks(ssn, tasks, _missing_count(ssn, attempt, task))
        room = ssn.count_allocatable(queue, task, len(run))
        if not room:
            job.is_refused_by_queue = True
            _record_failure(attempt, run, _no_quota_reason(ssn, queue, task))
        elif task.role and task.role in attempt.failed_roles:
            for each in run[:room]:
                message = f"not tried, because another task of role {each.role} fits no node"
                _record_failure(attempt, [each], entities.FitError(message=message))
        else:
            placed = _place_identical(ssn, run[:room], trial)
            if isinstance(placed, entities.FitError):
                job.refuse((task,), placed)
                attempt.failed_roles.add(task.role)
                tasks.pop()
                if not _can_still_start(attempt):
                    return
            else:
                del tasks[-placed:]
                if _is_ready(ssn, attempt):
                    return


def _missing_count(ssn: session.Session, attempt: JobAttempt, task: entities.Task) -> int:
    """Return a lower bound of the tasks like this one that the job still needs to be ready."""
    if attempt.subjob is None:
        return ssn.missing_count(attempt.job, task)
    return max(
        1, attempt.subjob.min_available - subjobs.count(attempt.subjob, subjobs.ALLOCATED_STATUSES)
    )


def _is_ready(ssn: session.Session, attempt: JobAttempt) -> bool:
    if attempt.subjob is None:
        return ssn.job_ready(attempt.job)
    return ssn.subjob_ready(attempt.job, attempt.subjob)


def _identical_tasks(
    ssn: session.Session, tasks: list[entities.Task], most: int
) -> list[entities.Task]:
    """Return the next tasks, in order, that are identical for filters and scores."""
    first = tasks[-1]
    run = [first]
    if first.pod.status.nominated_node_name:
        return run
    kind, role = first.task_class, first.role
    is_equal = None if ssn.finder.is_decided_by_class else ssn.finder.is_equal
    for task in tasks[-2 : -most - 1 : -1]:
        if (
            task.task_class is not kind
            or task.role != role
            or task.pod.status.nominated_node_name
            or (is_equal is not None and not is_equal(task, first))
        ):
            break
        run.append(task)
    return run


def _no_quota_reason(
    ssn: session.Session, queue: entities.Queue, task: entities.Task
) -> entities.FitError:
    """Return why a task that exceeds the quota of its queue is not placed.

    If no node can take the task either, the node reasons are returned: they are what the user needs
    to solve first.
    """
    filter_result, fits = ssn.finder.filter_result(task), ssn.finder.fits_future(task)
    if (filter_result.passed & fits).any():
        message = f"queue {queue.name} has no room for the task"
        return entities.FitError(message=message, is_share=True)
    return ssn.finder.fit_error(task, filter_result, fits)


def _record_failure(
    attempt: JobAttempt, run: list[entities.Task], error: entities.FitError
) -> None:
    attempt.job.refuse(run, error)
    del attempt.tasks[-len(run) :]


def _place_identical(
    ssn: session.Session, run: list[entities.Task], trial: statement.Statement
) -> int | entities.FitError:
    """Place identical tasks on idle nodes, or nominate the first one to a node that is being freed.

    Returns the number of placed tasks, or the reason why none is placed.
    """
    finder, task = ssn.finder, run[0]
    reason = finder.pre_predicate(task)
    if reason is not None:
        return entities.FitError(message=reason)
    filter_result = finder.filter_result(task)
    fits = finder.fits_future(task)
    candidates = filter_result.passed & fits
    nominated = ssn.nodes.rows.get(task.pod.status.nominated_node_name)
    if nominated is not None and candidates[nominated]:
        node = ssn.nodes.names[nominated]
        if finder.fits_idle(task)[nominated]:
            trial.allocate(task, node)
        else:
            trial.pipeline(task, node)
        return 1
    idle = candidates & finder.fits_idle(task)
    if idle.any():
        nodes = finder.best_for_run(task, filter_result, idle, len(run))
        trial.allocate_run(run[: len(nodes)], nodes)
        return len(nodes)
    if candidates.any():
        trial.pipeline(task, finder.best(task, candidates))
        return 1
    return finder.fit_error(task, filter_result, fits)


def _can_still_start(attempt: JobAttempt) -> bool:
    """Return whether the job can reach its minimum without the roles that failed."""
    job = attempt.job
    if job.min_available == len(job.tasks):
        return False
    if attempt.subjob is not None:
        return attempt.subjob.min_available < len(attempt.subjob.tasks)
    if job.min_available < sum(job.task_min_available.values()):
        left = sum(task.role not in attempt.failed_roles for task in job.pending)
        return job.ready + left >= job.min_available
    placed = [task.role for task in job.with_status(*entities.ALLOCATED)]
    return all(
        placed.count(role) >= job.task_min_available.get(role, 0) for role in attempt.failed_roles
    )
