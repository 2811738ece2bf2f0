"""What holds at every write, whatever has happened before."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from stromboli.controller.core import (
    lifecycle,
    manifests,
    partial_restarts,
    reconcilers,
    termination_causes,
)
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import batch, core, scheduling
from stromboli.shared.formats import indexes
from stromboli.shared.jobspec import gangs
from stromboli.shared.messages import batch as messages


def check_life(before: batch.JobStatus, job: batch.Job) -> None:
    """Every phase is reached by a move of the table, the end stays as it is, and tries stay
    within their budget."""
    after = job.status
    if before.state.phase != after.state.phase:
        moves = {
            move.to for (phase, _), move in lifecycle.TABLE.items() if phase == before.state.phase
        }
        assert after.state.phase in moves, (before, after)
    if before.state.phase in lifecycle.FINISHED:
        assert _result(before) == _result(after)
    assert before.version <= after.version
    assert before.retry_count <= after.retry_count
    assert before.asked_retries <= after.asked_retries
    assert after.retry_count - after.asked_retries <= (job.spec.max_retry or 3)
    for task, policies in (
        ("", job.spec.policies),
        *((task.name, task.policies) for task in tasks.specs(job)),
    ):
        for at, policy in enumerate(policies):
            if policy.max_retries is not None:
                assert after.policy_retries.get(f"{task}/{at}", 0) <= policy.max_retries


def _result(status: batch.JobStatus) -> tuple[object, ...]:
    ended = [
        (name, phase, count)
        for name, state in status.task_status_count.items()
        for phase, count in state.phase.items()
        if phase in tasks.FINISHED_PODS
    ]
    return status.succeeded, status.failed, status.array, sorted(ended)


def check_reported(objects: Mapping[tuple[str, str], Any], message: msgspec.Struct) -> None:
    """No existing object is published as deleted. A pod that lost its owner, or became a debug
    tool, is deleted for its job.
    """
    alive = {body["metadata"]["uid"]: body["metadata"] for body in objects.values()}
    if isinstance(message, messages.TaskChanged) and message.after == "Gone":
        there = alive.get(message.pod_uid, {})
        owners = [owner["uid"] for owner in there.get("ownerReferences", ())]
        assert message.uid not in owners or keys.TOOL in there.get("labels", ()), message
    if isinstance(message, messages.JobDeleted):
        assert message.uid not in alive, message


def check_counts(job: batch.Job, pods: list[core.Pod]) -> None:
    """While nothing changes, the counts of a job that has not ended are those of its pods; an array
    counts the results of its indexes."""
    status, going = job.status, sum(it.metadata.deletion_timestamp is not None for it in pods)
    phases = Counter(it.status.phase for it in pods if it.metadata.deletion_timestamp is None)
    assert status.terminating == going, (job, pods)
    assert (status.pending, status.running) == (phases["Pending"], phases["Running"]), (job, pods)
    if job.spec.array is None:
        counts = (status.succeeded, status.failed)
        assert counts == (phases["Succeeded"], phases["Failed"]), (job, pods)


def check_timers(cache: controller_cache.ControllerCache, now: datetime) -> None:
    """A key with nothing left to do is due later or never: a past time would be reconciled twice a
    second."""
    for item in cache.items():
        at = reconcilers.due(cache, item, now)
        assert at is None or at > now, (item, at, now)


class JobTimeline:
    """The actual history, observed or not: how pods ended, and which task dependencies were ready.
    A controller with an outdated cache may act on past states, never on states that never
    existed."""

    def __init__(self) -> None:
        self.jobs: dict[str, batch.Job] = {}
        self.pods: dict[str, core.Pod] = {}
        self.ended: dict[str, dict[str, core.Pod]] = {}
        """uid of a job -> uid of a pod -> the pod as it ended."""
        self.ready: dict[str, set[tuple[int, str]]] = {}
        """uid of a job -> (version, task) that once were ready."""
        self.least: dict[tuple[str, str], int] = {}
        """(uid of a job, task) -> the smallest number of pods it ever requested."""
        self.published: set[str] = set()
        """Uids of pods with an event."""
        self.cancelled: set[tuple[str, int]] = set()
        """(uid of a job, index) that was ever cancelled."""
        self.hidden: set[str] = set()
        """Uids of pods whose end no controller can know: the topic lags, and it is deleted."""

    def see_job(self, job: batch.Job) -> None:
        """A job is written."""
        uid = job.metadata.uid
        for task in tasks.specs(job):
            least = gangs.least(task)
            self.least[uid, task.name] = min(least, self.least.get((uid, task.name), least))
        before = self.jobs.get(uid)
        self.jobs[uid] = job
        if job.spec.array is not None:
            self._check_progress(before, job)
            if job.spec.array.cancelled:
                self.cancelled |= {(uid, it) for it in indexes.parse(job.spec.array.cancelled)}
        self._note_ready(uid)

    def see_pod(self, pod: core.Pod) -> None:
        """A pod is written."""
        owner = pod.metadata.controller
        if owner is None:
            return
        self.pods[pod.metadata.uid] = pod
        if tasks.has_finished(pod):
            self.ended.setdefault(owner.uid, {}).setdefault(pod.metadata.uid, pod)
        self._note_ready(owner.uid)

    def see_published(
        self, objects: Mapping[tuple[str, str], Any], message: msgspec.Struct
    ) -> None:
        """An event is published."""
        check_reported(objects, message)
        if isinstance(message, messages.TaskChanged):
            self.published.add(message.pod_uid)

    def has_succeeded(self, job: batch.Job, index: int) -> bool:
        """Whether an index has the result of a pod, which may be deleted."""
        since = 0 if job.status.array is None else job.status.array.since_version
        return any(
            uid in self.published - self.hidden
            and termination_causes.end(pod) == "Succeeded"
            and int(pod.metadata.annotation(keys.TASK_INDEX) or -1) == index
            and manifests.version_of(pod) >= since
            and not partial_restarts.is_superseded(job, pod)
            and not self._is_cancelled(pod)
            for uid, pod in self.ended.get(job.metadata.uid, {}).items()
        )

    def _is_cancelled(self, pod: core.Pod) -> bool:
        """Whether the pod may have ended because its index was cancelled."""
        owner = pod.metadata.controller
        index = int(pod.metadata.annotation(keys.TASK_INDEX) or -1)
        is_cancelled = owner is not None and (owner.uid, index) in self.cancelled
        return is_cancelled and pod.metadata.deletion_timestamp is not None

    def forget_pod(self, uid: str) -> None:
        """A pod was deleted."""
        self.pods.pop(uid, None)

    def of(self, job: str) -> list[core.Pod]:
        """The existing pods of a job."""
        return [it for it in self.pods.values() if it.metadata.controller.uid == job]  # type: ignore[union-attr] # only owned ones are kept

    def _note_ready(self, uid: str) -> None:
        job = self.jobs.get(uid)
        if job is None:
            return
        version = job.status.version
        good: dict[str, int] = {}
        for pod in self.of(uid):
            if pod.metadata.deletion_timestamp is not None or partial_restarts.is_superseded(
                job, pod
            ):
                continue
            is_good = pod.status.phase == "Succeeded" or (
                pod.status.phase == "Running" and manifests.version_of(pod) == version
            )
            good[tasks.task_of(pod)] = good.get(tasks.task_of(pod), 0) + is_good
        for task in tasks.specs(job):
            if good.get(task.name, 0) >= self.least[uid, task.name]:
                self.ready.setdefault(uid, set()).add((version, task.name))

    def has_held(self, job: batch.Job, task: batch.TaskSpec) -> bool:
        """Whether what the task waits for was once there in this version of its job."""
        if task.depends_on is None:
            return True
        ready = self.ready.get(job.metadata.uid, set())
        found = [(job.status.version, name) in ready for name in task.depends_on.name]
        return any(found) if task.depends_on.iteration == "any" else all(found)

    def _check_progress(self, before: batch.Job | None, job: batch.Job) -> None:
        """An index has one result, which a pod of it had, and keeps it until the array restarts; a
        pod is counted once."""
        array, now = job.spec.array, job.status.array
        if array is None or now is None or indexes.problem(array.indexes):
            return
        succeeded, failed = indexes.parse(now.succeeded), indexes.parse(now.failed)
        results = {"Succeeded": set(succeeded), "Failed": set(failed)}
        assert not results["Succeeded"] & results["Failed"]
        assert results["Succeeded"] | results["Failed"] <= set(indexes.parse(array.indexes))
        assert (job.status.succeeded, job.status.failed) == (len(succeeded), len(failed))
        ends = [
            (int(pod.metadata.annotation(keys.TASK_INDEX) or -1), pod.status.phase)
            for pod in self.ended.get(job.metadata.uid, {}).values()
            if manifests.version_of(pod) >= now.since_version
        ]
        assert all((index, "Succeeded") in ends for index in succeeded)
        tried = dict.fromkeys(failed, array.max_retries + 1)
        tried |= {int(index): times for index, times in now.retries.items()}
        assert all(ends.count((index, "Failed")) >= times for index, times in tried.items())
        assert all(times <= array.max_retries for times in now.retries.values())
        was = None if before is None else before.status.array
        if was is None or was.since_version != now.since_version:
            return
        for then, phase in ((was.succeeded, "Succeeded"), (was.failed, "Failed")):
            assert set(indexes.parse(then)) <= results[phase]
        over = succeeded | failed
        for index, times in was.retries.items():
            assert int(index) in over or now.retries.get(index, 0) >= times


def check_place(cache: controller_cache.ControllerCache, past: JobTimeline, pod: core.Pod) -> None:
    """A pod that is created for a task is part of its job's spec in the controller's cache, its job
    is not stopping, its dependencies are met, and its gang includes it.
    """
    name = pod.metadata.annotation(keys.TASK_SPEC)
    owner = pod.metadata.controller
    if name is None or owner is None:
        return
    job = cache.job(f"default/{owner.name}")
    assert job is not None
    assert job.status.state.phase not in lifecycle.STOPPING
    (task,) = (it for it in tasks.specs(job) if it.name == name)
    index = int(pod.metadata.annotation(keys.TASK_INDEX) or -1)
    if job.spec.array is None:
        assert 0 <= index < task.replicas
    else:
        _check_window(past, job, index)
    assert past.has_held(job, task), f"{pod.metadata.name} is made too early"
    group = cache.pod_group(f"default/{job.metadata.name}-{job.metadata.uid}")
    assert group is not None
    assert name in (group.spec.min_task_member or {})


def _check_window(past: JobTimeline, job: batch.Job, index: int) -> None:
    """Only an index without a result has a pod, and never more than the window are alive."""
    array, status = job.spec.array, job.status.array or batch.ArrayStatus()
    assert array is not None
    assert index in indexes.parse(array.indexes)
    assert index not in indexes.parse(status.succeeded) | indexes.parse(status.failed)
    assert not past.has_succeeded(job, index), f"index {index} would run twice"
    alive = [it for it in past.of(job.metadata.uid) if not tasks.has_finished(it)]
    assert len(alive) < job.spec.tasks[0].replicas, [it.metadata.name for it in alive]


def check_gang(
    cache: controller_cache.ControllerCache, past: JobTimeline, group: scheduling.PodGroup
) -> None:
    """A gang contains only pods that may be created: those of tasks whose dependencies were ready
    in its job's version.
    """
    owner = group.metadata.controller
    job = cache.job(f"default/{owner.name}") if owner is not None else None
    if job is None or manifests.version_of(group) != job.status.version:
        return
    known = [it for it in tasks.specs(job) if it.name in (group.spec.min_task_member or {})]
    if job.spec.min_available <= sum(it.replicas for it in job.spec.tasks):  # admission's rule
        assert group.spec.min_member <= sum(it.replicas for it in known)
    for task in known:
        assert past.has_held(job, task), f"task {task.name} counts too early"
