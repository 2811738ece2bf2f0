"""The tasks of a job: the pods that its spec requires, and counts of its pods.

A job may have been created while admission was unavailable, so the defaults of admission apply
here, too: a task without a name is ``default<position>``, ``minAvailable`` 0 means the sum over the
tasks, ``maxRetry`` 0 means 3.
"""

from collections.abc import Callable, Container, Iterable, Iterator

import msgspec

from stromboli.controller.core import lifecycle, manifests, partial_restarts
from stromboli.controller.core.ordered_set import LeastFirst
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import arrays
from stromboli.shared import keys, snapshot
from stromboli.shared.api import batch, core, kinds
from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec import gangs

DEFAULT_MAX_RETRY = 3
FINISHED_PODS = ("Succeeded", "Failed")
COUNTERS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")
"""The counters of a job's status."""
_COUNTER_OF = {name.capitalize(): name for name in COUNTERS}


class Member(msgspec.Struct, frozen=True):
    """One pod that the spec requires."""

    task: TaskSpec
    index: int
    name: str


def specs(job: Job) -> tuple[TaskSpec, ...]:
    """The tasks with default names; an array has ``minAvailable`` 1 by default."""
    return tuple(_completed(job, task, position) for position, task in enumerate(job.spec.tasks))


def _completed(job: Job, task: TaskSpec, position: int) -> TaskSpec:
    if job.spec.array is not None and task.min_available is None:
        task = msgspec.structs.replace(task, min_available=min(1, task.replicas))
    return task if task.name else msgspec.structs.replace(task, name=f"default{position}")


def min_available(job: Job) -> int:
    """The size of the gang. An array's gang shrinks when fewer indexes than that are left."""
    requested = job.spec.min_available or sum(map(gangs.least, specs(job)))
    return requested if job.spec.array is None else min(requested, len(arrays.window(job)))


def max_retry(job: Job) -> int:
    """How many attempts of the job may fail, the first one included: ``maxRetry`` 3 allows two
    restarts, as in Volcano."""
    return job.spec.max_retry or DEFAULT_MAX_RETRY


def spent_tries(job: Job) -> int:
    """How many attempts have failed, not counting restarts that cost no retry."""
    return job.status.retry_count - job.status.asked_retries


def requires(job: Job, name: str, index: int) -> bool:
    """Whether the task needs a pod of this index; an index with a result needs none."""
    if job.spec.array is not None:
        return index in arrays.window(job)
    return any(task.name == name and index < task.replicas for task in specs(job))


class Members:
    """The pods that a spec requires, by task and index. O(tasks) to create."""

    def __init__(self, job: Job) -> None:
        self._specs = {task.name: task for task in specs(job)}
        self._job = job.metadata.name
        self._tasks = {f"{self._job}-{name}": task for name, task in self._specs.items()}
        self._window = None if job.spec.array is None else arrays.window(job)

    def __iter__(self) -> Iterator[Member]:
        """Every pod, by task and index."""
        for task in self._specs.values():
            for index in self._indexes(task):
                yield self.member(task.name, index)

    def member(self, task: str, index: int) -> Member:
        """The pod of a task's index. Raises KeyError for an unknown task."""
        return Member(self._specs[task], index, f"{self._job}-{task}-{index}")

    def _indexes(self, task: TaskSpec) -> Iterable[int]:
        return range(min(task.replicas, batch.MOST_PODS)) if self._window is None else self._window

    def of(self, name: str) -> Member | None:
        """The pod of this name; None if the spec has none. O(1), for an array O(runs)."""
        prefix, _, text = name.rpartition("-")
        task, index = self._tasks.get(prefix), manifests.count(text)
        if task is None or index is None or text != str(index):
            return None
        if self._window is None:
            is_wanted = index < min(task.replicas, batch.MOST_PODS)
        else:
            is_wanted = index in self._window
        return Member(task, index, name) if is_wanted else None

    def missing(self, existing: Container[str]) -> dict[str, LeastFirst[tuple[int]]]:
        """Task -> indexes of its pods whose names are not in ``existing``. O(replicas)."""
        return {
            name: LeastFirst(
                (index,)
                for index in self._indexes(task)
                if self.member(name, index).name not in existing
            )
            for name, task in self._specs.items()
        }


def room(
    cache: controller_cache.ControllerCache, job: Job, pods: Callable[[], Iterable[core.Pod]]
) -> int:
    """How many more pods may be created. The live pods of an array, including terminating ones,
    never exceed its window."""
    if job.spec.array is None:
        return batch.MOST_PODS
    alive = sum(not has_finished(pod) for pod in pods()) + unreadable(cache, job)
    return job.spec.tasks[0].replicas - alive


def task_of(pod: core.Pod) -> str:
    """The name of the pod's task; empty for a pod that belongs to no job."""
    return pod.metadata.annotation(keys.TASK_SPEC) or ""


def is_of_earlier_try(job: Job, pod: core.Pod) -> bool:
    """Whether the pod belongs to an earlier attempt: an unfinished pod of an earlier job version,
    a pod that a partial restart superseded, or a pod of an index whose result is recorded."""
    if manifests.version_of(pod) < job.status.version and not has_finished(pod):
        return True
    return partial_restarts.is_superseded(job, pod) or arrays.is_stale(job, pod)


