"""Allocate: jobs get nodes, queue by queue, each job whole or not at all (spec 8.2).

A job that is not ready yet is tried until it is; one that is ready gets one task at a time, and
queues and jobs are ordered anew after each.
"""

import msgspec

from stromboli.scheduler.core.actions import nearby, subgroups
from stromboli.scheduler.core.framework import ordering, session, statement
from stromboli.scheduler.core.model import entities, subjobs


class Sheet(msgspec.Struct, eq=False):
    """A job's tasks that are still to be tried, the next one last; or those of a group of it."""

    job: entities.Job
    tasks: list[entities.Task]
    failed_roles: set[str]
    subjob: entities.SubJob | None = None


def run(within: session.Session) -> None:
    """Serve the queue that comes first, again and again, until no queue has a job to try."""
    waiting: dict[str, ordering.Heap[Sheet]] = {}
    for job in within.waiting_jobs():
        sheet = _sheet(within, job)
        if sheet is not None:
            waiting.setdefault(job.queue, _heap(within)).push(sheet)
    while waiting:
        if within.is_full:
            within.untried.update(sheet.job.key for heap in waiting.values() for sheet in heap)
            return
        queue = ordering.first(within.compare_queues, [within.queues[name] for name in waiting])
        heap = waiting[queue.name]
        if not heap or within.overused(queue):
            del waiting[queue.name]
            continue
        sheet = heap.pop()
        if within.job_moved(sheet.job):
            heap.push(sheet)
            continue
        sheet.job.fit_error = within.held_back(sheet.job)
        if sheet.job.fit_error:
            continue
        if not _serve(within, queue, sheet):
            within.job_blocked(sheet.job)
        elif sheet.tasks:
            heap.push(sheet)


def _heap(within: session.Session) -> ordering.Heap[Sheet]:
    key = within.job_key()
    return ordering.Heap(lambda sheet: key(sheet.job))


def _sheet(within: session.Session, job: entities.Job) -> Sheet | None:
    """What is to be tried for a job; None if nothing is."""
    if not job.is_decidable:
        return None
    if job.is_pending:
        if "enqueue" in within.configuration.actions:
            return None
        within.admit(job)
    invalid = within.job_valid(job)
    if invalid is not None:
        job.fit_error = invalid.message
        within.job_blocked(job)
        return None
    job.domain_error = within.nearness.problem(job)
    if job.domain_error:
        within.job_blocked(job)
        return None
    tasks = within.ordered_tasks(
        task for task in job.unplaced if not task.is_gated and not task.is_best_effort
    )
    return Sheet(job, job.most_needed_first(tasks)[::-1], set()) if tasks else None


def _serve(within: session.Session, queue: entities.Queue, sheet: Sheet) -> bool:
    """Try the job once; whether it was bound, so that its further tasks may be tried."""
    job = sheet.job
    trial = within.statement()

    def place(
        subjob: entities.SubJob | None, tasks: list[entities.Task], part: statement.Statement
    ) -> None:
        _place(within, queue, Sheet(job, tasks, set(), subjob), part)

    if within.nearness.wants(job):
        nearby.place(within, job, sheet.tasks, trial, place)
    elif job.sub_group_minimums:
        subgroups.place(within, job, sheet.tasks, trial, place)
    else:
        _place(within, queue, sheet, trial)
    if within.job_ready(job):
        trial.commit()
        return True
    if not within.job_pipelined(job):
        trial.discard()
    return False


def _place(
    within: session.Session, queue: entities.Queue, sheet: Sheet, trial: statement.Statement
) -> None:
    """Place tasks until the job, or the group of it, is ready or must wait.

    Equal tasks go together: as many as the queue may hold, and no more than the job lacks at
    least, so that all is as if it had been asked after each of them.
    """
    job, tasks = sheet.job, sheet.tasks
    while tasks:
        task = tasks[-1]
        run = _run(within, tasks, _lacking(within, sheet, task))
        room = within.room(queue, task, len(run))
        if not room:
            job.is_refused_by_queue = True
            _refuse(sheet, run, _no_room(within, queue, task))
        elif task.role and task.role in sheet.failed_roles:
            for each in run[:room]:
                message = (
                    f"Task {each.name} with role spec {each.role} "
                    "has already predicated failed, skip"
                )
                _refuse(sheet, [each], entities.FitError(message=message))
        else:
            placed = _place_run(within, run[:room], trial)
            if isinstance(placed, entities.FitError):
                job.fit_errors[task.uid] = placed
                sheet.failed_roles.add(task.role)
                tasks.pop()
                if not _goes_on(sheet):
                    return
            else:
                del tasks[-placed:]
                if _is_ready(within, sheet):
                    return


