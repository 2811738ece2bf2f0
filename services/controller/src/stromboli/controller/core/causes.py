"""Why a pod ends, in words that policies and the history share.

Kubernetes says it in three places: the pod's reason, its ``DisruptionTarget`` condition, and how
its containers ended.
"""

from stromboli.shared import keys
from stromboli.shared.api import core

OOM_KILLED = "OOMKilled"
NODE_LOST = "NodeLost"
DEADLINE_EXCEEDED = "DeadlineExceeded"
PREEMPTED = "Preempted"
CAUSES = frozenset({OOM_KILLED, NODE_LOST, DEADLINE_EXCEEDED, PREEMPTED})
"""Causes that a policy may name as its event."""

DISRUPTED = "DisruptionTarget"
PREEMPTION = "PreemptionByScheduler"
_DISRUPTIONS = {
    PREEMPTION: PREEMPTED,
    "DeletionByTaintManager": NODE_LOST,
    "DeletionByPodGC": NODE_LOST,
}
_REASONS = {
    DEADLINE_EXCEEDED: DEADLINE_EXCEEDED,
    NODE_LOST: NODE_LOST,
    "NodeShutdown": NODE_LOST,
    "Terminated": NODE_LOST,
    "Preempting": PREEMPTED,
    "Preempted": PREEMPTED,
}
"""``Terminated`` and ``NodeShutdown`` are the kubelet's words for a machine that shuts down."""


def of(pod: core.Pod) -> str:
    """The cause, empty if it is none that a policy may name. O(containers)."""
    disrupted = next(
        (it for it in pod.status.conditions if it.type == DISRUPTED and it.status == "True"), None
    )
    if disrupted is not None and disrupted.reason in _DISRUPTIONS:
        return _DISRUPTIONS[disrupted.reason]
    if pod.metadata.annotation(keys.EVICTED_AT):
        return PREEMPTED  # it was told beforehand
    if pod.status.reason in _REASONS:
        return _REASONS[pod.status.reason]
    if pod.status.phase == "Unknown":
        return NODE_LOST
    ends = (status.state.terminated for status in pod.status.container_statuses)
    if any(end is not None and end.reason == OOM_KILLED for end in ends):
        return OOM_KILLED
    return ""


def told(pod: core.Pod) -> str:
    """What the history says: the cause, else the kubelet's own reason for a pod that failed."""
    cause = of(pod)
    if cause or pod.status.phase != "Failed":
        return cause
    ends = (status.state.terminated for status in pod.status.container_statuses)
    return pod.status.reason or next((end.reason for end in ends if end and end.reason), "")
