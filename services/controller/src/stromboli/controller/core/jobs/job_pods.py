"""The pods of one job with the values that its rules need, updated incrementally.

A job of 100,000 pods changes a few pods at a time, so a reconcile must not walk all of them. The
values are derived from the pod, from whether it is being deleted, and from the job's *derivation
inputs*: the fields of its spec and status that determine which pods it requires. Invariants:

1. After ``refresh``, all values equal the values of a new ``JobPods``, which walks over all pods;
   tests compare both after each step.
2. A change of a pod costs O(log pods). A change of the derivation inputs costs one walk over the
   pods, O(pods + replicas). The inputs of a job change with its version, a partial restart, and its
   spec. The inputs of an array also change with each result; a walk over an array is as long as its
   window.
3. A pod is *unsettled* until its published state equals its current state: only unsettled pods are
   compared. Publishing changes nothing else here.
"""

from collections.abc import Container, Iterator
from typing import Any

import msgspec

from stromboli.controller.core import lifecycle, manifests
from stromboli.controller.core.jobs import policy_events
from stromboli.controller.core.ordered_set import LeastFirst
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import arrays, tasks
from stromboli.shared import keys
from stromboli.shared.api import batch, core
from stromboli.shared.api.batch import Job

MOST_RELEASED = 16
"""The pods of a finished job up to which its values are dropped: deriving them takes 0.5 ms."""


class _DerivationInputs(msgspec.Struct, frozen=True):
    """Fields of a job from which the values of its pods are derived."""

    spec: batch.JobSpec
    version: int
    stopping: tuple[str, str]
    retries: tuple[int, int]
    restarted: batch.RestartedTasks | None
    array: batch.ArrayStatus | None


def _derivation_inputs(job: Job) -> _DerivationInputs:
    status = job.status
    phase = status.state.phase
    is_stopping = phase in lifecycle.STOPPING
    return _DerivationInputs(
        spec=job.spec,
        version=status.version,
        stopping=(phase, status.state.reason) if is_stopping else ("", ""),
        retries=(status.retry_count, status.asked_retries),
        restarted=status.restarted,
        array=status.array,
    )


class _Pod(msgspec.Struct, frozen=True, gc=False):
    """The derived values of one pod."""

    pod: core.Pod
    field: str
    task: str
    phase: str
    is_to_delete: bool
    policy_event: policy_events.PolicyEvent | None
    current_task: str
    """The pod's task; empty if the pod is of an earlier attempt."""
    succeeded_task: str
    """The pod's task if it has succeeded; a pod that a resumed job kept counts, too."""
    restarts: int


