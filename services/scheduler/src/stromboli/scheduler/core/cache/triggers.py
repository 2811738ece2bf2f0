"""Decides which changes of the cluster trigger a session.

A fingerprint holds the fields of an object that decisions depend on. A change that leaves the
fingerprint as it was, such as a new status or condition, triggers no session.
"""

from typing import NamedTuple

from stromboli.scheduler.core.cluster import cluster_model
from stromboli.scheduler.core.model import entities, requirements
from stromboli.shared import keys, snapshot
from stromboli.shared.api import meta, scheduling, scheduling_view, topology
from stromboli.shared.messages import scheduling as messages

_RESERVING_PHASES = ("Inqueue", "Running")
"""Phases in which a job's minimum resources count as used by its queue."""


class SchedulingMetadata:
    """The labels and scheduling annotations of an object, for comparisons. Plugins read many of
    them, for example whether a pod may be evicted, or whether its devices are set up.

    Ids of decisions do not count: outcomes and other fields show their effect.
    """

    __slots__ = ("_metadata",)

    def __init__(self, metadata: meta.ObjectMeta) -> None:
        self._metadata = metadata

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchedulingMetadata):
            return NotImplemented
        first, second = self._metadata, other._metadata
        if (first.labels or {}) != (second.labels or {}):
            return False
        # Few changes touch annotations, and filtering them costs more than comparing all.
        return first.annotations == second.annotations or _filtered(first) == _filtered(second)

    __hash__ = None  # type: ignore[assignment]  # compared only


def _filtered(metadata: meta.ObjectMeta) -> dict[str, str]:
    annotations = scheduling_view.scheduling_annotations(metadata.annotations)
    annotations.pop(keys.DECISION, None)
    return annotations


class PodPlacement(NamedTuple):
    """The node that a pod uses and what it uses there; ``shape`` and ``metadata`` are None for
    an unreadable pod."""

    node: str
    shape: requirements.PodRequirements | None
    status: entities.Status | None
    is_terminating: bool
    metadata: SchedulingMetadata | None


def placement_of(
    of: cluster_model.ClusterModel, key: str, *, with_status: bool
) -> PodPlacement | None:
    """The node that the pod uses and what it uses there; None if it uses no node.

    ``with_status``: include the status, for sessions that may evict.
    """
    task = of.tasks.get(key)
    if task is not None:
        if not task.node or task.status not in entities.ON_NODE:
            return None
        status = task.status if with_status else None
        is_terminating = task.status is entities.Status.RELEASING
        shape, metadata = task.task_class.shape, SchedulingMetadata(task.pod.metadata)
        return PodPlacement(task.node, shape, status, is_terminating, metadata)
    node = of.unreadable.node_of(key)
    return PodPlacement(node, None, None, is_terminating=False, metadata=None) if node else None


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
    metadata = SchedulingMetadata(task.pod.metadata)
    return (*known, task.task_class, task.is_gated, claim_statuses, metadata)


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
    metadata: SchedulingMetadata


def job_fingerprint(job: entities.Job | None) -> JobFingerprint | None:
    """The fingerprint of a job; None without a job."""
    if job is None:
        return None
    group = job.pod_group
    metadata = SchedulingMetadata(group.metadata)
    return JobFingerprint(group.metadata.uid, job.is_terminating, job.phase, group.spec, metadata)


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
