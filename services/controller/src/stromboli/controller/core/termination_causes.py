"""Termination causes of pods, as policies and published events name them.

Kubernetes records them in three places: the pod's reason, its ``DisruptionTarget`` condition, and
the termination of its containers.
"""

from collections.abc import Iterator

from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.shared.jobspec import policy_event_names

OOM_KILLED = policy_event_names.OOM_KILLED
NODE_LOST = policy_event_names.NODE_LOST
DEADLINE_EXCEEDED = policy_event_names.DEADLINE_EXCEEDED
PREEMPTED = policy_event_names.PREEMPTED
CAUSES = frozenset(policy_event_names.TERMINATION_CAUSES)
"""Causes that a policy may name as an event."""
FROM_OUTSIDE = frozenset({PREEMPTED, NODE_LOST})
"""Causes outside the pod."""

DISRUPTED = "DisruptionTarget"
"""The type of the condition of pods that are about to be terminated by the system."""
PREEMPTION = "PreemptionByScheduler"
NOTICE = "; it ends at "
"""Separator between the cause of an eviction and the end of its notice period."""
LONGEST_DETAIL = 253
"""Maximum length in characters of a detail in an event; other clients may write the condition,
too."""
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
"""Pod reasons -> causes. ``Terminated`` and ``NodeShutdown`` are the kubelet's reasons on a node
that shuts down."""


def of(pod: core.Pod) -> str:
    """The pod's termination cause; empty if it is none of ``CAUSES``. O(containers)."""
    disrupted = next(filter(is_disruption, pod.status.conditions), None)
    if disrupted is not None:
        return _DISRUPTIONS[disrupted.reason]
    if pod.metadata.annotation(keys.EVICTED_AT):
        return PREEMPTED  # evicted with a notice
    if pod.status.reason in _REASONS:
        return _REASONS[pod.status.reason]
    if pod.status.phase == "Unknown":
        return NODE_LOST
    if any(end.reason == OOM_KILLED for end in ends(pod)):
        return OOM_KILLED
    return ""


def is_disruption(condition: core.Condition) -> bool:
    """Whether the condition records one of ``CAUSES``. Kubernetes sets it to False, without a
    reason, if the pod is not deleted within two minutes."""
    is_true = condition.type == DISRUPTED and condition.status == "True"
    return is_true and condition.reason in _DISRUPTIONS


def has_succeeded(pod: core.Pod) -> bool:
    """Whether the pod succeeded by itself. The program of an evicted pod may exit with 0."""
    return pod.status.phase == "Succeeded" and of(pod) not in FROM_OUTSIDE


def end(pod: core.Pod) -> str:
    """The final phase of a pod that ended by itself; empty if it has not ended, or was evicted. A
    kubelet reports a pod that it kills for a deletion as failed before the pod is gone."""
    cause = of(pod)
    is_killed = pod.metadata.deletion_timestamp is not None and cause not in CAUSES
    if pod.status.phase == "Failed" and cause not in FROM_OUTSIDE and not is_killed:
        return pod.status.phase
    return pod.status.phase if has_succeeded(pod) else ""


def detail(pod: core.Pod) -> str:
    """Why and for which job a pod was evicted: ``preempted by job default/urgent of queue
    research``. Empty for a pod that was not evicted."""
    if of(pod) != PREEMPTED:
        return ""
    text = next((it.message for it in pod.status.conditions if it.reason == PREEMPTION), "")
    return text.partition(NOTICE)[0][:LONGEST_DETAIL]


def history_reason(pod: core.Pod) -> str:
    """The reason in published events: the cause, else the kubelet's reason for a failed pod."""
    cause = of(pod)
    if cause or pod.status.phase != "Failed":
        return cause
    badly = (end.reason for end in ends(pod) if end.exit_code and end.reason)
    return pod.status.reason or next(badly, "")


def exit_code(pod: core.Pod) -> int | None:
    """The first exit code of the pod's containers that is not 0, else 0; None if none has ended."""
    codes = [end.exit_code for end in ends(pod)]
    return next(filter(None, codes), 0) if codes else None


def first_exit_code(pod: core.Pod) -> int | None:
    """The exit code of the pod's first container, which policies compare; None if it has not
    ended."""
    for status in pod.status.container_statuses[:1]:
        if status.state.terminated is not None:
            return status.state.terminated.exit_code
    return None


def ends(pod: core.Pod) -> Iterator[core.ContainerTerminated]:
    """The terminations of the pod's containers, then of its init containers."""
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        if status.state.terminated is not None:
            yield status.state.terminated
