"""Restarts of a part of a job: a pod, a partition, a task.

The job's version does not change, so all other pods keep running. The status records the restarted
indexes of each task, and a retry count: pods of these indexes with a lower retry count are
*superseded*. So a crash between the status write and the deletions loses nothing, and a pod that is
observed late is still recognized as superseded.
"""

import functools
from collections.abc import Iterable, Mapping

from stromboli.controller.core import manifests
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.shared.api.batch import Job, RestartedTasks, TaskSpec
from stromboli.shared.formats import indexes

_parse = functools.lru_cache(maxsize=1024)(indexes.parse)

Part = Mapping[str, indexes.Indexes]
"""Task name -> indexes of its pods."""


def is_partial(job: Job) -> bool:
    """Whether the job is restarting, but only in part."""
    return job.status.state.phase == "Restarting" and job.status.restarted is not None


def is_superseded(job: Job, pod: core.Pod) -> bool:
    """Whether a partial restart supersedes this pod, so that it has to be deleted."""
    return is_of_earlier_try(
        job,
        pod.metadata.annotation(keys.TASK_SPEC) or "",
        manifests.number(pod.metadata.annotation(keys.TASK_INDEX)),
        manifests.number(pod.metadata.annotation(keys.JOB_RETRY_COUNT)),
    )


def is_of_earlier_try(job: Job, task: str, index: int, retry_count: int) -> bool:
    """Whether a pod of this task, index and retry count is superseded."""
    restarted_tasks = job.status.restarted
    if (
        restarted_tasks is None
        or retry_count >= restarted_tasks.retry_count
        or task not in restarted_tasks.tasks
    ):
        return False
    return index in _parse(restarted_tasks.tasks[task])


def part(action: str, job: Job, task: TaskSpec, index: int | None) -> Part:
    """The scope of an action on a task of the job; empty if it matches nothing.

    ``index``: the pod of the event, None for an event of the task.
    """
    if action == "RestartTask":
        all_of_it = ((0, task.replicas - 1),) if task.replicas else ()
        array = job.spec.array
        return {task.name: indexes.Indexes(all_of_it) if array is None else _parse(array.indexes)}
    if index is None:
        return {}
    if action == "RestartPod":
        return {task.name: indexes.of([index])}
    parts = task.partition_policy
    if parts is None or parts.partition_size <= 0:
        return {}
    first = index // parts.partition_size * parts.partition_size
    return {task.name: indexes.Indexes(((first, first + parts.partition_size - 1),))}


def union(parts: Iterable[Part]) -> dict[str, indexes.Indexes]:
    """The union of these parts."""
    joined: dict[str, indexes.Indexes] = {}
    for one in parts:
        for task, task_indexes in one.items():
            joined[task] = joined.get(task, indexes.Indexes()) | task_indexes
    return joined


def recorded(job: Job, more: Part, retry_count: int) -> RestartedTasks:
    """The status entry for a restart of ``more``, together with the parts that are already
    restarting.
    """
    before: Part = {}
    if is_partial(job) and job.status.restarted is not None:
        before = {task: _parse(text) for task, text in job.status.restarted.tasks.items()}
    joined = union((before, more))
    return RestartedTasks(
        retry_count=retry_count, tasks={task: str(joined[task]) for task in sorted(joined)}
    )