def _lacking(within: session.Session, sheet: Sheet, task: entities.Task) -> int:
    """How many tasks like this one must at least be placed before it can be ready."""
    if sheet.subjob is None:
        return within.lacking(sheet.job, task)
    return max(1, sheet.subjob.min_available - subjobs.count(sheet.subjob, subjobs.HELD))


def _is_ready(within: session.Session, sheet: Sheet) -> bool:
    if sheet.subjob is None:
        return within.job_ready(sheet.job)
    return within.subjob_ready(sheet.job, sheet.subjob)


def _run(within: session.Session, tasks: list[entities.Task], most: int) -> list[entities.Task]:
    """The next tasks that nobody can tell apart, the next one first."""
    first = tasks[-1]
    run = [first]
    if not within.counts_room() or first.pod.status.nominated_node_name:
        return run
    for task in tasks[-2 : -most - 1 : -1]:
        if (
            task.role != first.role
            or task.pod.status.nominated_node_name
            or not within.finder.is_equal(task, first)
        ):
            break
        run.append(task)
    return run


def _no_room(
    within: session.Session, queue: entities.Queue, task: entities.Task
) -> entities.FitError:
    """Why the task is not placed whose queue may not hold it: if no node would take it either,
    that is what there is to know."""
    verdict, fits = within.finder.verdict(task), within.finder.fits_future(task)
    if (verdict.passed & fits).any():
        message = f"queue {queue.name} has no room for the task"
        return entities.FitError(message=message, is_share=True)
    return within.finder.fit_error(task, verdict, fits)


def _refuse(sheet: Sheet, run: list[entities.Task], error: entities.FitError) -> None:
    for task in run:
        sheet.job.fit_errors[task.uid] = error
    del sheet.tasks[-len(run) :]


def _place_run(
    within: session.Session, run: list[entities.Task], trial: statement.Statement
) -> int | entities.FitError:
    """Place equal tasks, or promise the first its place: how many; else why not even one."""
    finder, task = within.finder, run[0]
    reason = finder.pre_predicate(task)
    if reason is not None:
        return entities.FitError(message=reason)
    verdict = finder.verdict(task)
    fits = finder.fits_future(task)
    candidates = verdict.passed & fits
    nominated = within.nodes.rows.get(task.pod.status.nominated_node_name)
    if nominated is not None and candidates[nominated]:
        node = within.nodes.names[nominated]
        if finder.fits_idle(task)[nominated]:
            trial.allocate(task, node)
        else:
            trial.pipeline(task, node)
        return 1
    idle = candidates & finder.fits_idle(task)
    if idle.any():
        nodes = finder.best_for_run(task, verdict, idle, len(run))
        trial.allocate_run(run[: len(nodes)], nodes)
        return len(nodes)
    if candidates.any():
        trial.pipeline(task, finder.best(task, candidates))
        return 1
    return finder.fit_error(task, verdict, fits)


def _goes_on(sheet: Sheet) -> bool:
    """Whether the job can still reach its minimum without the roles that failed."""
    job = sheet.job
    if job.min_available == len(job.tasks):
        return False
    if sheet.subjob is not None:
        return sheet.subjob.min_available < len(sheet.subjob.tasks)
    if job.min_available < sum(job.task_min_available.values()):
        left = sum(task.role not in sheet.failed_roles for task in job.pending)
        return job.ready + left >= job.min_available
    placed = [task.role for task in job.with_status(*entities.ALLOCATED)]
    return all(
        placed.count(role) >= job.task_min_available.get(role, 0) for role in sheet.failed_roles
    )
