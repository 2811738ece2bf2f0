"""The events of a job that are due: what the cluster shows and was not published yet.

Each is a function of the job or pod and of the last published event (``event_history``), so that a
repeated event has the same content.
"""

import functools
from collections.abc import Callable, Container, Iterable
from datetime import datetime

from stromboli.controller.core import (
    commands,
    lifecycle,
    partial_restarts,
    termination_causes,
)
from stromboli.controller.core.store import event_history
from stromboli.shared import device_annotations, keys
from stromboli.shared.api import batch as batch_api
from stromboli.shared.api import core
from stromboli.shared.formats import indexes
from stromboli.shared.jobspec import quota
from stromboli.shared.messages import batch


def state_of(pod: core.Pod, *, is_terminating: bool = False) -> str:
    """The state of a pod in events: ``Pending``, ``Bound``, ``Running``, ``Terminating`` or
    final."""
    if is_terminating and pod.status.phase not in event_history.OVER:
        return event_history.TERMINATING
    if pod.status.phase in ("", "Pending"):
        return "Bound" if pod.spec.node_name else "Pending"
    return pod.status.phase


def due_departure(
    published: event_history.EventHistory, key: str, uid: str, now: datetime
) -> commands.Stage:
    """The event that reports a deleted job, unless it was published. ``uid``: the uid of the job
    that has the key now; empty if there is no such job."""
    history = published.jobs.get(key)
    if history is None or history.uid == uid:
        return ()
    return (
        commands.Publish(
            job=key, message=batch.JobDeleted(job=key, uid=history.uid, at=now), at=now
        ),
    )


def due_tasks(
    published: event_history.EventHistory,
    job: batch_api.Job,
    unsettled: Iterable[tuple[str, core.Pod | None]],
    is_terminating: Callable[[core.Pod], bool],
    unreadable: Container[str],
    settle: Callable[[str], None],
    gpu_type: Callable[[str], str],
    now: datetime,
) -> commands.Stage:
    """Events for pods of a job whose state differs from the published one. O(unsettled).

    ``unsettled``: uids of pods that may differ, with None for a deleted pod. ``settle`` is called
    for each that does not differ. ``unreadable``: keys of unreadable pods. ``gpu_type``: the type
    of the GPUs of a node.
    """
    key = job.metadata.key
    history = published.of_job(job) or event_history.JobHistory(job.metadata.uid)
    changed, gone = [], []
    for uid, pod in unsettled:
        before = history.tasks.get(uid)
        if pod is not None:
            state = state_of(pod, is_terminating=is_terminating(pod))
            if before is None or (before.state != state and before.state not in event_history.OVER):
                changed.append(_changed(job, pod, before, state, gpu_type, now))
            else:
                settle(uid)
            continue
        before = before or history.unsure.get(uid)
        if before is None or before.state in event_history.OVER:
            history.forget(uid)
            settle(uid)
        elif f"{job.metadata.namespace}/{before.pod}" not in unreadable:
            gone.append(_gone(job, uid, before, now))
    trace = job.metadata.annotation(keys.TRACEPARENT) or ""
    return tuple(
        commands.Publish(job=key, message=message, at=message.at, traceparent=trace)
        for message in (*changed, *gone)
    )


def concerns_policies(
    job: batch_api.Job, command: commands.Command, interrupted: Container[str] = ()
) -> bool:
    """Whether the command publishes an end of a pod that life-cycle policies react to: the pod is
    gone, or is in ``interrupted`` (uids of pods whose end was not observed), and no restart of its
    job, or of its part of the job, ended it."""
    history = command.message if isinstance(command, commands.Publish) else None
    return (
        isinstance(history, batch.TaskChanged)
        and (history.after == event_history.GONE or history.pod_uid in interrupted)
        and not _is_past(job, history)
    )


def due_phase(
    published: event_history.EventHistory, job: batch_api.Job
) -> batch.JobPhaseChanged | None:
    """The event for a phase that was not published yet.

    The event is a function of the job alone, so repeated events have the same content.
    """
    key, status = job.metadata.key, job.status
    history = published.of_job(job) or event_history.JobHistory(job.metadata.uid)
    before, retries = history.phase, history.retry_count
    if not status.state.phase or (before, retries) == (status.state.phase, status.retry_count):
        return None
    at = status.state.last_transition_time or job.metadata.creation_timestamp
    if at is None:
        return None  # the API server sets the time of every object; only tests have none
    return batch.JobPhaseChanged(
        job=key,
        uid=job.metadata.uid,
        queue=job.spec.queue,
        before=before,
        after=status.state.phase,
        at=at,
        retry_count=status.retry_count,
        counts=batch.TaskCounts(
            pending=status.pending,
            running=status.running,
            succeeded=status.succeeded,
            failed=status.failed,
            terminating=status.terminating,
            unknown=status.unknown,
        ),
        reason=status.state.reason,
        message=status.state.message,
        object_version=job.metadata.version,
        user="" if before else job.metadata.annotation(keys.USER) or "",
        notify=job.metadata.annotation(keys.NOTIFY) or "",
    )


