"""The PodGroup of a job: the gang that the scheduler places, as in Volcano.

A PodGroup has no status subresource, so one create sets phase and spec. Later only the fields that
may change with the job are patched. A PodGroup of an earlier job version is *old*: it is deleted
before the PodGroup of the next version is created under its name, so that a restarted job is queued
again.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.controller.core.pods import pods
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import dependencies, tasks
from stromboli.shared import keys
from stromboli.shared.api import core, kinds, scheduling
from stromboli.shared.api.batch import Job, NetworkTopology, TaskSpec
from stromboli.shared.jobspec import gangs, quota

ENTRIES_NOTED = 16
"""Number of enqueue decisions that are recorded on a PodGroup. It was dequeued between any two of
them. If a decision older than all of them is delivered again, it enqueues the PodGroup like a new
decision.
"""


def desired_spec(cache: controller_cache.ControllerCache, job: Job) -> scheduling.PodGroupSpec:
    """The mutable part of the spec: the gang of the tasks that may run now. Raises ValueError for
    an invalid quantity.
    """
    released = _released(cache, job)
    specs = [task for task in tasks.specs(job) if task.name in released]
    least = dependencies.gang(job, released)
    gang = [(spec, count) for _, spec, count in _smallest(cache, specs, least)]
    return scheduling.PodGroupSpec(
        min_member=least,
        min_task_member={task.name: gangs.least(task) for task in specs},
        queue=job.spec.queue,
        priority_class_name=job.spec.priority_class_name,
        min_resources=dict(quota.total(gang)),
    )


def _released(cache: controller_cache.ControllerCache, job: Job) -> frozenset[str]:
    pods_of_job = cache.pods_of(job) if dependencies.has_any(job) else []
    current = [pod for pod in pods_of_job if not tasks.is_of_earlier_try(job, pod)]
    return dependencies.released(cache, job, current)


def started(
    cache: controller_cache.ControllerCache, job: Job, group: scheduling.PodGroup
) -> frozenset[str]:
    """Tasks whose pods may be created: released, and included in the PodGroup, so that they are
    placed as a gang."""
    known = group.spec.min_task_member or {}
    released = _released(cache, job)
    return frozenset(
        task.name
        for task in tasks.specs(job)
        if task.name in released and (not dependencies.needs(task) or task.name in known)
    )


def create(
    cache: controller_cache.ControllerCache, job: Job, *, plan_follows: bool = False
) -> commands.Create:
    """The command that creates the job's PodGroup. ``plan_follows``: the plan of its pods is
    requested at the same time. Raises ValueError like ``desired_spec``."""
    name = pods.group_name(job)
    spec: dict[str, Any] = msgspec.to_builtins(desired_spec(cache, job))
    # If absent, they would mean a gang of 0 pods and the default queue.
    spec |= {"minMember": spec.get("minMember", 0), "queue": job.spec.queue}
    if job.spec.network_topology is not None:
        spec["networkTopology"] = _topology(job.spec.network_topology)
    groups = list(_sub_groups(job))
    if groups:
        spec["subGroupPolicy"] = groups
    own = {keys.JOB_VERSION: str(job.status.version)}
    if job.spec.running_estimate:
        own[keys.RUNNING_ESTIMATE] = job.spec.running_estimate
    metadata = {
        "labels": dict(job.metadata.labels or {}),
        "annotations": {**(job.metadata.annotations or {}), **own},
    }
    for foreign in (keys.LAST_APPLIED, keys.DECISION, keys.PLAN_FOLLOWS):
        metadata["annotations"].pop(foreign, None)
    if plan_follows:
        metadata["annotations"][keys.PLAN_FOLLOWS] = "true"
    return commands.Create(
        kind=kinds.POD_GROUPS,
        namespace=job.metadata.namespace,
        name=name,
        # There is no status subresource: a phase in this request is stored.
        body=manifests.body(
            kinds.POD_GROUPS, job, name, metadata=metadata, spec=spec, status={"phase": "Pending"}
        ),
        owner_uid=job.metadata.uid,
        version=job.status.version,
    )


def adjust(
    cache: controller_cache.ControllerCache, job: Job, group: scheduling.PodGroup
) -> commands.Stage:
    """The patch that updates the PodGroup to a changed job. It never changes the queue: a decision
    about the PodGroup may be in flight, so a job that moves gets a new one (``lifecycle``). The
    only annotation that it changes is the estimated run time, which follows the time limit."""
    wanted, pod_group_spec = desired_spec(cache, job), group.spec
    member = {**(pod_group_spec.min_task_member or {}), **(wanted.min_task_member or {})}
    fields = {
        "minMember": (wanted.min_member, pod_group_spec.min_member),
        "minTaskMember": (member, pod_group_spec.min_task_member or {}),
        "minResources": (wanted.min_resources, pod_group_spec.min_resources or {}),
        "priorityClassName": (wanted.priority_class_name, pod_group_spec.priority_class_name),
    }
    changed = {name: new for name, (new, old) in fields.items() if new != old}
    operations = [manifests.put(f"/spec/{name}", value) for name, value in changed.items()]
    estimate = job.spec.running_estimate
    if estimate and group.metadata.annotation(keys.RUNNING_ESTIMATE) != estimate:
        path = manifests.annotation_path(keys.RUNNING_ESTIMATE)
        operations.append(manifests.put(path, estimate))
    if not operations:
        return ()
    return (manifests.json_patch(kinds.POD_GROUPS, group, *operations),)


def is_of_earlier_version(job: Job, group: scheduling.PodGroup) -> bool:
    """Whether the PodGroup was created for an earlier job version. A PodGroup without a version was
    created by Volcano, which deletes a PodGroup before it creates the next one, so it is of the
    current version."""
    has_version = group.metadata.annotation(keys.JOB_VERSION) is not None
    return has_version and manifests.version_of(group) < job.status.version


def is_in_other_queue(
    cache: controller_cache.ControllerCache, job: Job, group: scheduling.PodGroup
) -> bool:
    """Whether the job's queue changed since this PodGroup of its current version was created. A
    PodGroup without a version was created by Volcano and may be in the queue of its namespace
    instead; it counts as unchanged."""
    has_version = group.metadata.annotation(keys.JOB_VERSION) is not None
    if not has_version or is_of_earlier_version(job, group) or cache.is_terminating(group):
        return False
    return (group.spec.queue or "default") != (job.spec.queue or "default")


def was_admitted(group: scheduling.PodGroup, decision: str) -> bool:
    """Whether this decision has admitted the group to its queue. If so, the decision was executed,
    even if the group is Pending again."""
    return decision in _entries(group)


def _entries(group: scheduling.PodGroup) -> list[str]:
    return (group.metadata.annotation(keys.DECISION) or "").split()


def enqueue(group: scheduling.PodGroup, decision: str) -> commands.Patch:
    """The patch that sets phase Inqueue, in which pods may be created, and records the decision's
    id in the same write. Its precondition is the resourceVersion that was read, since a newer
    version may already record the decision.
    """
    entries = [*_entries(group), decision][-ENTRIES_NOTED:]
    noted = {"annotations": {keys.DECISION: " ".join(entries)}}
    return manifests.merge(kinds.POD_GROUPS, group, metadata=noted, status={"phase": "Inqueue"})


def smallest(cache: controller_cache.ControllerCache, job: Job) -> dict[str, int]:
    """Task -> how many of its pods are in the smallest gang of the tasks that may run now."""
    released = _released(cache, job)
    specs = [task for task in tasks.specs(job) if task.name in released]
    counted = _smallest(cache, specs, dependencies.gang(job, released))
    return {task.name: count for task, _, count in counted}


def _smallest(
    cache: controller_cache.ControllerCache, specs: list[TaskSpec], least: int
) -> list[tuple[TaskSpec, core.PodSpec, int]]:
    """The number of pods of each task in the smallest gang; tasks of high priority come first."""
    priorities = {it.metadata.name: it.value for it in cache.objects(kinds.PRIORITY_CLASSES)}
    return gangs.smallest(specs, least, priorities)


def _sub_groups(job: Job) -> Iterator[dict[str, Any]]:
    for task in tasks.specs(job):
        parts = task.partition_policy
        if parts is None:
            continue
        group: dict[str, Any] = {
            "name": task.name,
            "subGroupSize": parts.partition_size,
            "minSubGroups": parts.min_partitions,
            "labelSelector": {"matchLabels": {keys.TASK_SPEC: task.name}},
            "matchLabelKeys": [keys.PARTITION_ID],
        }
        if parts.network_topology is not None:
            group["networkTopology"] = _topology(parts.network_topology)
        yield group


def _topology(topology: NetworkTopology) -> dict[str, Any]:
    """The topology constraint for the PodGroup. The number of a tier takes precedence over the name
    of a tier."""
    constraints: dict[str, Any] = {"mode": topology.mode}
    if topology.highest_tier_allowed is not None:
        constraints["highestTierAllowed"] = topology.highest_tier_allowed
    elif topology.highest_tier_name:
        constraints["highestTierName"] = topology.highest_tier_name
    return constraints