def has_finished(pod: core.Pod) -> bool:
    """Whether no container of the pod will run again."""
    return pod.status.phase in FINISHED_PODS


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of pods of a job by state, as in its status."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    by_task: dict[str, dict[str, int]] = {}
    """Task -> pod phase -> count, without pods that are being deleted."""
    array: batch.ArrayStatus | None = None


def count_pods(cache: controller_cache.ControllerCache, job: Job, pods: list[core.Pod]) -> Tally:
    """Count a job's pods. A pod that cannot be read counts as unknown. O(pods + replicas).

    For an array, finished indexes are counted from the results, not from pods.
    """
    counts = dict.fromkeys(COUNTERS, 0)
    by_task: dict[str, dict[str, int]] = {}
    progress = arrays.progress(job, pods)
    for pod in pods:
        field, task, phase = counted(pod, is_terminating=cache.is_terminating(pod))
        if not field or (progress is not None and has_finished(pod)):
            continue
        counts[field] += 1
        if phase:
            phases = by_task.setdefault(task, {})
            phases[phase] = phases.get(phase, 0) + 1
    counts["unknown"] += unreadable(cache, job)
    return with_progress(job, Tally(**counts, by_task=by_task, array=None), progress)


def counted(pod: core.Pod, *, is_terminating: bool) -> tuple[str, str, str]:
    """The counter of the status that includes the pod, its task and its phase. The counter is empty
    for a pod without a task, the phase for a pod that is being deleted."""
    task = pod.metadata.annotation(keys.TASK_SPEC)
    if task is None:
        return "", "", ""
    if is_terminating:
        return "terminating", task, ""
    phase = pod.status.phase or "Pending"
    return _COUNTER_OF.get(phase, "unknown"), task, phase


def with_progress(job: Job, counts: Tally, progress: batch.ArrayStatus | None) -> Tally:
    """The counts with the results of an array added; unchanged if ``progress`` is None."""
    if progress is None:
        return counts
    succeeded, failed = arrays.counts(progress)
    ended = {
        phase: count for phase, count in (("Succeeded", succeeded), ("Failed", failed)) if count
    }
    by_task = {
        name: {phase: count for phase, count in phases.items() if phase not in FINISHED_PODS}
        for name, phases in counts.by_task.items()
    }
    for spec in specs(job):
        by_task[spec.name] = by_task.get(spec.name, {}) | ended
    return msgspec.structs.replace(
        counts, succeeded=succeeded, failed=failed, by_task=by_task, array=progress
    )


def unreadable(
    cache: controller_cache.ControllerCache, job: Job, members: Members | None = None
) -> int:
    """The number of unreadable pods that have a name of one of the job's pods. O(unreadable
    pods)."""
    unknown = cache.unknown_pods()
    if not unknown:
        return 0
    members, prefix = members or Members(job), f"{job.metadata.namespace}/"
    names = (key.removeprefix(prefix) for key in unknown if key.startswith(prefix))
    return sum(members.of(name) is not None for name in names)


def phase_of(job: Job) -> lifecycle.Phase:
    """The job's phase. Raises IllegalTransitionError for an unknown phase, which another client
    wrote."""
    phase = job.status.state.phase
    for known in lifecycle.PHASES:
        if phase == known:
            return known
    raise lifecycle.IllegalTransitionError(phase, "any event")


def is_to_delete(job: Job, pod: core.Pod, member: Member | None, retained: Container[str]) -> bool:
    """Whether a pod that is not being deleted has to be deleted.

    While a job stops, all its pods are deleted, or only unfinished pods; while it restarts, pods of
    an earlier version. Otherwise pods of an earlier attempt and pods that the spec no longer
    contains are deleted. ``retained``: names of pods that are kept although their index has a
    result.
    """
    if partial_restarts.is_partial(job):
        return is_of_earlier_try(job, pod)
    if job.status.state.phase in lifecycle.STOPPING:
        if has_finished(pod):
            return kills_all(job)
        is_old = manifests.version_of(pod) < job.status.version
        return is_old or job.status.state.phase != "Restarting"
    is_wanted = member is not None or pod.metadata.name in retained
    return not is_wanted or is_of_earlier_try(job, pod)


def kills_all(job: Job) -> bool:
    """Whether finished pods are deleted, too. A restart deletes and runs them again; a resumed job
    keeps them, and after the last attempt they are left for inspection. A restart without a reason
    was begun by Volcano, which deletes pods before it writes the phase: the remaining pods have a
    result."""
    state = job.status.state
    if state.phase != "Restarting" or state.reason in ("", "ResumeJob"):
        return False
    return spent_tries(job) < max_retry(job)


def status_with(status: batch.JobStatus, counts: Tally, gang: int) -> batch.JobStatus:
    """The status with the current counts of pods.

    A finished job keeps its counts of ended pods even if these are deleted later, since the counts
    are its result.
    """
    by_task = {name: dict(phases) for name, phases in sorted(counts.by_task.items())}
    succeeded, failed, array = counts.succeeded, counts.failed, counts.array
    if status.state.phase in lifecycle.FINISHED:
        succeeded, failed, array = status.succeeded, status.failed, status.array
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
        array=array,
    )


def name_state(cache: controller_cache.ControllerCache, job: Job, name: str) -> snapshot.State:
    """The cached state of the pod with this name: absent, a pod, or unreadable."""
    return cache.state(kinds.PODS, f"{job.metadata.namespace}/{name}")


def go_duration(seconds: float) -> str:
    """A duration as Kubernetes writes it: ``1h2m3s``."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{text}{left}s"
