"""Pods whose placement their node rejected. Pure."""

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
"""Reasons by which a kubelet rejects a pod because of its placement, beside ``OutOf<resource>``.
Source: Kubernetes, pkg/kubelet/lifecycle/predicate.go, and the kubelet's resource managers."""


def is_rejected(pod: core.Pod) -> bool:
    """Whether the node rejected the placement of a pod, so that no container of it ever ran."""
    reason = pod.status.reason
    if pod.status.phase != "Failed" or pod.status.container_statuses:
        return False
    return reason in REASONS or reason.startswith("OutOf")
