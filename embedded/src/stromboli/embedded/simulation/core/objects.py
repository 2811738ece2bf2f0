"""Kubernetes objects of a simulation, as the API server would store them for this workload.

The PodGroup and the pods of a job equal those that the controller's core creates for a Job with one
task; tests compare them. Times in objects are whole seconds. Uids increase with creation, so that
objects of the same second keep the order in which they were created; those of an API server are
random.
"""

import functools
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from stromboli.controller.core.queues import queues
from stromboli.controller.core.store import queue_accounting
from stromboli.embedded.simulation.core import workload
from stromboli.scheduler.core.model import requirements
from stromboli.shared import keys
from stromboli.shared.api import core, kinds, meta, scheduling
from stromboli.shared.jobspec import data_sets

NAMESPACE = "default"
SCHEDULER = "volcano"
TASK = "task"
HOSTNAME = "kubernetes.io/hostname"


def node(group: workload.NodeGroup, name: str, *, is_ready: bool = True) -> core.Node:
    """A node whose whole capacity is allocatable."""
    amounts = {**_quantities(group.resources), "pods": group.pods}
    ready = core.Condition(type="Ready", status="True" if is_ready else "False")
    return core.Node(
        metadata=meta.ObjectMeta(
            name=name, uid=f"node-{name}", labels={HOSTNAME: name, **group.labels}
        ),
        spec=core.NodeSpec(unschedulable=not is_ready),
        status=core.NodeStatus(capacity=amounts, allocatable=amounts, conditions=(ready,)),
    )


def queue(name: str) -> scheduling.Queue:
    """A queue of weight 1."""
    return scheduling.Queue(
        metadata=meta.ObjectMeta(name=name),
        spec=scheduling.QueueSpec(reclaimable=True, parent=queue_accounting.ROOT),
    )


def with_standard_queues(declared_queues: Iterable[scheduling.Queue]) -> list[scheduling.Queue]:
    """The queues, with those that the controller creates and the parent that it sets."""
    root = queue_accounting.ROOT
    queues_by_name = {name: queue(name) for name in queues.ALWAYS}
    top = scheduling.QueueSpec(weight=1, reclaimable=False)
    queues_by_name[root] = msgspec.structs.replace(queues_by_name[root], spec=top)
    for each in declared_queues:
        if each.metadata.name != root and not each.spec.parent:
            each = msgspec.structs.replace(
                each, spec=msgspec.structs.replace(each.spec, parent=root)
            )
        queues_by_name[each.metadata.name] = each
    return list(queues_by_name.values())


def priority_class(value: int) -> core.PriorityClass:
    """The class of jobs with this priority."""
    name = priority_class_name(value)
    return core.PriorityClass(metadata=meta.ObjectMeta(name=name, uid=f"class-{name}"), value=value)


def priority_class_name(value: int) -> str:
    """The name of the class; empty for priority 0, which needs none."""
    return f"priority-{value}" if value else ""


def _owner(job: workload.Job) -> meta.OwnerReference:
    """The job as the owner of its PodGroup. Names of jobs are unique, and no Job objects exist."""
    return meta.OwnerReference(
        api_version=kinds.JOBS.api_version,
        kind=kinds.JOBS.kind,
        name=job.name,
        uid=job.name,
        controller=True,
    )


def pod_group(
    job: workload.Job, uid: str, created: datetime, min_member: int, phase: str
) -> scheduling.PodGroup:
    """The PodGroup of a job."""
    return scheduling.PodGroup(
        metadata=meta.ObjectMeta(
            name=job.name,
            namespace=NAMESPACE,
            uid=uid,
            creation_timestamp=created,
            owner_references=(_owner(job),),
            annotations={
                **job.annotations,
                **_preemptable(job.preemptable),
                **_estimate(job.estimate_us),
                **_reservation(job.reservation),
            }
            or None,
        ),
        spec=scheduling.PodGroupSpec(
            min_member=min_member,
            min_task_member=dict(Counter(job.roles)) or {TASK: min_member},
            queue=job.queue,
            priority_class_name=priority_class_name(job.priority),
            min_resources=_minimum(job.resources, min_member),
            network_topology=job.network_topology,
        ),
        status=scheduling.PodGroupStatus(phase=phase),
    )