class _PodCounts:
    """The numbers of pods by counter of the status, and by task and phase."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(tasks.COUNTERS, 0)
        self.by_task: dict[str, dict[str, int]] = {}

    def add(self, pod: _Pod, sign: int) -> None:
        if not pod.field:
            return
        self.counts[pod.field] += sign
        if not pod.phase:
            return
        phases = self.by_task.setdefault(pod.task, {})
        phases[pod.phase] = phases.get(pod.phase, 0) + sign
        if not phases[pod.phase]:
            del phases[pod.phase]
            if not phases:
                del self.by_task[pod.task]

    def tally(self, unknown: int) -> tasks.Tally:
        counts = {**self.counts, "unknown": self.counts["unknown"] + unknown}
        by_task = {name: dict(phases) for name, phases in self.by_task.items()}
        return tasks.Tally(**counts, by_task=by_task, array=None)


class JobPods:
    """The pods of one job with derived values; ``refresh`` creates and updates it."""

    def __init__(self, cache: controller_cache.ControllerCache, job: Job) -> None:
        self._cache = cache
        self._job = job
        self._basis = _derivation_inputs(job)
        self._known: dict[str, _Pod] = {}
        self._kept = _PodCounts()
        self._succeeded: dict[str, int] = {}
        self._newly_succeeded: dict[str, int] = {}
        self._restarts: dict[str, int] = {}
        self._policy_events: dict[str, policy_events.PolicyEvent] = {}
        self._pending: dict[str, policy_events.PolicyEvent] = {}
        self._rejected: set[str] = set()
        self._members = tasks.Members(job)
        self._missing = {task.name: LeastFirst[tuple[int]]() for task in tasks.specs(job)}
        self._to_delete: LeastFirst[tuple[int, str]] = LeastFirst()
        self._retained: Container[str] = ()
        self._unsettled: dict[str, str] = {}
        self._departed: tuple[core.Pod, ...] = ()
        self._rebuild()

    # Reads

    @property
    def pods(self) -> list[core.Pod]:
        """All pods, by name. O(pods log pods)."""
        return [self._known[key].pod for key in sorted(self._known)]

    @property
    def current(self) -> list[core.Pod]:
        """Pods of the current attempt, by name. O(pods log pods)."""
        return [pod for pod in self.pods if not tasks.is_of_earlier_try(self._job, pod)]

    @property
    def counts(self) -> tasks.Tally:
        """The counts of all pods for the status; a pod that has to be deleted counts as
        terminating. O(tasks); of an array O(pods)."""
        kept = self.kept
        if self._job.spec.array is None:
            return msgspec.structs.replace(
                kept, terminating=kept.terminating + len(self._to_delete)
            )
        pods = [it.pod for it in self._known.values()]
        tally = tasks.count_pods(self._cache, self._job, [*pods, *self._departed])
        ending = [it for it in self._known.values() if it.is_to_delete]
        going = sum(not tasks.has_finished(it.pod) for it in ending)
        counted = msgspec.structs.replace(kept, terminating=kept.terminating + going)
        return tasks.with_progress(self._job, counted, tally.array)

    @property
    def kept(self) -> tasks.Tally:
        """The counts of pods, except those that have to be deleted."""
        if self._job.spec.array is None:
            return self._kept.tally(tasks.unreadable(self._cache, self._job, self._members))
        pods = [it.pod for it in self._known.values() if not it.is_to_delete]
        return tasks.count_pods(self._cache, self._job, [*pods, *self._departed])

    @property
    def to_delete(self) -> int:
        """How many pods have to be deleted and are not being deleted yet."""
        return len(self._to_delete)

    def first_to_delete(self, most: int) -> list[core.Pod]:
        """Pods that have to be deleted, the highest index first, since a task is scaled down from
        its end."""
        return [self._known[key].pod for _, key in self._to_delete.first(most)]

    def missing(self, task: str, most: int) -> list[tasks.Member]:
        """The missing pods of a task with the lowest indexes, at most ``most``. O(most)."""
        first = self._missing[task].first(most)
        return [self._members.member(task, index) for (index,) in first]

    def policy_events(self, *, with_pending: bool) -> Iterator[policy_events.PolicyEvent]:
        """Policy events of pods of the current attempt, by name. ``with_pending``: include the
        events of pending pods, which may be all pods."""
        events_by_name = (
            self._policy_events | self._pending if with_pending else self._policy_events
        )
        for name in sorted(events_by_name):
            yield events_by_name[name]

    @property
    def has_rejected(self) -> bool:
        """Whether a node rejected the placement of a pod of the current attempt."""
        return bool(self._rejected)

    def succeeded_count(self, task: str) -> int:
        """How many pods of a task have succeeded, including those that a resumed job kept. 0 while
        none of them is of the current attempt: policies have already reacted to the others."""
        return self._succeeded.get(task, 0) if self._newly_succeeded.get(task) else 0

    def restarts(self, task: str) -> int:
        """How often containers of the task's current attempt were restarted."""
        return self._restarts.get(task, 0)

    def unsettled(self) -> Iterator[tuple[str, core.Pod | None]]:
        """Pairs of a uid and the pod, for pods that may differ from their published state, by name.
        None: the pod is deleted."""
        for uid, key in sorted(self._unsettled.items(), key=lambda pair: pair[::-1]):
            known = self._known.get(key)
            yield uid, known.pod if known is not None and known.pod.metadata.uid == uid else None

    def unrecorded(self) -> frozenset[str]:
        """Uids of pods whose index has a result that the array's status does not record yet. Empty
        for a finished job, whose status does not change. O(pods) of an array."""
        if self._job.spec.array is None or self._job.status.state.phase in lifecycle.FINISHED:
            return frozenset()
        pods = (*(it.pod for it in self._known.values()), *self._departed)
        return frozenset(it.metadata.uid for it in arrays.unrecorded(self._job, pods))

    def is_settled(self, most: int) -> bool:
        """Whether no pod is unsettled or has to be deleted, and there are at most ``most`` pods."""
        return not self._unsettled and not self._to_delete and len(self._known) <= most

    def settle(self, uid: str) -> None:
        """Note that the published state of the pod is its current state."""
        self._unsettled.pop(uid, None)

    def asks_for(self, name: str) -> bool:
        """Whether the job requires a pod of this name."""
        return self._members.of(name) is not None

    # Updates

    def follow(self, job: Job, changed: list[str]) -> None:
        """Update the values for the current job and the pods that changed."""
        basis = _derivation_inputs(job)
        self._job = job
        if basis == self._basis and not self._depends_on_all(changed):
            for key in changed:
                self._update(key)
            return
        self._basis = basis
        self._members = tasks.Members(job)
        self._rebuild()

    def _depends_on_all(self, changed: list[str]) -> bool:
        """Whether values of more than the changed pods may differ: in an array, the finished pods
        to retain are chosen among all pods, and a deleted pod counts until its end is published."""
        if self._job.spec.array is None:
            return False
        return bool(changed) or self._departed != self._departures()

    def _departures(self) -> tuple[core.Pod, ...]:
        return tuple(self._cache.published.departed(self._job))

    def _rebuild(self) -> None:
        job, cache = self._job, self._cache
        self._kept = _PodCounts()
        self._succeeded, self._newly_succeeded, self._restarts = {}, {}, {}
        self._policy_events, self._pending = {}, {}
        self._rejected = set()
        self._to_delete = LeastFirst()
        pods = cache.pods_of(job)
        self._retained = arrays.kept(job, [it for it in pods if not cache.is_terminating(it)])
        known = {pod.metadata.key: self._derive(pod) for pod in pods}
        there = {pod.metadata.name for pod in pods}
        if job.spec.array is not None:
            # A deleted pod with a result that is not recorded yet must not be created again.
            self._departed = self._departures()
            there |= {it.metadata.name for it in arrays.unrecorded(job, self._departed)}
        self._missing = self._members.missing(there)
        self._known = {}
        for key, entry in known.items():
            self._put(key, entry)
        for pod in pods:
            self._unsettled[pod.metadata.uid] = pod.metadata.key
        for published_uid, name in cache.published.pods_of_job(job):
            self._unsettled[published_uid] = f"{job.metadata.namespace}/{name}"

    def _update(self, key: str) -> None:
        before = self._known.pop(key, None)
        if before is not None:
            self._take(key, before)
            self._unsettled[before.pod.metadata.uid] = key
        pod = self._cache.pod(key)
        name = key.rpartition("/")[2]
        member = self._members.of(name)
        is_mine = pod is not None and self._job.metadata.controls(pod.metadata)
        if pod is None or not is_mine or pod.metadata.label(keys.TOOL) is not None:
            if member is not None:
                self._missing[member.task.name].add((member.index,))
            return
        if member is not None:
            self._missing[member.task.name].discard((member.index,))
        self._put(key, self._derive(pod))
        self._unsettled[pod.metadata.uid] = key

    def _put(self, key: str, pod: _Pod) -> None:
        self._known[key] = pod
        self._count(pod, 1)
        if pod.is_to_delete:
            self._to_delete.add(_rank(pod.pod))
        if pod.policy_event is not None:
            is_pending = pod.policy_event.events[0] == policy_events.POD_PENDING
            into = self._pending if is_pending else self._policy_events
            into[pod.pod.metadata.name] = pod.policy_event
            if pod.policy_event.is_node_rejection:
                self._rejected.add(pod.pod.metadata.name)

    def _take(self, key: str, pod: _Pod) -> None:
        self._count(pod, -1)
        if pod.is_to_delete:
            self._to_delete.discard(_rank(pod.pod))
        self._policy_events.pop(pod.pod.metadata.name, None)
        self._pending.pop(pod.pod.metadata.name, None)
        self._rejected.discard(pod.pod.metadata.name)

    def _count(self, pod: _Pod, sign: int) -> None:
        if not pod.is_to_delete:
            self._kept.add(pod, sign)
        task = pod.current_task
        if pod.succeeded_task:
            counted = (self._succeeded, self._newly_succeeded) if task else (self._succeeded,)
            for count in counted:
                count[pod.succeeded_task] = count.get(pod.succeeded_task, 0) + sign
        if pod.restarts:
            self._restarts[task] = self._restarts.get(task, 0) + sign * pod.restarts

    def _derive(self, pod: core.Pod) -> _Pod:
        job, cache = self._job, self._cache
        is_terminating = cache.is_terminating(pod)
        member = self._members.of(pod.metadata.name)
        is_current = member is not None and not policy_events.is_of_earlier_attempt(job, pod)
        policy_event = None
        if member is not None and is_current:
            policy_event = policy_events.of_pod(pod, member, is_terminating=is_terminating)
        has_result = is_current or (
            # A terminating pod of an earlier attempt is in the way of the next one.
            member is not None and not is_terminating and not tasks.is_of_earlier_try(job, pod)
        )
        field, task, phase = tasks.counted(pod, is_terminating=is_terminating)
        return _Pod(
            pod=pod,
            field=field,
            task=task,
            phase=phase,
            is_to_delete=not is_terminating
            and tasks.is_to_delete(job, pod, member, self._retained),
            policy_event=policy_event,
            current_task=member.task.name if member is not None and is_current else "",
            succeeded_task=member.task.name
            if member is not None and has_result and pod.status.phase == "Succeeded"
            else "",
            restarts=policy_events.container_restarts(pod)
            if is_current and not is_terminating
            else 0,
        )


