"""Detects pods whose placement was rejected by their node. Pure."""

from stromboli.shared.api import core

REASONS = frozenset(
    {
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
"""Reasons for which a kubelet rejects the placement of a pod, in addition to ``OutOf<resource>``.
Source: Kubernetes, pkg/kubelet/lifecycle/predicate.go, and the kubelet's resource managers."""


def is_rejected(pod: core.Pod) -> bool:
    """Whether the node rejected the placement of the pod, so that none of its containers ever
    ran."""
    reason = pod.status.reason
    if pod.status.phase != "Failed" or pod.status.container_statuses:
        return False
    return reason in REASONS or reason.startswith("OutOf")
