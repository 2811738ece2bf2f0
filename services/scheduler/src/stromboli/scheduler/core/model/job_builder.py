"""Builds queues, jobs and tasks of a session from Kubernetes objects."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from stromboli.scheduler.core.model import (
    entities,
    requirements,
    resource_columns,
    resource_vectors,
    subjobs,
)
from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.formats import units
from stromboli.shared.jobspec import waiting_time

_NONE: Mapping[str, int] = {}
"""One object for all jobs, since most have no such minimums."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
Request: TypeAlias = tuple[resource_vectors.Vector, resource_vectors.Sum]
"""The request of pods with equal requirements: as 64-bit integers, and as unbounded integers for
sums.
"""


def build_queue(queue: scheduling.Queue) -> entities.Queue:
    """Build a queue. Raises ValueError for an amount that cannot be parsed."""
    spec, metadata = queue.spec, queue.metadata
    return entities.Queue(
        name=metadata.name,
        weight=spec.weight,
        priority=spec.priority,
        parent=spec.parent,
        state=queue.status.state,
        reclaimable=spec.reclaimable is not False,
        capability=requirements.parse_sums(
            spec.capability or {}, f"queue {metadata.name} capability"
        ),
        deserved=requirements.parse_sums(spec.deserved or {}, f"queue {metadata.name} deserved"),
        guarantee=requirements.parse_sums(
            spec.guarantee.resource or {}, f"queue {metadata.name} guarantee"
        ),
        hierarchy=metadata.annotation(keys.HIERARCHY) or "",
        hierarchy_weights=metadata.annotation(keys.HIERARCHY_WEIGHTS) or "",
        created=metadata.creation_timestamp or _LONG_AGO,
        object=queue,
    )


def minimum_request(group: scheduling.PodGroup) -> units.Amounts | None:
    """The PodGroup's ``minResources`` by name, None if unset. Raises ValueError if it cannot be
    parsed.
    """
    if group.spec.min_resources is None:
        return None
    return requirements.parse_sums(
        group.spec.min_resources, f"PodGroup {group.metadata.key} minResources"
    )


def build_job(
    key: str,
    group: scheduling.PodGroup,
    resources: resource_columns.Resources,
    priority: int,
    default_queue: str,
    least: resource_vectors.Vector | None,
) -> entities.Job:
    """Build a job without tasks. All resources that it names must have columns.

    ``key``: of the PodGroup. ``least``: its ``minimum_request`` as a vector.
    """
    spec, metadata = group.spec, group.metadata
    preemptable = _annotation_or_label(metadata, keys.PREEMPTABLE)
    nothing = resource_vectors.zeros(len(resources.names))
    tasks: dict[str, entities.Task] = {}
    return entities.Job(
        key=key,
        uid=metadata.uid or key,
        namespace=metadata.namespace,
        name=metadata.name,
        queue=spec.queue or default_queue,
        priority=priority,
        min_available=spec.min_member,
        task_min_available=spec.min_task_member or _NONE,
        min_request=least,
        created=metadata.creation_timestamp or _LONG_AGO,
        pod_group=group,
        phase=group.status.phase,
        preemptable=preemptable in _TRUE,
        preemptable_is_set=preemptable is not None,
        revocable_zone=_revocable_zone(metadata),
        waiting_time=waiting_time.of(metadata),
        budget_min_available=metadata.annotation(keys.JDB_MIN_AVAILABLE) or "",
        budget_max_unavailable=metadata.annotation(keys.JDB_MAX_UNAVAILABLE) or "",
        allocated=nothing,
        total_request=nothing,
        tasks=tasks,
        subjobs=subjobs.initial_subjobs(key, spec, tasks),
        sub_group_minimums=subjobs.minimums(group) or _NONE,
        conditions=list(group.status.conditions),
        is_terminating=metadata.deletion_timestamp is not None,
    )


def move_columns(job: entities.Job, sources: resource_columns.Sources) -> None:
    """Move the job's vectors to new columns of resources."""
    job.allocated = resource_vectors.moved(job.allocated, sources)
    job.total_request = resource_vectors.moved(job.total_request, sources)
    if job.min_request is not None:
        job.min_request = resource_vectors.moved(job.min_request, sources)


