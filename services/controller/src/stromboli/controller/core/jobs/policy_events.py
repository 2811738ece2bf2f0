"""The policy events of a job: occurrences to which its policies may react now.

Events are derived from the difference between the pods and their published states, never from a
single message, so that a crash loses none. Only pods of the current attempt count: events of pods
of earlier attempts are handled by the restart. Source: Volcano's job controller.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import msgspec

from stromboli.controller.core import manifests, partial_restarts, termination_causes
from stromboli.controller.core.pod_groups import pod_groups
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.controller.core.tasks import tasks
from stromboli.shared import node_rejections
from stromboli.shared.api import core, scheduling
from stromboli.shared.api.batch import Job
from stromboli.shared.formats import durations

DEFAULT_TASK_RETRY = 3
POD_PENDING = "PodPending"


class PolicyEvent(msgspec.Struct, frozen=True):
    """An occurrence that a policy may name by any of ``events``.

    ``task`` is empty for the job as a whole, ``index`` None for a task as a whole. ``since``: when
    the occurrence began, if the object records that. ``by_any``: whether ``*`` matches it, too.

    ``attempt`` and ``created_at`` are set for a pod that failed by itself or was rejected by its
    node; its default back-off follows from them. ``attempt`` is 0 for a pod that was disrupted.
    ``detail``: the job or queue for which a pod was evicted.
    """

    events: tuple[str, ...]
    task: str = ""
    pod: str = ""
    index: int | None = None
    exit_code: int | None = None
    since: datetime | None = None
    by_any: bool = True
    is_node_rejection: bool = False
    attempt: int = 0
    created_at: datetime | None = None
    detail: str = ""

    @property
    def is_deadline(self) -> bool:
        """Whether this is the end of the job's time limit, not the end of a pod's time limit."""
        return self.events[:1] == (termination_causes.DEADLINE_EXCEEDED,) and not self.pod

    def description(self) -> str:
        """The event as text for messages: ``PodFailed of j1-worker-0, OOMKilled, exit code
        137``."""
        whose = self.pod or (f"task {self.task}" if self.task else "")
        first = f"{self.events[0]} of {whose}" if whose else self.events[0]
        code = () if self.exit_code is None else (f"exit code {self.exit_code}",)
        detail = (self.detail,) if self.detail else ()
        return ", ".join((first, *self.events[1:], *code, *detail))


class Pods(Protocol):
    """The interface to the pods of a job: ``job_pods.JobPods``."""

    def policy_events(self, *, with_pending: bool) -> Iterator[PolicyEvent]:
        """Policy events of pods of the current attempt, by name."""

    def unsettled(self) -> Iterator[tuple[str, core.Pod | None]]:
        """Pairs of a uid and the pod, for pods that may differ from their published state. None:
        the pod is deleted."""

    @property
    def has_rejected(self) -> bool:
        """Whether a node rejected the placement of a pod of the current attempt."""

    def asks_for(self, name: str) -> bool:
        """Whether the job requires a pod of this name."""

    def succeeded_count(self, task: str) -> int:
        """How many pods of a task have succeeded, including those that a resumed job kept; 0 while
        none of the current attempt has."""

    def restarts(self, task: str) -> int:
        """How often containers of the task's current attempt were restarted."""


def collect(
    cache: controller_cache.ControllerCache,
    job: Job,
    pods: Pods,
    group: scheduling.PodGroup | None,
    now: datetime,
    *,
    with_pending: bool = True,
) -> Iterator[PolicyEvent]:
    """All policy events: of pods by name, of deleted and terminating pods, of tasks, the PodGroup,
    and the deadline.

    O(policy events). ``with_pending``: also events of pending pods, which may be all pods.
    """
    yield from pods.policy_events(with_pending=with_pending)
    for _, record in _vanished(cache, job, pods):
        policy_event = _of_vanished(job, record) if pods.asks_for(record.pod) else None
        if policy_event is not None:
            yield policy_event
    for pod in interrupted(cache, job, pods):
        policy_event = _of_interrupted(job, pod)
        if policy_event is not None:
            yield policy_event
    for task in tasks.specs(job):
        if job.spec.array is None and 0 < task.replicas <= pods.succeeded_count(task.name):
            yield PolicyEvent(("TaskCompleted",), task.name)
        limit = task.max_retry or DEFAULT_TASK_RETRY
        if 0 <= limit <= pods.restarts(task.name):
            yield PolicyEvent(("TaskFailed",), task.name)
    if (
        group is not None
        and group.status.phase == "Unknown"
        and not pod_groups.is_of_earlier_version(job, group)
    ):
        yield PolicyEvent(("Unknown",))
    if is_overdue(job, now):
        yield PolicyEvent((termination_causes.DEADLINE_EXCEEDED,), by_any=False)


def is_overdue(job: Job, now: datetime) -> bool:
    """Whether the job's deadline has passed."""
    at = deadline(job)
    return at is not None and now >= at


def deadline(job: Job) -> datetime | None:
    """The end of the job's time limit, by its current spec; None before the first start."""
    since, limit = job.status.started_at, job.spec.active_deadline_seconds
    return None if since is None or limit is None else durations.later(since, limit)


def is_of_earlier_attempt(job: Job, pod: core.Pod) -> bool:
    """Whether a pod belongs to an earlier attempt of the job."""
    return manifests.version_of(pod) != job.status.version or tasks.is_of_earlier_try(job, pod)


