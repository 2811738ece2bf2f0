"""Taints and tolerations, as kube-scheduler and kubelets understand them."""

from collections.abc import Sequence

from stromboli.shared.api import core

_REPELLING = frozenset({"NoSchedule", "NoExecute"})
UNSCHEDULABLE = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of a cordoned node."""
NOT_READY = core.Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
"""The taint of a node that is not ready."""


def tolerates(tolerations: Sequence[core.Toleration], taint: core.Taint) -> bool:
    """Whether the taint allows a pod with these tolerations: it is tolerated, or its effect is only
    a preference.
    """
    return taint.effect not in _REPELLING or any(
        (not toleration.effect or toleration.effect == taint.effect)
        and (not toleration.key or toleration.key == taint.key)
        and (
            toleration.operator == "Exists"
            or (bool(toleration.key) and toleration.value == taint.value)
        )
        for toleration in tolerations
    )


def rejection(node: core.Node, tolerations: Sequence[core.Toleration]) -> str:
    """Why the node accepts no new pod with these tolerations; empty if it accepts one."""
    name = node.metadata.name
    conditions = node.status.conditions
    is_ready = all(each.type != "Ready" or each.status == "True" for each in conditions)
    if not is_ready and not tolerates(tolerations, NOT_READY):
        return f"node {name} is not ready"
    if node.spec.unschedulable and not tolerates(tolerations, UNSCHEDULABLE):
        return f"node {name} is cordoned"
    repelling = (taint for taint in node.spec.taints if not tolerates(tolerations, taint))
    return next((f"node {name} has the taint {taint.key}" for taint in repelling), "")