def needs_session(job: entities.Job) -> bool:
    """Whether a session may act on the job or explain it."""
    if job.is_terminating:
        return False
    if job.frozen or job.problems or job.is_pending:
        return True
    if job.by_status.get(entities.Status.PENDING):
        return True
    return job.phase != "Completed" and not (job.is_ready and job.roles_ready)


def job_key_of(pod: core.Pod) -> str:
    """Key of the PodGroup that the pod names; empty if it names none."""
    group = pod.metadata.annotation(keys.GROUP_NAME)
    return f"{pod.metadata.namespace}/{group}" if group else ""


class Requests:
    """The requests of pods and the minimums of PodGroups as vectors: equal ones are one object."""

    def __init__(self, resources: resource_columns.Resources) -> None:
        self._resources = resources
        self._of_pods: WeakKeyDictionary[requirements.PodRequirements, Request] = (
            WeakKeyDictionary()
        )
        self._minimums: dict[tuple[tuple[str, int], ...], resource_vectors.Vector] = {}

    def of(self, shape: requirements.PodRequirements) -> Request:
        """The request of pods with these requirements, in both forms."""
        if shape not in self._of_pods:
            amounts = resource_vectors.vector(self._resources, shape.request)
            self._of_pods[shape] = amounts, resource_vectors.multiplied(amounts, 1)
        return self._of_pods[shape]

    def minimum(self, least: units.Amounts | None) -> resource_vectors.Vector | None:
        """A ``minimum_request`` as a vector."""
        if least is None:
            return None
        key = tuple(least.items())
        if key not in self._minimums:
            if len(self._minimums) >= requirements.MAX_CACHED_SPECS:
                self._minimums.clear()
            self._minimums[key] = resource_vectors.vector(self._resources, least)
        return self._minimums[key]

    def clear(self) -> None:
        """Drop all vectors: the columns have changed."""
        self._of_pods.clear()
        self._minimums.clear()


def build_task(
    key: str,
    job: str,
    pod: core.Pod,
    task_class: entities.TaskClass,
    request: resource_vectors.Vector,
    summand: resource_vectors.Sum,
) -> entities.Task:
    """Build a task. ``key``: of the pod; ``job``: of its PodGroup, or empty. ``request`` and
    ``summand``: as ``Requests.of`` returns them."""
    metadata, spec = pod.metadata, pod.spec
    preemptable = _annotation_or_label(metadata, keys.PREEMPTABLE)
    return entities.Task(
        uid=metadata.uid or key,
        namespace=metadata.namespace,
        name=metadata.name,
        job=job,
        role=_annotation_or_label(metadata, keys.TASK_SPEC) or "",
        request=request,
        request_sum=summand,
        priority=_task_priority(pod),
        preemptable=preemptable is None or preemptable in _TRUE,
        revocable_zone=_revocable_zone(metadata),
        is_best_effort=task_class.shape.is_best_effort,
        is_gated=bool(spec.scheduling_gates),
        created=metadata.creation_timestamp or _LONG_AGO,
        status=task_status(pod),
        node=spec.node_name,
        pod=pod,
        task_class=task_class,
        key=key,
        index=_index(metadata.name),
    )


def task_status(pod: core.Pod) -> entities.Status:
    """The task's status by the pod's phase, node and deletion timestamp."""
    match pod.status.phase:
        case "Running" | "Pending" | "" if pod.metadata.deletion_timestamp is not None:
            return entities.Status.RELEASING
        case "Running":
            return entities.Status.RUNNING
        case "Pending" | "":
            return entities.Status.BOUND if pod.spec.node_name else entities.Status.PENDING
        case "Succeeded":
            return entities.Status.SUCCEEDED
        case "Failed":
            return entities.Status.FAILED
        case _:
            return entities.Status.UNKNOWN


def placement(pod: core.Pod, assumed_node: str, *, is_evicted: bool) -> tuple[entities.Status, str]:
    """The status and node of a task by its pod and the open decisions about it."""
    status, node = task_status(pod), pod.spec.node_name
    if assumed_node and status is entities.Status.PENDING:
        status, node = entities.Status.BINDING, assumed_node
    if is_evicted and status in entities.ALLOCATED:
        status = entities.Status.RELEASING
    return status, node