def _changed(
    job: batch_api.Job,
    pod: core.Pod,
    before: event_history.TaskRecord | None,
    state: str,
    gpu_type: Callable[[str], str],
    now: datetime,
) -> batch.TaskChanged:
    is_ending = before is not None and before.state == event_history.TERMINATING
    reason = (
        termination_causes.of(pod)
        or (before.reason if before and is_ending else "")
        or termination_causes.history_reason(pod)
    )
    task_record = event_history.record_of(
        pod, state, reason or ("" if before is None else before.reason)
    )
    return batch.TaskChanged(
        job=job.metadata.key,
        uid=job.metadata.uid,
        task=task_record.task,
        index=task_record.index,
        pod=task_record.pod,
        pod_uid=pod.metadata.uid,
        before="" if before is None else before.state,
        after=state,
        at=now,
        node=task_record.node,
        exit_code=termination_causes.exit_code(pod),
        retry_count=task_record.retry_count,
        version=task_record.version,
        attempt=task_record.attempt,
        reason=task_record.reason
        or (_ended_by(job, task_record) if state == event_history.TERMINATING else ""),
        devices=device_annotations.assigned_devices(pod.metadata.annotations)
        if pod.spec.node_name
        else {},
        created_at=pod.metadata.creation_timestamp if before is None else None,
        object_version=task_record.object_version,
        detail=termination_causes.detail(pod),
        requests=_requests(pod) if before is None else {},
        notify=(job.metadata.annotation(keys.NOTIFY) or "")
        if reason == termination_causes.PREEMPTED
        else "",
        gpu_type=gpu_type(task_record.node) if task_record.node else "",
    )


def _requests(pod: core.Pod) -> dict[str, int]:
    """The pod's requests; empty if a quantity is invalid, which no API server stores."""
    try:
        return quota.requests(pod.spec)
    except ValueError:
        return {}


def _gone(
    job: batch_api.Job, uid: str, task: event_history.TaskRecord, now: datetime
) -> batch.TaskChanged:
    end, last = task.end, task.last
    reason = "" if last is None else termination_causes.history_reason(last)
    return batch.TaskChanged(
        job=job.metadata.key,
        uid=job.metadata.uid,
        task=task.task,
        index=task.index,
        pod=task.pod,
        pod_uid=uid,
        before=task.state,
        after=end or event_history.GONE,
        at=now,
        node=task.node,
        retry_count=task.retry_count,
        version=task.version,
        attempt=task.attempt,
        created_at=None if task.state or last is None else last.metadata.creation_timestamp,
        reason=(reason or task.reason)[: event_history.LONGEST_TEXT]
        or ("" if end else _ended_by(job, task)),
        exit_code=termination_causes.exit_code(last) if last is not None and end else None,
        detail=("" if last is None else termination_causes.detail(last)) or task.detail,
    )


def _ended_by(job: batch_api.Job, task: event_history.TaskRecord) -> str:
    """Why a pod without a recorded cause was deleted: an action of its job, or a deletion."""
    state = job.status.state
    if state.phase in lifecycle.FINISHED:
        return (
            state.reason
            if state.reason == termination_causes.DEADLINE_EXCEEDED
            else f"Job{state.phase}"
        )
    if _is_past(job, task):
        return state.reason if state.phase in lifecycle.STOPPING else "Restarted"
    wanted = next((it.replicas for it in job.spec.tasks if it.name == task.task), None)
    if job.spec.array is None and wanted is not None and task.index >= wanted:
        return "ScaledDown"
    if job.spec.array is not None and task.index in _cancelled(job.spec.array.cancelled):
        return "Cancelled"
    return "Deleted"


@functools.lru_cache(maxsize=64)
def _cancelled(text: str) -> indexes.Indexes:
    """The cancelled indexes of an array; none if the text is invalid."""
    return indexes.Indexes() if indexes.problem(text) else indexes.parse(text)


def _is_past(job: batch_api.Job, pod: event_history.TaskRecord | batch.TaskChanged) -> bool:
    """Whether a restart of the pod's job, or of the pod's part of the job, ends the pod."""
    is_old = pod.version < job.status.version
    return is_old or partial_restarts.is_of_earlier_try(job, pod.task, pod.index, pod.retry_count)
