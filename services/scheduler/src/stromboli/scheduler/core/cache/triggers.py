"""Decides which changes of the cluster trigger a session.

A fingerprint holds the fields of an object that decisions depend on. A change that leaves the
fingerprint as it was, such as a new status or condition, triggers no session.
"""

from typing import NamedTuple

from stromboli.scheduler.core.cluster import cluster_model
from stromboli.scheduler.core.model import entities, requirements
from stromboli.shared import snapshot
from stromboli.shared.api import scheduling, topology
from stromboli.shared.messages import scheduling as messages

_RESERVING_PHASES = ("Inqueue", "Running")
"""Phases in which a job's minimum resources count as used by its queue."""


class PodPlacement(NamedTuple):
    """The node that a pod uses and what it uses there; ``shape`` is None for an unreadable pod."""

    node: str
    shape: requirements.PodRequirements | None
    status: entities.Status | None
    is_terminating: bool


def placement_of(
    of: cluster_model.ClusterModel, key: str, *, with_status: bool
) -> PodPlacement | None:
    """What the pod uses; None if it uses no node.

    ``with_status``: include the status, for sessions that may evict.
    """
    task = of.tasks.get(key)
    if task is not None:
        if not task.node or task.status not in entities.ON_NODE:
            return None
        status = task.status if with_status else None
        is_terminating = task.status is entities.Status.RELEASING
        return PodPlacement(task.node, task.task_class.shape, status, is_terminating)
    node = of.unreadable.node_of(key)
    return PodPlacement(node, None, None, is_terminating=False) if node else None


def may_attract(of: cluster_model.ClusterModel, key: str) -> bool:
    """Whether a pod without a gang that appears on a node may let another pod start, because a term
    of pod affinity or topology spread selects one of its labels. Changes of gangs start sessions
    anyway.
    """
    task = of.tasks.get(key)
    return task is not None and not task.job and bool(task.task_class.labels)


def task_fingerprint(of: cluster_model.ClusterModel, key: str) -> tuple[object, ...]:
    """The fields of a pod that decisions about its job depend on."""
    task = of.tasks.get(key)
    if task is None:
        return (of.problems.get(("pod", key)), of.unreadable.lost.get(key))
    nominated = task.pod.status.nominated_node_name
    known = (task.uid, task.job, task.role, task.priority, task.status, task.node, nominated)
    claim_statuses = task.pod.status.resource_claim_statuses
    return (*known, task.task_class, task.is_gated, claim_statuses)


def queue_fingerprint(state: snapshot.State) -> object:
    """The fields of a queue that decisions depend on: not the counts in its status."""
    if not isinstance(state, scheduling.Queue):
        return state
    return (state.metadata.uid, state.metadata.annotations, state.spec, state.status.state)


def hyper_node_fingerprint(state: snapshot.State) -> object:
    """The fields of a HyperNode that decisions depend on: not its status."""
    return state.spec if isinstance(state, topology.HyperNode) else state


class JobFingerprint(NamedTuple):
    """The fields of a job that decisions depend on, without its tasks."""

    uid: str
    is_terminating: bool
    phase: str
    spec: scheduling.PodGroupSpec


def job_fingerprint(job: entities.Job | None) -> JobFingerprint | None:
    """The fingerprint of a job; None without a job."""
    if job is None:
        return None
    group = job.pod_group
    return JobFingerprint(group.metadata.uid, job.is_terminating, job.phase, group.spec)


def releases_reserved_room(before: JobFingerprint | None, after: JobFingerprint | None) -> bool:
    """Whether room that was reserved for the job may have become free for others."""
    return before is not None and before.phase in _RESERVING_PHASES and before != after


def is_actionable(job: entities.Job, explained: messages.PodGroupExplained | None) -> bool:
    """Whether a session can place a waiting job, or must change its explanation."""
    if job.frozen or job.is_pending:
        return True
    if job.roles_valid and job.valid >= job.min_available:
        return True
    return explained is not None and explained.tier != "gang"
