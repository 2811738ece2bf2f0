"""What a session can act on: which changes call for one and which do not."""

from typing import NamedTuple

from stromboli.scheduler.core.cluster import cluster_model
from stromboli.scheduler.core.model import entities, requirements
from stromboli.shared import snapshot
from stromboli.shared.api import scheduling, topology
from stromboli.shared.messages import scheduling as messages

_RESERVING_PHASES = ("Inqueue", "Running")
"""Phases in which a job's minimum resources count as awaited."""


class PodPlacement(NamedTuple):
    """What a pod takes of which node. Without a shape nobody knows how much."""

    node: str
    shape: requirements.PodRequirements | None
    status: entities.Status | None
    is_going: bool


def placement_of(
    of: cluster_model.ClusterModel, key: str, *, with_status: bool
) -> PodPlacement | None:
    """What the pod takes; None for nothing. ``with_status``: whether it matters how it runs."""
    task = of.tasks.get(key)
    if task is not None:
        if not task.node or task.status not in entities.ON_NODE:
            return None
        status = task.status if with_status else None
        is_going = task.status is entities.Status.RELEASING
        return PodPlacement(task.node, task.task_class.shape, status, is_going)
    node = of.unreadable.node_of(key)
    return PodPlacement(node, None, None, is_going=False) if node else None


def task_fingerprint(of: cluster_model.ClusterModel, key: str) -> tuple[object, ...]:
    """What of a pod its job's decisions depend on: not what is only told of it."""
    task = of.tasks.get(key)
    if task is None:
        return (of.problems.get(("pod", key)), of.unreadable.lost.get(key))
    nominated = task.pod.status.nominated_node_name
    known = (task.uid, task.job, task.role, task.priority, task.status, task.node, nominated)
    made = task.pod.status.resource_claim_statuses
    return (*known, task.task_class, task.is_gated, made)


def queue_fingerprint(state: snapshot.State) -> object:
    """What of a queue decisions depend on: its numbers, which every session changes, are told."""
    if not isinstance(state, scheduling.Queue):
        return state
    return (state.metadata.uid, state.metadata.annotations, state.spec, state.status.state)


def hyper_node_fingerprint(state: snapshot.State) -> object:
    """What of a HyperNode decisions depend on: its status is only told."""
    return state.spec if isinstance(state, topology.HyperNode) else state


class JobFingerprint(NamedTuple):
    """What of a job decisions depend on, its tasks aside."""

    uid: str
    is_going: bool
    phase: str
    spec: scheduling.PodGroupSpec


def job_fingerprint(job: entities.Job | None) -> JobFingerprint | None:
    """What of the job decisions depend on."""
    if job is None:
        return None
    group = job.pod_group
    return JobFingerprint(group.metadata.uid, job.is_going, job.phase, group.spec)


def releases_reserved_room(before: JobFingerprint | None, after: JobFingerprint | None) -> bool:
    """Whether others may get what was promised to the job."""
    return before is not None and before.phase in _RESERVING_PHASES and before != after


def is_actionable(job: entities.Job, told: messages.PodGroupExplained | None) -> bool:
    """Whether a session may do something about a waiting job, or has something new to say."""
    if job.frozen or job.is_pending:
        return True
    if job.roles_valid and job.valid >= job.min_available:
        return True
    return told is not None and told.tier != "gang"
