"""The pods of gangs in a forward simulation, and their states."""

from datetime import datetime

import msgspec

from stromboli.scheduler.core.model import requirements
from stromboli.shared import keys
from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.formats import units

_PENDING = core.PodStatus(phase="Pending")


def tasks_of(group: scheduling.PodGroup) -> list[str]:
    """The task of each pod that the gang needs to start; "" for any task."""
    task_names = [
        task
        for task, least in sorted((group.spec.min_task_member or {}).items())
        for _ in range(least)
    ]
    return task_names + [""] * (max(1, group.spec.min_member) - len(task_names))


def member(
    group: scheduling.PodGroup,
    index: int,
    uid: str,
    scheduler_name: str,
    *,
    task: str = "",
    members: int = 1,
) -> core.Pod:
    """A pending pod of a gang whose pods are not known yet. It requests one of ``members`` equal
    parts of the gang's minimum resources. Raises ValueError for an invalid quantity."""
    parts: dict[str, core.Quantity] = {
        name: _part(name, amount, members)
        for name, amount in requirements.parse_sums(
            group.spec.min_resources or {}, "spec.minResources"
        ).items()
        if name != "pods"
    }
    requests = core.ResourceRequirements(requests=parts)
    return core.Pod(
        metadata=meta.ObjectMeta(
            name=f"{group.metadata.name}-forecast-{index}",
            namespace=group.metadata.namespace,
            uid=uid,
            creation_timestamp=group.metadata.creation_timestamp,
            annotations={keys.GROUP_NAME: group.metadata.name}
            | ({keys.TASK_SPEC: task} if task else {}),
        ),
        spec=core.PodSpec(
            scheduler_name=scheduler_name,
            priority_class_name=group.spec.priority_class_name,
            containers=(core.Container(name="main", resources=requests),),
        ),
        status=_PENDING,
    )


def _part(name: str, amount: int, parts: int) -> str:
    """An equal part of an amount, rounded up; devices are not divided."""
    unit = 1000 * parts if "/" in name else parts
    return units.text(name, -(-amount // unit) * (unit // parts))


def running(pending: core.Pod, node_name: str, at: datetime) -> core.Pod:
    """The pod on a node, running since this time."""
    spec: core.PodSpec = msgspec.structs.replace(pending.spec, node_name=node_name)
    status = core.PodStatus(phase="Running", start_time=at)
    pod: core.Pod = msgspec.structs.replace(pending, spec=spec, status=status)
    return pod


def succeeded(pod: core.Pod, at: datetime) -> core.Pod:
    """The running pod, ended at this time."""
    ready = core.Condition(type="Ready", status="False", last_transition_time=at)
    status = core.PodStatus(
        phase="Succeeded", start_time=pod.status.start_time, conditions=(ready,)
    )
    ended_pod: core.Pod = msgspec.structs.replace(pod, status=status)
    return ended_pod