def refresh(cache: controller_cache.ControllerCache, job: Job) -> JobPods:
    """The pods of the job, updated to the cache. O(changes since the last call); of an array O(pods
    with events), since a deleted pod counts only until its end is published."""
    owner = job.metadata.owner_key
    known: Any = cache.derived.get(owner)
    changed = cache.take_changed(job)
    if known is None:
        known = cache.derived[owner] = JobPods(cache, job)
    else:
        known.follow(job, sorted(changed))
    job_pods: JobPods = known
    return job_pods


def release_finished(cache: controller_cache.ControllerCache, job: Job, pods: JobPods) -> None:
    """Drop the values of a finished job without work: they take 3 kB per job, and most jobs of a
    cluster have finished. A later change derives them again, in O(pods); so those of a job with
    many pods, which are deleted one by one, are kept until the job is deleted."""
    if job.status.state.phase in lifecycle.FINISHED and pods.is_settled(MOST_RELEASED):
        cache.derived.pop(job.metadata.owner_key, None)


def status_ending_pods(
    cache: controller_cache.ControllerCache, job: Job, status: batch.JobStatus
) -> batch.JobStatus:
    """The status of a transition. Pods that the transition ends count as terminating, since they
    are deleted once the status is written. O(pods)."""
    if status.state.phase not in lifecycle.STOPPING:
        return status
    after = JobPods(cache, msgspec.structs.replace(job, status=status))
    return tasks.status_with(status, after.counts, tasks.min_available(job))


def _rank(pod: core.Pod) -> tuple[int, str]:
    return -manifests.number(pod.metadata.annotation(keys.TASK_INDEX)), pod.metadata.key
