"""A job's tasks: what its spec asks for by name, and what its pods amount to.

An object may have passed while admission was away, so the defaults of admission apply here too
(spec/admission.md 2.1): a task without a name is ``default<position>``, ``minAvailable`` 0 means
all that the tasks need, ``maxRetry`` 0 means 3.
"""

from collections.abc import Iterator

import msgspec

from stromboli.controller.core import lifecycle, manifest, view
from stromboli.shared import keys, snapshot
from stromboli.shared.api import batch, core, kinds
from stromboli.shared.api.batch import Job, TaskSpec

DEFAULT_MAX_RETRY = 3
FINISHED_PODS = ("Succeeded", "Failed")
COUNTERS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")
"""The counters of a job's status."""


class Member(msgspec.Struct, frozen=True):
    """One pod that the spec asks for."""

    task: TaskSpec
    index: int
    name: str


def specs(job: Job) -> tuple[TaskSpec, ...]:
    """The tasks, every one with a name."""
    return tuple(
        task if task.name else msgspec.structs.replace(task, name=f"default{position}")
        for position, task in enumerate(job.spec.tasks)
    )


def least(task: TaskSpec) -> int:
    """How many pods of the task its job needs."""
    if task.min_available is not None:
        return task.min_available
    parts = task.partition_policy
    if parts is not None and parts.min_partitions and parts.partition_size:
        return parts.min_partitions * parts.partition_size
    return task.replicas


def min_available(job: Job) -> int:
    """The gang's size."""
    return job.spec.min_available or sum(map(least, job.spec.tasks))


def max_retry(job: Job) -> int:
    """How often the job may start anew before it fails."""
    return job.spec.max_retry or DEFAULT_MAX_RETRY


def members(job: Job) -> Iterator[Member]:
    """Every pod that the spec asks for, by task and index."""
    for task in specs(job):
        prefix = f"{job.metadata.name}-{task.name}-"
        for index in range(task.replicas):
            yield Member(task, index, f"{prefix}{index}")


def has_finished(pod: core.Pod) -> bool:
    """Whether no container of the pod will run again."""
    return pod.status.phase in FINISHED_PODS


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of a job by state, as its status shows them."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    by_task: dict[str, dict[str, int]] = {}
    """Task -> pod phase -> count; pods that are going are not in it."""


def tally(picture: view.View, job: Job, pods: list[core.Pod]) -> Tally:
    """Count a job's pods. A pod that cannot be read counts as unknown. O(pods + replicas)."""
    counts = dict.fromkeys(COUNTERS, 0)
    by_task: dict[str, dict[str, int]] = {}
    for pod in pods:
        task = pod.metadata.annotation(keys.TASK_SPEC)
        if task is None:
            continue
        if picture.is_going(pod):
            counts["terminating"] += 1
            continue
        phase = pod.status.phase or "Pending"
        field = phase.lower()
        counts[field if field in counts else "unknown"] += 1
        phases = by_task.setdefault(task, {})
        phases[phase] = phases.get(phase, 0) + 1
    unknown = sum(1 for _ in unreadable(picture, job))
    return Tally(**counts | {"unknown": counts["unknown"] + unknown}, by_task=by_task)


def unreadable(picture: view.View, job: Job) -> Iterator[Member]:
    """Members whose names are taken by pods that we cannot read."""
    unknown = picture.unknown_pods()
    if not unknown:
        return
    for member in members(job):
        if f"{job.metadata.namespace}/{member.name}" in unknown:
            yield member


class Look(msgspec.Struct, frozen=True):
    """A job's pods, counted, and those that have to go and are not going yet."""

    pods: list[core.Pod]
    counts: Tally
    doomed: list[core.Pod]


def look(picture: view.View, job: Job) -> Look:
    """All that one step wants to know of a job's pods. O(pods + replicas)."""
    pods = picture.pods_of(job.metadata.uid)
    return Look(pods, tally(picture, job, pods), _doomed(picture, job, pods))


