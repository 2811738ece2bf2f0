"""Applies the changes of a what-if question to a job, and derives the gang of a job.

Fields that the owner of the job can change in place are changed in place. With another queue or
other requests of pods, the changed job is *new*: a job that would be submitted instead.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stromboli.admission.core import job_change
from stromboli.shared.api import batch
from stromboli.shared.api.views.what_if import JobIf
from stromboli.shared.jobspec import gangs, quota
from stromboli.shared.messages import what_if
from stromboli.shared.messages.admission import Violation

GPU = "nvidia.com/gpu"
"""The resource that is added to a task without GPUs."""
_WHOLE = "/gpu"


def changed_job(job: dict[str, Any], change: JobIf) -> dict[str, Any] | Violation:
    """The changed job, or the violation if the change is invalid or has no effect."""
    spec: dict[str, Any] = dict(job["spec"])
    if change.sizes_change or change.priority_class_name is not None:
        in_place = job_change.JobChange(
            replicas=change.replicas,
            min_available=change.min_available,
            priority_class_name=change.priority_class_name,
        )
        patch = job_change.change_patch(job, in_place)
        if isinstance(patch, Violation):
            return patch
        spec |= patch["spec"]
    if change.queue is not None:
        spec["queue"] = change.queue
    for task, count in change.gpus.items():
        tasks = _with_gpus(spec["tasks"], task, count)
        if isinstance(tasks, Violation):
            return tasks
        spec["tasks"] = tasks
    if spec == job["spec"] and not change.nodes:
        return Violation(
            path="",
            reason="the request changes nothing: the job already has these values",
            expected="another priority, queue, gpus, minAvailable or replicas, or nodes",
        )
    return {**job, "spec": spec}


def _with_gpus(
    tasks: list[dict[str, Any]], name: str, count: int
) -> list[dict[str, Any]] | Violation:
    names = [task.get("name", "") for task in tasks]
    if name and name not in names:
        expected = f"one of {', '.join(names)}"
        return Violation(path="gpus", reason=f"there is no task {name!r}", expected=expected)
    wanted = {name} if name else {task.get("name", "") for task in tasks if _devices(task)}
    if not wanted and len(tasks) == 1:
        wanted = set(names)
    if not wanted:
        expected = f"the task, too: gpus=TASK:{count}, with TASK one of {', '.join(names)}"
        return Violation(path="gpus", reason="no task requests GPUs", expected=expected)
    new_tasks = []
    for task in tasks:
        changed = _task_with_gpus(task, count) if task.get("name", "") in wanted else task
        if isinstance(changed, Violation):
            return changed
        new_tasks.append(changed)
    return new_tasks


def _task_with_gpus(task: dict[str, Any], count: int) -> dict[str, Any] | Violation:
    devices = _devices(task)
    name = task.get("name", "")
    parts = sorted({each for each in devices.values() if not each.endswith(_WHOLE)})
    if parts:
        reason = f"task {name} requests {', '.join(parts)}, but gpus counts whole GPUs"
        return Violation(path="gpus", reason=reason, expected=f"a task with {GPU}")
    if len(devices) > 1:
        reason = f"task {name} has {len(devices)} requests for GPUs, and gpus sets only one"
        return Violation(path="gpus", reason=reason, expected="a task with one request for GPUs")
    template = task.get("template") or {}
    spec = template.get("spec") or {}
    containers = list(spec.get("containers") or ())
    if not containers:
        return Violation(
            path="gpus", reason=f"task {name} has no container", expected="a container"
        )
    at, resource = next(iter(devices.items()), ((0, GPU), GPU))
    resources = dict(containers[at[0]].get("resources") or {})
    for field in ("requests", "limits"):
        amounts = {
            key: value for key, value in (resources.get(field) or {}).items() if key != resource
        }
        resources[field] = amounts | ({resource: str(count)} if count else {})
    containers[at[0]] = {**containers[at[0]], "resources": resources}
    return {**task, "template": {**template, "spec": {**spec, "containers": containers}}}


def _devices(task: dict[str, Any]) -> dict[tuple[int, str], str]:
    """(Container, resource) -> resource, of all GPUs and parts of GPUs that a pod requests."""
    spec = (task.get("template") or {}).get("spec") or {}
    gpu_resources = {}
    for at, container in enumerate(spec.get("containers") or ()):
        resources = container.get("resources") or {}
        for name in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}:
            if "gpu" in name.lower() or "/mig-" in name:
                gpu_resources[at, name] = name
    return gpu_resources


def gang_of(job: batch.Job, priorities: Mapping[str, int]) -> what_if.Gang:
    """The gang as the controller makes it; without sizes and tasks for a job whose tasks are
    released one after another. ``priorities``: PriorityClass -> value. Raises ValueError for an
    invalid quantity or template."""
    spec = job.spec
    queue, priority_class = spec.queue, spec.priority_class_name
    if releases_tasks(job):
        return what_if.Gang(queue=queue, priority_class_name=priority_class, min_member=0)
    tasks = [
        each if each.name else msgspec.structs.replace(each, name=f"default{position}")
        for position, each in enumerate(spec.tasks)
    ]
    size = spec.min_available or sum(map(gangs.least, tasks))
    members = [(pod, count) for _, pod, count in gangs.smallest(tasks, size, priorities)]
    return what_if.Gang(
        queue=queue,
        priority_class_name=priority_class,
        min_member=size,
        min_task_member={task.name: gangs.least(task) for task in tasks},
        min_resources=dict(quota.total(members)),
        tasks=tuple(_gang_task(job, task) for task in tasks),
    )


def releases_tasks(job: batch.Job) -> bool:
    """Whether tasks or indexes are released one after another (``dependsOn``, arrays)."""
    return job.spec.array is not None or any(task.depends_on for task in job.spec.tasks)


def _gang_task(job: batch.Job, task: batch.TaskSpec) -> what_if.GangTask:
    spec, parts = gangs.template_of(task), task.partition_policy
    spec = msgspec.structs.replace(
        spec,
        scheduler_name=spec.scheduler_name or job.spec.scheduler_name,
        active_deadline_seconds=spec.active_deadline_seconds or task.active_deadline_seconds,
    )
    metadata = task.template.metadata
    return what_if.GangTask(
        name=task.name,
        replicas=task.replicas,
        spec=spec,
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        partition_size=0 if parts is None else parts.partition_size,
    )
