"""The history of published events: the last event of each job and pod on ``batch.events``.

Phases and pods are state of the cluster, so an event is due exactly when the cluster differs from
the last published state. Hence a crash between a write and its event loses no event, and a restart
repeats none. A job is removed once its deletion is published, so memory is bounded by live jobs.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from stromboli.controller.core import (
    lifecycle,
    manifests,
    termination_causes,
)
from stromboli.shared import keys
from stromboli.shared.api import batch as batch_api
from stromboli.shared.api import core, meta
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

    def lacks(self, pod: core.Pod) -> bool:
        """Whether the pod ended by itself as an attempt of the unfinished job of which no event was
        published: its controller was stopped, or created further pods, until it was deleted."""
        task = pod.metadata.annotation(keys.TASK_SPEC) or ""
        index = manifests.number(pod.metadata.annotation(keys.TASK_INDEX))
        attempts = self.attempts.get(task, ())
        return (
            self.phase not in lifecycle.FINISHED
            and manifests.is_owned(pod, self.uid)
            and bool(termination_causes.end(pod))
            and manifests.attempt_of(pod) > (attempts[index] if index < len(attempts) else 0)
        )

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
        if history is None:
            return
        task = history.tasks.get(uid) or history.unsure.get(uid)
        if task is None and history.lacks(departure.pod):
            task = history.unsure[uid] = record_of(departure.pod, state="")
            history.count(task.task, task.index, task.attempt)
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


def record_of(pod: core.Pod, state: str, reason: str = "") -> TaskRecord:
    """The record of a pod in this state."""
    return TaskRecord(
        (pod.metadata.annotation(keys.TASK_SPEC) or "")[:LONGEST_TEXT],
        manifests.number(pod.metadata.annotation(keys.TASK_INDEX)),
        pod.metadata.name,
        state,
        pod.spec.node_name,
        manifests.number(pod.metadata.annotation(keys.JOB_RETRY_COUNT)),
        manifests.version_of(pod),
        manifests.attempt_of(pod),
        reason[:LONGEST_TEXT],
        pod.metadata.version,
    )
