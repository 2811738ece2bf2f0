"""The history of published events: the last event of each job and pod on ``batch.events``.

Phases and pods are state of the cluster, so an event is due exactly when the cluster differs from
the last published state. Hence a crash between a write and its event loses no event, and a restart
repeats none. A job is removed once its deletion is published, so memory is bounded by live jobs.
"""

import functools
from array import array
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from stromboli.controller.core import (
    commands,
    lifecycle,
    manifests,
    partial_restarts,
    termination_causes,
)
from stromboli.shared import device_annotations, keys
from stromboli.shared.api import batch as batch_api
from stromboli.shared.api import core, meta
from stromboli.shared.formats import indexes
from stromboli.shared.jobspec import quota
from stromboli.shared.messages import batch

TERMINATING, GONE = "Terminating", "Gone"
OVER: frozenset[str] = frozenset({"Succeeded", "Failed", GONE})
"""Final states of a pod: no further event follows."""
_MOST_ATTEMPTS = 2**31
MOST_DEPARTURES = 10_000
"""Maximum number of deleted pods whose end is kept until their events are read. A standby reads
pods and events continuously, so these are the deletions of a few seconds."""
LONGEST_TEXT = 253
"""Maximum length in characters of a task's name and a reason in an event. Names of pods and nodes
are not longer, but annotations may be forged."""


class TaskRecord(msgspec.Struct, gc=False):
    """The last published state of a task's pod."""

    task: str
    index: int
    pod: str
    state: str
    node: str
    retry_count: int
    version: int
    attempt: int
    reason: str
    object_version: int
    detail: str = ""
    """Adds to ``reason``: the queue or job for which the pod was evicted."""
    last: core.Pod | None = None
    """The last version of a deleted pod, without its spec, if it says how the pod ended."""

    @property
    def end(self) -> str:
        """The final phase of a deleted pod that had ended by itself before; else empty."""
        return "" if self.last is None else termination_causes.end(self.last)


class JobHistory(msgspec.Struct):
    """The published state of one job (one uid)."""

    uid: str
    phase: str = ""
    retry_count: int = 0
    tasks: dict[str, TaskRecord] = msgspec.field(default_factory=dict)
    attempts: dict[str, "array[int]"] = msgspec.field(default_factory=dict)
    """Task -> the highest attempt of each index so far, 0 for none, including deleted pods. Takes
    four bytes for each index. It is cleared when the job finishes; later events of its pods are
    counted again in any phase, so that a replay of events gives the same history."""
    has_had_pods: bool = False
    object_version: int = 0
    """The resourceVersion of the job at the last published phase."""
    unsure: dict[str, TaskRecord] = msgspec.field(default_factory=dict)
    """Pods with an event whose append was not acknowledged: it may be on the topic."""

    def forget(self, uid: str) -> None:
        """Remove a pod that has ended and is deleted, so that the history of long-lived jobs does
        not grow."""
        self.tasks.pop(uid, None)
        self.unsure.pop(uid, None)

    def count(self, task: str, index: int, attempt: int) -> None:
        """Note that an event of this attempt was published."""
        self.has_had_pods = True
        if not 0 <= index < batch_api.MOST_PODS:
            return
        attempts = self.attempts.setdefault(task, array("I"))
        if index >= len(attempts):
            attempts.extend([0] * (index + 1 - len(attempts)))
        attempts[index] = max(attempts[index], min(max(attempt, 0), _MOST_ATTEMPTS))


class _Departure(NamedTuple):
    """A deleted pod, in the last version that the topic has of it."""

    job: str
    pod: core.Pod