def role(job: workload.Job, index: int) -> str:
    """The name of a task."""
    return job.roles[index] if job.roles else TASK


def pod_name(job: workload.Job, index: int) -> str:
    """The name of the pod of a task. It ends with the number of the task in the job."""
    return f"{job.name}-{role(job, index)}-{index}"


def pod(job: workload.Job, index: int, uid: str, created: datetime) -> core.Pod:
    """A pending pod of a job."""
    annotations = {
        keys.GROUP_NAME: job.name,
        keys.TASK_SPEC: role(job, index),
        keys.TASK_INDEX: str(index),
        **_preemptable(job.preemptable),
    }
    if job.data_sets:
        annotations[keys.DATA_SETS] = data_sets.annotation(job.data_sets)
    if job.topology_policy:
        annotations[keys.NUMA_TOPOLOGY_POLICY] = job.topology_policy
    return core.Pod(
        metadata=meta.ObjectMeta(
            name=pod_name(job, index),
            namespace=NAMESPACE,
            uid=uid,
            creation_timestamp=created,
            annotations=annotations,
        ),
        spec=_pod_spec(
            job.resources, job.priority, job.node_selector, is_guaranteed=bool(job.topology_policy)
        ),
        status=_PENDING,
    )


_PENDING = core.PodStatus(phase="Pending")


def with_phase(
    group: scheduling.PodGroup, phase: str, running: int, succeeded: int
) -> scheduling.PodGroup:
    """The PodGroup in this phase, with these counts."""
    status = scheduling.PodGroupStatus(phase=phase, running=running, succeeded=succeeded)
    updated: scheduling.PodGroup = msgspec.structs.replace(group, status=status)
    return updated


def parse_labels(text: str) -> dict[str, str]:
    """Labels of the form ``a=b;c=d``. Raises ValueError."""
    labels = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, value = part.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"{part!r} is not a label; write name=value, several with ; between")
        labels[name.strip()] = value.strip()
    return labels


@functools.lru_cache(maxsize=10_000)
def _pod_spec(
    resources: workload.Resources, priority: int, selector: str, *, is_guaranteed: bool
) -> core.PodSpec:
    amounts = _quantities(resources)
    limits = amounts if is_guaranteed else None
    requests = core.ResourceRequirements(requests=amounts, limits=limits)
    return core.PodSpec(
        scheduler_name=SCHEDULER,
        priority=priority,
        node_selector=parse_labels(selector) or None,
        containers=(core.Container(name="main", resources=requests),),
    )


@functools.lru_cache(maxsize=10_000)
def _minimum(resources: workload.Resources, count: int) -> dict[str, core.Quantity]:
    cpu, memory, gpus = resources.amounts()
    total = _quantities(workload.Resources(cpu * count, memory * count, gpus * count))
    return {**total, "pods": count}


def _quantities(resources: workload.Resources) -> dict[str, core.Quantity]:
    quantities: dict[str, core.Quantity] = {}
    if resources.cpu_milli:
        quantities["cpu"] = f"{resources.cpu_milli}m"
    if resources.memory_bytes:
        quantities["memory"] = str(resources.memory_bytes)
    if resources.gpus:
        quantities[requirements.GPU] = resources.gpus
    return quantities


def _preemptable(value: bool | None) -> dict[str, str]:
    return {} if value is None else {keys.PREEMPTABLE: str(value).lower()}


def _estimate(run_time_us: int) -> dict[str, str]:
    return {keys.RUNNING_ESTIMATE: f"{run_time_us}us"} if run_time_us else {}


def _reservation(name: str) -> dict[str, str]:
    return {keys.RESERVATION: name} if name else {}