def facts(picture: view.View, job: Job, seen: Look) -> lifecycle.Facts:
    """What the rules of the life cycle look at.

    Pods that have to go are counted apart: with them there may be more pods than replicas, and a
    job would both have enough running pods and too many pending ones.
    """
    counts = seen.counts
    if seen.doomed:
        apart = {pod.metadata.uid for pod in seen.doomed}
        counts = tally(picture, job, [pod for pod in seen.pods if pod.metadata.uid not in apart])
    return lifecycle.Facts(
        phase=phase_of(job),
        min_available=min_available(job),
        min_success=job.spec.min_success,
        max_retry=max_retry(job),
        retry_count=job.status.retry_count,
        tasks=tuple(
            lifecycle.TaskFacts(
                name=task.name,
                replicas=task.replicas,
                min_available=task.min_available,
                seen=task.name in counts.by_task,
                succeeded=counts.by_task.get(task.name, {}).get("Succeeded", 0),
            )
            for task in specs(job)
        ),
        pending=counts.pending,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        terminating=counts.terminating,
        doomed=len(seen.doomed),
    )


def phase_of(job: Job) -> lifecycle.Phase:
    """The job's phase. Raises IllegalMoveError for one that is none: a stranger wrote it."""
    phase = job.status.state.phase
    for known in lifecycle.PHASES:
        if phase == known:
            return known
    raise lifecycle.IllegalMoveError(phase, "any event")


def _doomed(picture: view.View, job: Job, pods: list[core.Pod]) -> list[core.Pod]:
    """Pods that have to go and are not going yet.

    While a job stops: all, or only those that have not finished. Otherwise those that an earlier
    version of the job left alive, and those that the spec no longer asks for.
    """
    there = [pod for pod in pods if not picture.is_going(pod)]
    if job.status.state.phase in lifecycle.STOPPING:
        return there if _kills_all(job) else [pod for pod in there if not has_finished(pod)]
    wanted = {member.name for member in members(job)}
    return [
        pod
        for pod in there
        if pod.metadata.name not in wanted
        or (manifest.version_of(pod) < job.status.version and not has_finished(pod))
    ]


def _kills_all(job: Job) -> bool:
    """A restart also removes finished pods, so that they run again; a resumed job goes on where
    it was, and the last try leaves its pods to be looked at."""
    state = job.status.state
    if state.phase != "Restarting" or state.reason == "ResumeJob":
        return False
    return job.status.retry_count < max_retry(job)


def status_with(status: batch.JobStatus, counts: Tally, gang: int) -> batch.JobStatus:
    """The status with what its pods are now.

    A finished job keeps the pods that ended, although they may be removed later: its counts are
    its result.
    """
    by_task = {name: dict(phases) for name, phases in sorted(counts.by_task.items())}
    succeeded, failed = counts.succeeded, counts.failed
    if status.state.phase in lifecycle.FINISHED:
        succeeded, failed = status.succeeded, status.failed
        by_task = {
            name: {phase: count for phase, count in state.phase.items() if phase in FINISHED_PODS}
            for name, state in status.task_status_count.items()
        }
        by_task = {name: phases for name, phases in by_task.items() if phases}
    return msgspec.structs.replace(
        status,
        min_available=gang,
        pending=counts.pending,
        running=counts.running,
        succeeded=succeeded,
        failed=failed,
        terminating=counts.terminating,
        unknown=counts.unknown,
        task_status_count={name: batch.TaskState(phase=it) for name, it in by_task.items()},
    )


def name_state(picture: view.View, job: Job, name: str) -> snapshot.State:
    """What stands under a pod's name: nothing, a pod, or something unreadable."""
    return picture.state(kinds.PODS, f"{job.metadata.namespace}/{name}")


def go_duration(seconds: float) -> str:
    """A duration as Kubernetes writes it: ``1h2m3s``."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{text}{left}s"
