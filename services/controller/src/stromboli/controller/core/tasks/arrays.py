"""Array jobs: one task that runs once for each index, with a limited number of indexes at a time.

The status records the progress as index sets, and pods exist only for the *window*: the lowest
indexes without a result, as many as the task has replicas. A result is recorded first; the pod is
kept so that its log can be read, for the lowest hundred failed indexes and the last two hundred
successful indexes. So ten thousand indexes cost little more than the window, and a crash between
the recording of a result and the deletion of its pod loses nothing.
"""

import functools
from collections.abc import Iterable, Iterator

from stromboli.controller.core import manifests, partial_restarts
from stromboli.shared import keys, node_rejections
from stromboli.shared.api import batch, core
from stromboli.shared.api.batch import ArraySpec, ArrayStatus, Job
from stromboli.shared.formats import indexes

MOST_FAILED_PODS = 100
MOST_SUCCEEDED_PODS = 200
"""Maximum numbers of finished pods that are kept: they use no resources of nodes, but a few
kilobytes of memory in each watching client."""

_parse = functools.lru_cache(maxsize=4096)(indexes.parse)


@functools.lru_cache(maxsize=1024)
def _asked(text: str) -> indexes.Indexes:
    """The indexes that a spec requests; empty if they are invalid."""
    return indexes.Indexes() if indexes.problem(text) else indexes.parse(text)


def problem(job: Job) -> str:
    """Why the array cannot run; empty if it can."""
    array = job.spec.array
    if array is None:
        return ""
    if len(job.spec.tasks) != 1:
        return f"spec.tasks: {len(job.spec.tasks)} tasks; an array job must have one"
    index_problem = indexes.problem(array.indexes)
    return (
        f"spec.array.indexes: {index_problem}; {indexes.BOUNDS} are possible"
        if index_problem
        else ""
    )


def size(job: Job) -> int:
    """The number of indexes in the spec; 0 for a job that is not an array."""
    return 0 if job.spec.array is None else len(_asked(job.spec.array.indexes))


def total(job: Job) -> int | None:
    """The number of indexes that have or will get a result: all except those that were cancelled
    without one. None for a job that is not an array. O(runs)."""
    if job.spec.array is None:
        return None
    array = job.status.array or ArrayStatus()
    results = _parse(array.succeeded) | _parse(array.failed)
    return len(_without_result(job, job.spec.array) | results)


def window(job: Job) -> indexes.Indexes:
    """The indexes that may have pods now. O(runs)."""
    if job.spec.array is None:
        return indexes.Indexes()
    return _without_result(job, job.spec.array).first(job.spec.tasks[0].replicas)


def progress(job: Job, pods: Iterable[core.Pod]) -> ArrayStatus | None:
    """The recorded progress plus the results of the pods; each result counts once. None if the job
    is not an array."""
    if job.spec.array is None:
        return None
    array = job.status.array or ArrayStatus()
    retries = dict(array.retries)
    ended: dict[str, list[int]] = {"Succeeded": [], "Failed": []}
    for pod in unrecorded(job, pods):
        index = manifests.number(pod.metadata.annotation(keys.TASK_INDEX))
        tried = array.retries.get(str(index), 0)
        if pod.status.phase == "Failed" and tried < job.spec.array.max_retries:
            retries[str(index)] = tried + 1
        else:
            ended[pod.status.phase].append(index)
            retries.pop(str(index), None)
    return ArrayStatus(
        succeeded=str(_parse(array.succeeded) | indexes.of(ended["Succeeded"])),
        failed=str(_parse(array.failed) | indexes.of(ended["Failed"])),
        retries=dict(sorted(retries.items(), key=lambda pair: int(pair[0]))),
        since_version=array.since_version,
    )


def unrecorded(job: Job, pods: Iterable[core.Pod]) -> Iterator[core.Pod]:
    """Pods with a result or a failed attempt of their index that the status does not record yet;
    none if the job is not an array."""
    if job.spec.array is None:
        return
    # The pod of an index may end before the controller observes that the index is cancelled. That
    # result counts: the index would run again if the user withdrew the cancellation.
    left = _unfinished(job, job.spec.array)
    cancelled = _asked(job.spec.array.cancelled)
    for pod in pods:
        index = manifests.number(pod.metadata.annotation(keys.TASK_INDEX))
        is_over = is_stale(job, pod) or partial_restarts.is_superseded(job, pod)
        if pod.status.phase not in ("Succeeded", "Failed") or index not in left or is_over:
            continue
        if node_rejections.is_rejected(pod):
            continue  # a failed placement is no result: the pod is placed again
        is_deleted = pod.metadata.deletion_timestamp is not None
        if is_deleted and (pod.status.phase == "Failed" or index in cancelled):
            # A kubelet reports a pod that it kills for a deletion as failed before the pod is
            # gone. An index that was evicted, or suspended with its job, runs again. A program
            # that exits with 0 because its index is cancelled has no result.
            continue
        yield pod


def is_stale(job: Job, pod: core.Pod) -> bool:
    """Whether the pod belongs to an attempt of its index that ended and has been counted."""
    if job.spec.array is None:
        return False
    array = job.status.array or ArrayStatus()
    if manifests.version_of(pod) < array.since_version:
        return True
    index = pod.metadata.annotation(keys.TASK_INDEX) or ""
    tried = manifests.number(pod.metadata.annotation(keys.INDEX_RETRY))
    return tried < array.retries.get(index, 0)


def kept(job: Job, pods: Iterable[core.Pod]) -> frozenset[str]:
    """Names of pods that are not deleted although their index has a result. O(pods log pods)."""
    if job.status.array is None:
        return frozenset()
    ended: dict[str, list[core.Pod]] = {"Succeeded": [], "Failed": []}
    results = {
        "Succeeded": _parse(job.status.array.succeeded),
        "Failed": _parse(job.status.array.failed).first(MOST_FAILED_PODS),
    }
    for pod in pods:
        phase = pod.status.phase
        index = manifests.number(pod.metadata.annotation(keys.TASK_INDEX))
        if phase in ended and index in results[phase]:
            ended[phase].append(pod)
    last = sorted(ended["Succeeded"], key=_age)[-MOST_SUCCEEDED_PODS:]
    return frozenset(pod.metadata.name for pod in (*last, *ended["Failed"]))


def _age(pod: core.Pod) -> tuple[str, int]:
    created = pod.metadata.creation_timestamp
    index = manifests.number(pod.metadata.annotation(keys.TASK_INDEX))
    return ("" if created is None else created.isoformat(), index)


def counts(array: ArrayStatus) -> tuple[int, int]:
    """How many indexes have succeeded and failed."""
    return len(_parse(array.succeeded)), len(_parse(array.failed))


def restarted(version: int) -> batch.ArrayStatus:
    """The initial progress of an array for this version of its job."""
    return ArrayStatus(since_version=version)


def _unfinished(job: Job, array: ArraySpec) -> indexes.Indexes:
    array_status = job.status.array or ArrayStatus()
    return _asked(array.indexes) - _parse(array_status.succeeded) - _parse(array_status.failed)


def _without_result(job: Job, array: ArraySpec) -> indexes.Indexes:
    left = _unfinished(job, array)
    return left - _asked(array.cancelled) if array.cancelled else left
