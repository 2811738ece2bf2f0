"""CronJobs: a job at each time of a schedule, as in Volcano.

All state is derived from objects: the last processed time is in the status and in the names of
jobs. So a controller that was down, or crashed between creating a job and writing the status,
neither misses a time nor processes one twice. Of several missed times only the last is processed,
if it is not older than ``startingDeadlineSeconds``. A clock that goes back starts no job: only
times after the last processed one count.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from stromboli.controller.core import commands, lifecycle, pending_reason
from stromboli.controller.core.store import complete_specs, controller_cache
from stromboli.controller.core.workloads import child_jobs, cron_history
from stromboli.shared import keys
from stromboli.shared.api import batch, flow, kinds
from stromboli.shared.api.flow import CronJob
from stromboli.shared.formats import cron as schedules
from stromboli.shared.formats import durations
from stromboli.shared.jobspec.validation import cron_jobs

SHORTEST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)
"""Shortest and longest interval between retries of a scheduled time whose job name is in use."""


class CronState(msgspec.Struct, frozen=True):
    """A CronJob with its jobs, oldest first. ``served``: the last scheduled time for which a job
    was created; without one, the creation time of the CronJob.
    """

    cron: CronJob
    jobs: list[batch.Job]
    active: list[batch.Job]
    served: datetime


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """Record the state of the jobs, delete the jobs above the history limits, and start the job
    that is due."""
    cron_state = _look(cache, key)
    if cron_state is None:
        return ()
    cron = cron_state.cron
    events = list(_ends(cron_state, now))
    start: tuple[commands.Stage, ...] = ()
    schedule = _schedule(cron)
    if isinstance(schedule, commands.RecordEvent):
        events.append(msgspec.structs.replace(schedule, at=now))
    elif not cron.spec.suspend:
        events += _lateness(cron_state, schedule, now)
        at = _due_now(cron_state, schedule, now)
        if at is not None and cron_state.active and cron.spec.concurrency_policy == "Forbid":
            name = cron_state.active[0].metadata.name
            why = f"no job was started at {_text(cron, at)}: job {name} is still running"
            events.append(_about(cron, "Warning", "ForbidConcurrent", why, now))
        elif at is not None:
            start = _start(cache, cron_state, at, now)
    cleaned = tuple(_history(cache, cron_state, now))
    if not start and cron.metadata.annotation(keys.HELD):
        start = (pending_reason.noted(kinds.CRON_JOBS, cron, ""),)
    plan = child_jobs.status_first(kinds.CRON_JOBS, cron, _status(cron_state), cleaned, *start)
    return (tuple(events), *plan) if events else plan


def due(cache: controller_cache.ControllerCache, key: str, now: datetime) -> datetime | None:
    """The next scheduled time. A scheduled time that waits for a running job is handled when that
    job changes.
    """
    cron_state = _look(cache, key)
    if cron_state is None or cron_state.cron.spec.suspend:
        return None
    schedule = _schedule(cron_state.cron)
    if isinstance(schedule, commands.RecordEvent):
        return None
    is_held = bool(cron_state.active) and cron_state.cron.spec.concurrency_policy == "Forbid"
    waiting = None if is_held else _due_now(cron_state, schedule, now)
    following = schedule.next_after(max(cron_state.served, now))
    if waiting is None or not _taken(cache, cron_state.cron, waiting):
        return waiting or following
    # No event reports a free name: each wait is as long as the name has been in use so far.
    pause = min(max(now - waiting, SHORTEST_PAUSE), LONGEST_PAUSE)
    return min(at for at in (following, now + pause) if at is not None)


def _look(cache: controller_cache.ControllerCache, key: str) -> CronState | None:
    cron = cache.get(kinds.CRON_JOBS, key)
    if cron is None or cache.is_terminating(cron) or not child_jobs.is_cron_ours(cache, cron):
        return None
    created = _created(cron)
    jobs = cron_history.in_order(cron, cache.children(cron))
    active = [
        job
        for job in jobs
        if job.status.state.phase not in lifecycle.FINISHED and not cache.is_terminating(job)
    ]
    times = [
        created,
        cron.status.last_schedule_time,
        *(child_jobs.scheduled_at(cron, it) for it in jobs),
    ]
    return CronState(cron, jobs, active, max(at for at in times if at is not None))


def _created(cron: CronJob) -> datetime:
    if cron.metadata.creation_timestamp is None:
        raise ValueError(f"CronJob {cron.metadata.key} has no creationTimestamp")
    return cron.metadata.creation_timestamp


def _schedule(cron: CronJob) -> schedules.Schedule | commands.RecordEvent:
    """The schedule, or a Warning if it is invalid: the CronJob may have bypassed admission."""
    zone = cron.spec.time_zone
    problem = None if zone is None else cron_jobs.zone_problem(zone)
    if problem:
        why = f"no job is started: {problem}"
        return _about(cron, "Warning", "InvalidTimeZone", why, _created(cron))
    try:
        return schedules.Schedule(cron.spec.schedule, zone, _created(cron))
    except ValueError as error:
        why = f"no job is started: {error}"
        return _about(cron, "Warning", "InvalidSchedule", why, _created(cron))


def _due_now(cron_state: CronState, schedule: schedules.Schedule, now: datetime) -> datetime | None:
    """The last scheduled time that is past and not processed, if its starting deadline has not
    passed."""
    deadline = cron_state.cron.spec.starting_deadline_seconds
    after = cron_state.served
    if deadline is not None:
        after = max(after, durations.later(now, -deadline) - timedelta(microseconds=1))
    return schedule.last_until(after, now)


def _lateness(
    cron_state: CronState, schedule: schedules.Schedule, now: datetime
) -> Iterator[commands.RecordEvent]:
    """Events about scheduled times that passed without a job."""
    cron, deadline = cron_state.cron, cron_state.cron.spec.starting_deadline_seconds
    last = cron.status.last_schedule_time
    if last is not None and last > now:
        why = f"the clock was set back: the next job starts after {_text(cron, last)}"
        yield _about(cron, "Warning", "ClockSetBack", why, now)
    missed = schedule.last_until(cron_state.served, now)
    if missed is not None and _due_now(cron_state, schedule, now) is None:
        why = (
            f"no job was started at {_text(cron, missed)}: its starting deadline of {deadline} s "
            "has passed"
        )
        yield _about(cron, "Warning", "MissSchedule", why, now)
    elif missed is not None and schedule.count(cron_state.served, now) > schedules.MOST_MISSED:
        why = (
            f"more than {schedules.MOST_MISSED} scheduled times were missed, the last at "
            f"{_text(cron, missed)}; a job is started only for that one"
        )
        yield _about(cron, "Warning", "TooManyMissedTimes", why, now)


def _start(
    cache: controller_cache.ControllerCache, cron_state: CronState, at: datetime, now: datetime
) -> tuple[commands.Stage, ...]:
    """The stages that delete the jobs to be replaced and then create the job. If the cached
    template lacks values, they only read the CronJob."""
    cron, template = cron_state.cron, cron_state.cron.spec.job_template
    name = child_jobs.cron_job_name(cron, at)
    if conflict := child_jobs.name_conflict(cache, cron, name):
        warning = _about(cron, "Warning", "FailedCreate", conflict, now)
        why = pending_reason.reasons(
            [(warning.reason, f"no job was started at {_text(cron, at)}: {conflict}")]
        )
        return ((warning,), pending_reason.noted(kinds.CRON_JOBS, cron, why))
    if not cache.is_complete(cron):
        return ((complete_specs.read(kinds.CRON_JOBS, cron),),)
    replaced: list[commands.Command] = []
    if cron.spec.concurrency_policy == "Replace":
        for job in cron_state.active:
            why = f"job {job.metadata.name} was still running at {_text(cron, at)} and is replaced"
            replaced.append(_about(cron, "Warning", "ReplaceConcurrent", why, now))
            replaced.append(child_jobs.remove(job))
    create = child_jobs.create(
        cache,
        kinds.CRON_JOBS,
        cron,
        name,
        msgspec.json.decode(template.spec) or {},
        dict(template.metadata.labels or {}),
        {**(template.metadata.annotations or {}), keys.CRON_SCHEDULED_AT: _text(cron, at)},
    )
    event = _about(cron, "Normal", "SuccessfulCreate", f"created job {name}", now)
    return (tuple(replaced), (create,), (event,))


def _taken(cache: controller_cache.ControllerCache, cron: CronJob, at: datetime) -> str:
    return child_jobs.name_conflict(cache, cron, child_jobs.cron_job_name(cron, at))


def _text(cron: CronJob, at: datetime) -> str:
    return at.astimezone(ZoneInfo(cron.spec.time_zone or "UTC")).isoformat().replace("+00:00", "Z")


def _ends(cron_state: CronState, now: datetime) -> Iterator[commands.Command]:
    was_active = {reference.uid for reference in cron_state.cron.status.active}
    for job in cron_state.jobs:
        if job.metadata.uid in was_active and job.status.state.phase in lifecycle.FINISHED:
            why = f"job {job.metadata.name} is {job.status.state.phase}"
            yield _about(cron_state.cron, "Normal", "SawCompletedJob", why, now)


def _history(
    cache: controller_cache.ControllerCache, cron_state: CronState, now: datetime
) -> Iterator[commands.Command]:
    """Delete the oldest finished jobs above the history limits."""
    for phases in cron_history.CLASSES:
        for job in cron_history.surplus(cache, cron_state.cron, cron_state.jobs, phases):
            yield from cron_history.removed(cron_state.cron, job, now)


def _status(cron_state: CronState) -> flow.CronJobStatus:
    before = cron_state.cron.status
    ends = [
        child_jobs.ended_at(job) for job in cron_state.jobs if job.status.state.phase == "Completed"
    ]
    successes = [at for at in (*ends, before.last_successful_time) if at is not None]
    is_first = cron_state.served == _created(cron_state.cron)
    return flow.CronJobStatus(
        active=tuple(
            flow.ObjectReference(
                api_version=kinds.JOBS.api_version,
                kind=kinds.JOBS.kind,
                name=job.metadata.name,
                namespace=job.metadata.namespace,
                uid=job.metadata.uid,
            )
            for job in cron_state.active
        ),
        last_schedule_time=before.last_schedule_time if is_first else cron_state.served,
        last_successful_time=max(successes, default=None),
    )


def _about(
    cron: CronJob, type_: commands.EventType, reason: str, message: str, at: datetime
) -> commands.RecordEvent:
    return commands.event_about(kinds.CRON_JOBS, cron, type_, reason, message, at)
