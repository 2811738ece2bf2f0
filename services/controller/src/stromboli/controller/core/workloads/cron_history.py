"""The history limits of a CronJob: the oldest finished jobs above each limit are deleted.

When a job finishes, the limit would be exceeded until its CronJob is reconciled. So older jobs are
deleted before the job's final phase is written.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from stromboli.controller.core import commands, lifecycle
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.workloads import child_jobs
from stromboli.shared.api import batch, kinds
from stromboli.shared.api.flow import CronJob

SUCCESSFUL_KEPT, FAILED_KEPT = 3, 1
"""The default history limits of finished jobs: successful and failed."""
CLASSES = (("Completed",), ("Failed", "Terminated"))
"""Phases that share a limit; a terminated job counts as failed."""


def in_order(cron: CronJob, jobs: Iterable[batch.Job]) -> list[batch.Job]:
    """Jobs of a CronJob, oldest first."""
    created = cron.metadata.creation_timestamp
    return sorted(
        jobs,
        key=lambda job: (job.metadata.creation_timestamp or created, job.metadata.name),
    )


def surplus(
    cache: controller_cache.ControllerCache,
    cron: CronJob,
    jobs: Iterable[batch.Job],
    phases: tuple[str, ...],
    coming: int = 0,
) -> list[batch.Job]:
    """The oldest finished jobs in these phases that exceed their limit, if ``coming`` more are
    about to finish. ``jobs``: oldest first.
    """
    spec = cron.spec
    limit, usual = spec.failed_jobs_history_limit, FAILED_KEPT
    if phases == CLASSES[0]:
        limit, usual = spec.successful_jobs_history_limit, SUCCESSFUL_KEPT
    kept = max(0, (usual if limit is None else limit) - coming)
    candidates = [
        job for job in jobs if job.status.state.phase in phases and not cache.is_terminating(job)
    ]
    return candidates[: max(0, len(candidates) - kept)]


def removed(cron: CronJob, job: batch.Job, now: datetime) -> commands.Stage:
    """Delete a job that exceeds the limits, with an Event."""
    why = f"deleted job {job.metadata.name}"
    event = commands.event_about(kinds.CRON_JOBS, cron, "Normal", "SuccessfulDelete", why, now)
    return (child_jobs.remove(job), event)


def displaced(
    cache: controller_cache.ControllerCache, job: batch.Job, phase: str, now: datetime
) -> Iterator[commands.Command]:
    """Delete jobs that exceed the limits once this one reaches a phase in which it counts as
    finished. A job whose end its CronJob has not recorded yet is kept until then.
    """
    owner = job.metadata.controller
    if owner is None or phase not in lifecycle.FINISHED or job.status.state.phase == phase:
        return
    cron = cache.get(kinds.CRON_JOBS, f"{job.metadata.namespace}/{owner.name}")
    if cron is None or cron.metadata.uid != owner.uid or not child_jobs.is_cron_ours(cache, cron):
        return
    phases = next(it for it in CLASSES if phase in it)
    jobs = in_order(cron, cache.children(cron))
    for surplus_job in surplus(cache, cron, jobs, phases, coming=1):
        if not child_jobs.is_awaited(cache, surplus_job):
            yield from removed(cron, surplus_job, now)
