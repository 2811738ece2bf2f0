"""Dependencies of tasks on tasks, and their effect on the gang.

A task is *released* once its dependencies are ready, or once it has pods. Only released tasks have
pods and count for the gang: the PodGroup contains the tasks that may run now and grows with each
wave, so that no gang waits for pods that depend on it. A later wave is placed as a whole, like the
first one. Readiness is as in Volcano.

Once all released tasks have ended, the others will never be released, since their dependencies
ended below their minimum: the job fails instead of waiting indefinitely.
"""

from collections.abc import Container, Iterable

from stromboli.controller.core import manifests
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.shared.api import core
from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec import dependency_cycles, gangs


def has_any(job: Job) -> bool:
    """Whether any task waits for others."""
    return any(needs(task) for task in job.spec.tasks)


def needs(task: TaskSpec) -> tuple[str, ...]:
    """Names of the tasks that the task depends on."""
    return task.depends_on.name if task.depends_on is not None else ()


def problem(job: Job) -> str:
    """Why a task can never start; empty if all tasks can."""
    wanted = {task.name: needs(task) for task in tasks.specs(job)}
    missing = sorted({name for of in wanted.values() for name in of} - wanted.keys())
    if missing:
        return f"dependsOn names tasks that the job does not have: {', '.join(missing)}"
    waiting = dependency_cycles.members_of_cycles(wanted)
    return f"tasks wait for each other: {', '.join(sorted(waiting))}" if waiting else ""


def released(
    cache: controller_cache.ControllerCache, job: Job, pods: Iterable[core.Pod]
) -> frozenset[str]:
    """Names of the tasks that may have pods. ``pods``: the pods of the job's current attempt.
    O(pods)."""
    specs = tasks.specs(job)
    if not has_any(job):
        return frozenset(task.name for task in specs)
    by_task: dict[str, list[core.Pod]] = {}
    for pod in pods:
        by_task.setdefault(tasks.task_of(pod), []).append(pod)
    living = {
        name: [pod for pod in task_pods if not cache.is_terminating(pod)]
        for name, task_pods in by_task.items()
    }
    ready = {task.name for task in specs if _is_ready(task, living.get(task.name, []))}
    begun = {name for name, task_pods in by_task.items() if _has_begun(job, task_pods)}
    return frozenset(task.name for task in specs if task.name in begun or _holds(task, ready))


def roots(job: Job) -> frozenset[str]:
    """Tasks without dependencies; all tasks if the dependencies form a cycle."""
    specs = tasks.specs(job)
    return frozenset(task.name for task in specs if not needs(task)) or frozenset(
        task.name for task in specs
    )


def gang(job: Job, released: frozenset[str]) -> int:
    """How many pods must run together while only these tasks are released.

    The minimums of tasks that are not released are subtracted from the job's ``minAvailable``. The
    result is at least the sum of the released tasks' minimums, but never more than ``minAvailable``
    or the number of their replicas.
    """
    requested = tasks.min_available(job)
    specs = tasks.specs(job)
    if all(task.name in released for task in specs):
        return requested
    least_released = sum(gangs.least(task) for task in specs if task.name in released)
    least_waiting = sum(gangs.least(task) for task in specs if task.name not in released)
    possible = sum(task.replicas for task in specs if task.name in released)
    return min(requested, max(least_released, requested - least_waiting), possible)


def _has_begun(job: Job, pods: list[core.Pod]) -> bool:
    """Whether the task was released in this version of the job. Pods of earlier versions do not
    count: they succeeded while a restart deleted them, or a resumed job keeps them."""
    return any(manifests.version_of(pod) >= job.status.version for pod in pods)


def _is_ready(task: TaskSpec, pods: list[core.Pod]) -> bool:
    return sum(map(_counts_as_ready, pods)) >= gangs.least(task)


def _counts_as_ready(pod: core.Pod) -> bool:
    if pod.status.phase == "Succeeded":
        return True
    return pod.status.phase == "Running" and all(it.ready for it in pod.status.container_statuses)


def _holds(task: TaskSpec, names: Container[str]) -> bool:
    """Whether ``names`` include all dependencies of the task or, with ``iteration: any``, one of
    them."""
    wanted = needs(task)
    if len(wanted) > 1 and task.depends_on is not None and task.depends_on.iteration == "any":
        return any(name in names for name in wanted)
    return all(name in names for name in wanted)