def of_pod(pod: core.Pod, member: tasks.Member, *, is_terminating: bool) -> PolicyEvent | None:
    """The policy event of a pod of the current attempt, if any."""
    cause = _named(termination_causes.of(pod))
    events: tuple[str, ...]
    code, since, by_any = None, None, True
    if is_terminating:
        if tasks.has_finished(pod):
            return None
        events = ("PodEvicted", *cause)
    elif pod.status.phase == "Failed":
        events, code = ("PodFailed", *cause), termination_causes.first_exit_code(pod)
    elif pod.status.phase == "Unknown":
        # The kubelet does not respond; only a policy that names NodeLost applies.
        events, by_any = cause, False
    elif pod.status.phase in ("", "Pending"):
        events, since = (POD_PENDING,), pod.metadata.creation_timestamp
    else:
        return None
    policy_event = PolicyEvent(
        events,
        member.task.name,
        pod.metadata.name,
        member.index,
        code,
        since,
        by_any,
        detail=termination_causes.detail(pod),
    )
    if events[0] != "PodFailed" or termination_causes.FROM_OUTSIDE & set(cause):
        return policy_event  # its next attempt starts without back-off
    return msgspec.structs.replace(
        policy_event,
        is_node_rejection=node_rejections.is_rejected(pod),
        attempt=manifests.attempt_of(pod),
        created_at=pod.metadata.creation_timestamp,
    )


def _named(cause: str) -> tuple[str, ...]:
    return (cause,) if cause in termination_causes.CAUSES else ()


def interrupted(
    cache: controller_cache.ControllerCache, job: Job, pods: Pods
) -> Iterator[core.Pod]:
    """Pods of the current attempt that ended while they were being deleted, until their end is
    published. If such a pod ends quickly, or while no controller runs, its deletion is not observed
    before its end. O(pods that may differ from their published state).
    """
    record = cache.published.of_job(job)
    published = {} if record is None else record.tasks
    for uid, pod in pods.unsettled():
        if pod is None or not cache.is_terminating(pod) or not tasks.has_finished(pod):
            continue
        before = published.get(uid)
        if before is not None and before.state in event_history.OVER:
            continue
        if pods.asks_for(pod.metadata.name) and not is_of_earlier_attempt(job, pod):
            yield pod


def _of_interrupted(job: Job, pod: core.Pod) -> PolicyEvent | None:
    """The event of a pod that ended while it was being deleted. Like a deleted pod, it was evicted,
    unless its termination cause shows that it failed by itself. None for a pod that succeeded by
    itself, since it may have been deleted after its end."""
    member, cause = tasks.Members(job).of(pod.metadata.name), termination_causes.of(pod)
    if member is None or termination_causes.has_succeeded(pod):
        return None
    is_evicted = cause not in termination_causes.CAUSES - termination_causes.FROM_OUTSIDE
    return PolicyEvent(
        ("PodEvicted" if is_evicted else "PodFailed", *_named(cause)),
        member.task.name,
        pod.metadata.name,
        member.index,
        None if is_evicted else termination_causes.first_exit_code(pod),
        detail=termination_causes.detail(pod),
    )


def unobserved_ends(
    cache: controller_cache.ControllerCache, job: Job, pods: Pods
) -> frozenset[str]:
    """Uids of pods of the current attempt that ended while they were being deleted, or are gone, as
    long as their end is not published."""
    ended = (pod.metadata.uid for pod in interrupted(cache, job, pods))
    return frozenset((*ended, *(uid for uid, _ in _vanished(cache, job, pods))))


def _of_vanished(job: Job, record: event_history.TaskRecord) -> PolicyEvent | None:
    """The event of a deleted pod: it failed by itself before, if its last version shows that, else
    it was evicted. A pod that its node rejected is placed again without an event."""
    last, member = record.last, tasks.Members(job).of(record.pod)
    if last is not None and member is not None and record.end:
        is_rejected = node_rejections.is_rejected(last)
        return None if is_rejected else of_pod(last, member, is_terminating=False)
    cause = record.reason if last is None else termination_causes.of(last) or record.reason
    detail = "" if last is None else termination_causes.detail(last)
    return PolicyEvent(
        ("PodEvicted", *_named(cause)),
        record.task,
        record.pod,
        record.index,
        detail=detail or record.detail,
    )


def _vanished(
    cache: controller_cache.ControllerCache, job: Job, pods: Pods
) -> Iterator[tuple[str, event_history.TaskRecord]]:
    """Deleted pods of the current attempt, with their uids, whose last published state was not
    final. Pods that had succeeded before their deletion are left out. O(pods that may differ from
    their published state).
    """
    record = cache.published.of_job(job)
    if record is None:
        return
    unreadable = cache.unknown_pods()
    for uid in sorted(uid for uid, pod in pods.unsettled() if pod is None):
        task = record.tasks.get(uid)
        if task is None or f"{job.metadata.namespace}/{task.pod}" in unreadable:
            continue
        if task.state in event_history.OVER or task.end == "Succeeded":
            continue
        if task.version != job.status.version:
            continue
        if task.last is not None and tasks.is_of_earlier_try(job, task.last):
            continue  # a failed attempt of an index that is counted
        if not partial_restarts.is_of_earlier_try(job, task.task, task.index, task.retry_count):
            yield uid, task


def container_restarts(pod: core.Pod) -> int:
    """How often the containers of a running or pending pod were restarted."""
    if pod.status.phase not in ("Running", "Pending", ""):
        return 0
    every = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return sum(status.restart_count for status in every)
