"""The plugin ``gang``: a job starts with its minimum or not at all."""

from collections.abc import Iterator, Sequence

import msgspec

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, subjobs
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.api import scheduling

UNSCHEDULABLE, SCHEDULED = "Unschedulable", "Scheduled"
NOT_ENOUGH = "NotEnoughResources"
READY = "tasks in gang are ready to be scheduled"


class Plugin:
    """Has no arguments."""

    def __init__(self, options: configuration.PluginOptions) -> None: ...

    def open(self, ssn: session.Session) -> None:
        """Register: minimums decide which jobs are valid, ready, pipelined and starving, and
        protect tasks from eviction."""

        def surplus(
            evictor: entities.Task, candidates: Sequence[entities.Task]
        ) -> extension_points.Victims:
            return _surplus(ssn, candidates)

        ssn.add_gauges(lambda: _gauges(ssn))
        ssn.add_job_valid(_validity)
        ssn.add_preemptable(surplus, may_have=_has_surplus)
        ssn.add_reclaimable(surplus, may_have=_has_surplus)
        ssn.add_unified_evictable(
            lambda action, job, candidates: extension_points.Victims(candidates)
        )
        # A gang below its minimum occupies nodes without being able to run: it comes first.
        # Plugins before this one, such as priority, decide earlier.
        ssn.add_job_order(key=_job_key)
        ssn.add_job_ready(_missing)
        ssn.add_job_pipelined(_pipelined)
        ssn.add_job_starving(lambda job: job.is_starving)
        ssn.add_subjob_ready(
            lambda job, subjob: subjobs.reaches(subjob, subjobs.ALLOCATED_STATUSES)
        )
        ssn.add_subjob_pipelined(
            lambda job, subjob: (
                extension_points.PERMIT
                if subjobs.reaches(subjob, subjobs.NOMINATED_STATUSES)
                else extension_points.REJECT
            )
        )
        ssn.add_subjob_order(
            lambda left, right: (
                subjobs.reaches(left, subjobs.ALLOCATED_STATUSES)
                - subjobs.reaches(right, subjobs.ALLOCATED_STATUSES)
            )
        )

    def close(self, ssn: session.Session) -> None:
        """Write each job's condition: scheduled, or unschedulable with the missing tasks."""
        for job in ssn.waiting_jobs():
            condition = _condition(job) if job.tasks else None
            if condition is not None:
                job.is_unschedulable = condition.type == UNSCHEDULABLE
                _put(job, condition)


def _gauges(ssn: session.Session) -> Iterator[extension_points.Gauge]:
    """Yield the number of jobs below their minimum, and the number of tasks that each of them
    lacks."""
    lacking = [job for job in ssn.waiting_jobs() if job.tasks and not job.is_ready]
    yield extension_points.Gauge("unschedule_job_count", len(lacking))
    for job in lacking:
        yield extension_points.Gauge(
            "unschedule_task_count", job.min_available - job.ready, (("job_id", job.name),)
        )


def _job_key(job: entities.Job) -> tuple[bool, bool]:
    """Jobs that hold nodes but are below their minimum come first, then those that are not ready.
    Finished tasks hold no nodes."""
    is_ready = job.is_ready
    is_whole = is_ready and job.roles_ready
    is_broken = not is_whole and job.count_in(entities.ALLOCATED) > 0
    return (not is_broken, is_ready)


def _validity(job: entities.Job) -> extension_points.JobInvalid | None:
    if not job.roles_valid:
        return extension_points.JobInvalid(
            "NotEnoughPodsOfTask", "Not enough valid pods of each task for gang-scheduling"
        )
    if not subjobs.are_valid(job):
        return extension_points.JobInvalid(
            "NotEnoughPodsOfTask", "Not enough valid subGroups of each task for gang-scheduling"
        )
    if job.valid < job.min_available:
        return extension_points.JobInvalid(
            "NotEnoughTasks",
            "Not enough valid tasks for gang-scheduling, "
            f"valid: {job.valid}, min: {job.min_available}",
        )
    return None


def _has_surplus(evictor: extension_points.Evictor, other: entities.Job) -> bool:
    return other.ready > other.min_available


def _surplus(ssn: session.Session, candidates: Sequence[entities.Task]) -> extension_points.Victims:
    """Return as many candidates of each job as it has ready tasks above its minimum."""
    left: dict[str, int] = {}
    victims = []
    for task in candidates:
        job = ssn.jobs.get(task.job)
        if job is None:
            continue
        remaining = left.setdefault(job.key, job.ready)
        if remaining > job.min_available:
            left[job.key] = remaining - 1
            victims.append(task)
    return extension_points.Victims(victims)


def _missing(job: entities.Job, task: entities.Task | None) -> int:
    """Without a task: 0 if the job can be bound, else 1. With one: how many tasks like it the job,
    or the task's role if that lacks more, needs for its minimum."""
    if task is None:
        return int(not _ready(job))
    lacking = job.min_available - job.ready - job.pending_best_effort
    if job.role_minimums:
        lacking = max(lacking, job.role_deficit(task.role))
    return lacking


def _ready(job: entities.Job) -> bool:
    return job.roles_ready and job.is_ready and subjobs.are_whole(job, subjobs.ALLOCATED_STATUSES)


def _pipelined(job: entities.Job) -> int:
    is_enough = job.roles_pipelined and job.is_pipelined
    is_enough = is_enough and subjobs.are_whole(job, subjobs.NOMINATED_STATUSES)
    return extension_points.PERMIT if is_enough else extension_points.REJECT


def _condition(job: entities.Job) -> scheduling.PodGroupCondition | None:
    if job.is_ready:
        return scheduling.PodGroupCondition(type=SCHEDULED, status="True", reason=READY)
    releasing = sum(bool(task.node) for task in job.with_status(entities.Status.RELEASING))
    waits = job.count(entities.Status.PENDING, entities.Status.PIPELINED)
    scheduled = job.count_in(entities.SCHEDULED)
    if releasing and not waits and scheduled + releasing >= job.min_available:
        return None
    tried = sum(task.last_status in entities.ALLOCATED for task in job.pending)
    lacking = job.min_available - (job.ready + tried)
    return scheduling.PodGroupCondition(
        type=UNSCHEDULABLE,
        status="True",
        reason=NOT_ENOUGH,
        message=f"{lacking}/{len(job.tasks)} tasks in gang unschedulable: {job.explain()}",
    )


def _put(job: entities.Job, condition: scheduling.PodGroupCondition) -> None:
    """Replace the condition of this type, or add it. The controller sets transition times."""
    for at, old in enumerate(job.conditions):
        if old.type == condition.type:
            job.conditions[at] = msgspec.structs.replace(
                old,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
            )
            return
    job.conditions.append(condition)