class EventHistory:
    """The published state of each job, by key. Applying a message costs O(1)."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobHistory] = {}
        self._departures: OrderedDict[str, _Departure] | None = OrderedDict()
        """Pod uid -> how it ended, until all events of previous leaders are read: the pods'
        topic may be ahead of them. None afterwards."""
        self.loaded: dict[str, set[str]] = {}
        """Jobs with events of previous leaders, until it is verified that the cache is as new as
        these events. The values are the uids of the objects that were read to verify it."""

    def load(self, message: msgspec.Struct) -> None:
        """Apply an event of a previous leader."""
        self.observe(message)
        job = getattr(message, "job", "")
        if job in self.jobs:
            self.loaded.setdefault(job, set())
        else:
            self.loaded.pop(job, None)

    def restore(self, key: str, job: JobHistory) -> None:
        """Set the history of a job that previous leaders published."""
        self.jobs[key] = job
        self.loaded[key] = set()

    def clear(self) -> None:
        """Remove all jobs, before the events are read again."""
        self.jobs.clear()
        self.loaded.clear()

    def mark_looked_for(self, job: str, uid: str) -> None:
        """Note that the object (the job or one of its pods) was read, so the cache does not lag
        behind the events."""
        if job in self.loaded:
            self.loaded[job].add(uid)

    def observe(self, message: msgspec.Struct) -> None:
        """Apply one of our own events once its append is acknowledged."""
        match message:
            case batch.JobDeleted():
                history = self.jobs.get(message.job)
                if history is not None and history.uid == message.uid:
                    del self.jobs[message.job]
            case batch.JobPhaseChanged():
                history = self._of(message.job, message.uid)
                history.phase = message.after
                if history.phase in lifecycle.FINISHED:
                    history.attempts.clear()
                history.retry_count = message.retry_count
                history.object_version = message.object_version
            case batch.TaskChanged():
                self._observe_task(message)
            case _:
                pass

    def expect(self, message: msgspec.Struct) -> None:
        """Note one of our own events whose append was not acknowledged. The event remains due: even
        if its object is deleted before the event is published, the deletion is published."""
        match message:
            case batch.JobPhaseChanged():
                self._of(message.job, message.uid)
            case batch.TaskChanged() if message.after != GONE:
                history = self._of(message.job, message.uid)
                history.unsure[message.pod_uid] = _count(history, message)
            case _:
                pass

    def of_job(self, job: batch_api.Job) -> JobHistory | None:
        """What was published about the job; None if nothing was, or only about an earlier job of
        its name."""
        history = self.jobs.get(job.metadata.key)
        return history if history is not None and history.uid == job.metadata.uid else None

    def attempts(self, job: batch_api.Job, task: str, index: int) -> int:
        """The number of attempts of this task and index that were published."""
        history = self.of_job(job)
        if history is None:
            return 0
        attempts = history.attempts.get(task, ())
        return attempts[index] if index < len(attempts) else 0

    def pods_of_job(self, job: batch_api.Job) -> Iterator[tuple[str, str]]:
        """Uid and name of each pod of the job with an event that was, or may have been,
        published."""
        history = self.of_job(job)
        if history is not None:
            for uid, task in (history.unsure | history.tasks).items():
                yield uid, task.pod

    def departed(self, job: batch_api.Job) -> Iterator[core.Pod]:
        """The deleted pods of the job, without their specs, that had ended by themselves before, as
        long as their end is not published. O(published pods)."""
        history = self.of_job(job) or JobHistory(job.metadata.uid)
        for task in (history.unsure | history.tasks).values():
            if task.last is not None and task.end and task.state not in OVER:
                yield task.last

    def note_departure(self, job: str | None, gone: meta.Object) -> None:
        """Record how a deleted pod ended, in case no reconcile has observed it."""
        if not job or not isinstance(gone, core.Pod):
            return
        if not termination_causes.of(gone) and not termination_causes.end(gone):
            return
        uid = gone.metadata.uid
        departure = _Departure(job, msgspec.structs.replace(gone, spec=core.PodSpec()))
        if self._departures is None:
            self._set_end(uid, departure)
            return
        self._departures[uid] = departure
        if len(self._departures) > MOST_DEPARTURES:
            self._departures.popitem(last=False)

    def finish_loading(self) -> None:
        """Note that all events of previous leaders are applied. Records how those pods ended that
        were deleted before their events were read."""
        departures, self._departures = self._departures, None
        for uid, departure in (departures or {}).items():
            self._set_end(uid, departure)

    def _set_end(self, uid: str, departure: _Departure) -> None:
        history = self.jobs.get(departure.job)
        task = None if history is None else history.tasks.get(uid) or history.unsure.get(uid)
        if task is not None:
            task.last = departure.pod

    def _observe_task(self, message: batch.TaskChanged) -> None:
        history = self._of(message.job, message.uid)
        history.unsure.pop(message.pod_uid, None)
        task = _count(history, message)
        if message.after in OVER and self._departures:
            self._departures.pop(message.pod_uid, None)
        if message.after == GONE:
            history.tasks.pop(message.pod_uid, None)
        else:
            history.tasks[message.pod_uid] = task

    def _of(self, job: str, uid: str) -> JobHistory:
        history = self.jobs.get(job)
        if history is None or history.uid != uid:
            history = self.jobs[job] = JobHistory(uid)
        return history


def _count(history: JobHistory, message: batch.TaskChanged) -> TaskRecord:
    """The record of the pod as published; also counts its attempt."""
    history.count(message.task, message.index, message.attempt)
    return TaskRecord(
        message.task,
        message.index,
        message.pod,
        message.after,
        message.node,
        message.retry_count,
        message.version,
        message.attempt,
        message.reason,
        message.object_version,
        message.detail,
    )


def state_of(pod: core.Pod, *, is_terminating: bool = False) -> str:
    """The state of a pod in events: ``Pending``, ``Bound``, ``Running``, ``Terminating`` or
    final."""
    if is_terminating and pod.status.phase not in OVER:
        return TERMINATING
    if pod.status.phase in ("", "Pending"):
        return "Bound" if pod.spec.node_name else "Pending"
    return pod.status.phase


def due_departure(published: EventHistory, key: str, uid: str, now: datetime) -> commands.Stage:
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
    published: EventHistory,
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
    history = published.of_job(job) or JobHistory(job.metadata.uid)
    changed, gone = [], []
    for uid, pod in unsettled:
        before = history.tasks.get(uid)
        if pod is not None:
            state = state_of(pod, is_terminating=is_terminating(pod))
            if before is None or (before.state != state and before.state not in OVER):
                changed.append(_changed(job, pod, before, state, gpu_type, now))
            else:
                settle(uid)
            continue
        before = before or history.unsure.get(uid)
        if before is None or before.state in OVER:
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
        and (history.after == GONE or history.pod_uid in interrupted)
        and not _is_past(job, history)
    )


def due_phase(published: EventHistory, job: batch_api.Job) -> batch.JobPhaseChanged | None:
    """The event for a phase that was not published yet.

    The event is a function of the job alone, so repeated events have the same content.
    """
    key, status = job.metadata.key, job.status
    history = published.of_job(job) or JobHistory(job.metadata.uid)
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
    before: TaskRecord | None,
    state: str,
    gpu_type: Callable[[str], str],
    now: datetime,
) -> batch.TaskChanged:
    is_ending = before is not None and before.state == TERMINATING
    reason = (
        termination_causes.of(pod)
        or (before.reason if before and is_ending else "")
        or termination_causes.history_reason(pod)
    )
    task_record = TaskRecord(
        (pod.metadata.annotation(keys.TASK_SPEC) or "")[:LONGEST_TEXT],
        manifests.number(pod.metadata.annotation(keys.TASK_INDEX)),
        pod.metadata.name,
        state,
        pod.spec.node_name,
        manifests.number(pod.metadata.annotation(keys.JOB_RETRY_COUNT)),
        manifests.version_of(pod),
        manifests.attempt_of(pod),
        (reason or ("" if before is None else before.reason))[:LONGEST_TEXT],
        pod.metadata.version,
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
        reason=task_record.reason or (_ended_by(job, task_record) if state == TERMINATING else ""),
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


def _gone(job: batch_api.Job, uid: str, task: TaskRecord, now: datetime) -> batch.TaskChanged:
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
        after=end or GONE,
        at=now,
        node=task.node,
        retry_count=task.retry_count,
        version=task.version,
        attempt=task.attempt,
        reason=(reason or task.reason)[:LONGEST_TEXT] or ("" if end else _ended_by(job, task)),
        exit_code=termination_causes.exit_code(last) if last is not None and end else None,
        detail=("" if last is None else termination_causes.detail(last)) or task.detail,
    )


def _ended_by(job: batch_api.Job, task: TaskRecord) -> str:
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


def _is_past(job: batch_api.Job, pod: TaskRecord | batch.TaskChanged) -> bool:
    """Whether a restart of the pod's job, or of the pod's part of the job, ends the pod."""
    is_old = pod.version < job.status.version
    return is_old or partial_restarts.is_of_earlier_try(job, pod.task, pod.index, pod.retry_count)