def follow(
    member: entities.Task,
    job: entities.Job | None,
    pod: core.Pod,
    status: entities.Status,
    node: str,
) -> bool:
    """Update a placed task, and the sums of its job, if its pod differs in its status only. Returns
    whether the task was updated.

    Most versions of a pod differ in status only: bound where it was assumed, running, ready. Class,
    request and node remain, and so does all data that is derived from them.
    """
    if member.node != node or not {member.status, status} <= entities.ALLOCATED:
        return False
    if not _differ_only_in_placement(member.pod, pod):
        return False
    if job is not None:
        job.move((member,), status)
    member.status, member.pod = status, pod
    return True


def add_task(job: entities.Job, member: entities.Task) -> None:
    """Add a task to the job and update the job's sums."""
    job.tasks[member.uid] = member
    job.by_status.setdefault(member.status, {})[member.uid] = member
    job.add_counts(member, member.status, 1)
    is_first = len(job.tasks) == 1  # tasks and jobs share their vectors, which never change
    job.total_request = member.request_sum if is_first else job.total_request + member.request_sum
    if member.status in entities.ALLOCATED:
        job.allocated = job.total_request if is_first else job.allocated + member.request_sum
    subjobs.add_task(job, member)
    if member.is_gated:
        job.gated = job.gated or {}
        job.gated[member.uid] = member


def remove_task(job: entities.Job, member: entities.Task) -> None:
    """Remove a task from the job and update the job's sums."""
    del job.tasks[member.uid]
    del job.by_status[member.status][member.uid]
    job.add_counts(member, member.status, -1)
    job.total_request = job.total_request - member.request_sum
    if member.status in entities.ALLOCATED:
        job.allocated = job.allocated - member.request_sum
    subjobs.remove_task(job, member)
    if member.uid in job.gated:
        del job.gated[member.uid]


def _differ_only_in_placement(before: core.Pod, after: core.Pod) -> bool:
    """Whether two versions of a pod are equal except for status, node and the decision's id."""
    first, second = before.metadata, after.metadata
    return (
        first.uid == second.uid
        and first.creation_timestamp == second.creation_timestamp
        and first.deletion_timestamp == second.deletion_timestamp
        and first.labels == second.labels
        and _without_decision(first.annotations) == _without_decision(second.annotations)
        and _unplaced(before.spec) == _unplaced(after.spec)
    )


def _without_decision(annotations: Mapping[str, str] | None) -> dict[str, str]:
    return {name: text for name, text in (annotations or {}).items() if name != keys.DECISION}


def _unplaced(spec: core.PodSpec) -> core.PodSpec:
    return msgspec.structs.replace(spec, node_name="") if spec.node_name else spec


def _index(name: str) -> int | None:
    parts = name.split("-")
    return int(parts[-1]) if len(parts) >= 3 and parts[-1].isdecimal() else None


def _annotation_or_label(metadata: meta.ObjectMeta, key: str) -> str | None:
    """The annotation, else the label, else None."""
    value = metadata.annotation(key)
    return metadata.label(key) if value is None else value


def _revocable_zone(metadata: meta.ObjectMeta) -> str:
    zone = metadata.annotation(keys.REVOCABLE_ZONE)
    if zone is not None:
        return zone if zone == "*" else ""
    return "*" if metadata.annotation(keys.PREEMPTABLE) in _TRUE else ""


def _task_priority(pod: core.Pod) -> int:
    text = pod.metadata.annotation(keys.TASK_PRIORITY)
    if text is not None:
        try:
            return int(text)
        except ValueError:
            pass
    return 1 if pod.spec.priority is None else pod.spec.priority


def differs_only_in_status(before: scheduling.PodGroup, after: scheduling.PodGroup) -> bool:
    """Whether two versions of a PodGroup are equal except for their status."""
    first, second = before.metadata, after.metadata
    return (
        before.spec == after.spec
        and first.uid == second.uid
        and first.creation_timestamp == second.creation_timestamp
        and first.deletion_timestamp == second.deletion_timestamp
        and first.annotations == second.annotations
        and first.labels == second.labels
    )
