"""The status after a life-cycle event: phase, retries, version, and times.

Times are written with the phase, so that they survive a restart of the controller: the deadline,
the end of a back-off, and the due times of policies.
"""

from datetime import datetime

import msgspec

from stromboli.controller.core import lifecycle, partial_restarts
from stromboli.controller.core.jobs import policies, policy_events
from stromboli.controller.core.tasks import arrays, tasks
from stromboli.shared.api import batch
from stromboli.shared.api.batch import Job, JobStatus

_RESTARTS = lifecycle.PARTIAL | {"RestartJob"}


def after(
    job: Job,
    event: lifecycle.Event,
    counts: tasks.Tally,
    now: datetime,
    message: str = "",
    policy_action: policies.PolicyAction | None = None,
) -> JobStatus:
    """The status after an event. ``message``: the cause of the event. ``policy_action``: the action
    of policies; None for a user command, which costs no retry. Raises IllegalTransitionError."""
    move = lifecycle.transition(tasks.phase_of(job), event)
    retries = job.status.retry_count + move.retry
    is_free = policy_action is None or policy_action.is_free
    requested = job.status.asked_retries + (move.retry and is_free)
    version = job.status.version + move.new_version
    has_tries = retries - requested < tasks.max_retry(job)
    if job.spec.array is not None and event == "RestartJob" and has_tries:
        counts = tasks.with_progress(job, counts, arrays.restarted(version))
    elif job.spec.array is not None and policy_action is not None and policy_action.part:
        # Restarted indexes have no result; results of the others are derived from their pods again.
        counts = tasks.with_progress(job, counts, job.status.array or batch.ArrayStatus())
    before = tasks.status_with(job.status, counts, tasks.min_available(job))
    created = job.metadata.creation_timestamp
    lasted = "" if created is None else tasks.go_duration((now - created).total_seconds())
    status = msgspec.structs.replace(
        before,
        state=batch.JobState(
            phase=move.to,
            reason=event,
            message=message if policy_action is None else policy_action.why,
            last_transition_time=now,
        ),
        conditions=_conditions(before, move, now),
        version=version,
        retry_count=retries,
        asked_retries=requested,
        running_duration=lasted if move.to in lifecycle.FINISHED else "",
        started_at=_started_at(job, event, policy_action, now),
        retry_at=_retry_at(before, event, policy_action, now),
        restarted=_restarted(job, move, policy_action, retries),
        policy_retries=_policy_retries(before, policy_action),
        delayed=() if move.new_version or move.to in lifecycle.FINISHED else before.delayed,
    )
    if policy_action is not None:
        return msgspec.structs.replace(
            status, delayed=policies.delayed_after(status, policy_action)
        )
    return status


def _conditions(
    before: JobStatus, move: lifecycle.Transition, now: datetime
) -> tuple[batch.JobCondition, ...]:
    if move.to == before.state.phase:
        return before.conditions
    others = tuple(it for it in before.conditions if it.status != move.to)
    return (*others, batch.JobCondition(status=move.to, last_transition_time=now))


def _started_at(
    job: Job,
    event: lifecycle.Event,
    policy_action: policies.PolicyAction | None,
    now: datetime,
) -> datetime | None:
    """The start time of the job, from which the time limit counts: the first start of the gang,
    over all attempts. It is reset when the job is resumed, when a policy for DeadlineExceeded
    restarts it, and when a user restarts it after its time limit, while the policy waits."""
    first_start = job.status.started_at
    has_more_time = policy_action is None or policy_action.is_for_deadline
    is_renewed = event == "RestartJob" and has_more_time and policy_events.is_overdue(job, now)
    if event == "ResumeJob" or is_renewed:
        return None
    return now if event == "Started" and first_start is None else first_start


def _retry_at(
    before: JobStatus,
    event: lifecycle.Event,
    policy_action: policies.PolicyAction | None,
    now: datetime,
) -> datetime | None:
    """The end of the longest back-off of the restarting policies; None for a restart by a user,
    which has no back-off."""
    if policy_action is None or event not in _RESTARTS:
        return None
    paused = [now + policy_action.pause] if policy_action.pause else []
    if policy_action.not_before is not None and policy_action.not_before > now:
        paused.append(policy_action.not_before)
    return max((at for at in (*paused, before.retry_at) if at is not None), default=None)


def _restarted(
    job: Job, move: lifecycle.Transition, policy_action: policies.PolicyAction | None, retries: int
) -> batch.RestartedTasks | None:
    if move.new_version:
        return None  # all earlier pods are of an old version
    if policy_action is None or not policy_action.part:
        return job.status.restarted
    return partial_restarts.recorded(job, policy_action.part, retries)


def _policy_retries(
    before: JobStatus, policy_action: policies.PolicyAction | None
) -> dict[str, int]:
    """How often each policy has acted, for ``maxRetries``. A restart that costs no retry does not
    count."""
    if policy_action is None or policy_action.is_free:
        return before.policy_retries
    counted = {name: before.policy_retries.get(name, 0) + 1 for name in policy_action.used}
    return before.policy_retries | counted
