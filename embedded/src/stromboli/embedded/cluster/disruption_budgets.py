"""PodDisruptionBudgets: how many pods may be evicted, and whether a given pod may. Pure.

Source: the disruption controller and ``registry/core/pod/storage/eviction.go`` of Kubernetes 1.34.
Difference from Kubernetes: ``maxUnavailable`` and percentages refer to the pods that exist, not to
the replicas that their owner specifies.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stromboli.shared import errors
from stromboli.shared.api import core, label_selectors, meta

Document = dict[str, Any]
_UNPROTECTED = ("", "Pending", "Succeeded", "Failed")
"""Phases in which a budget does not protect a pod."""
RETRY_AFTER_S = 10.0


class _Spec(meta.Part, frozen=True, kw_only=True):
    selector: core.LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class Budget(meta.Object, frozen=True, kw_only=True):
    """A PodDisruptionBudget with the fields that determine whether a pod may be evicted."""

    spec: _Spec = _Spec()

    def selects(self, pod: core.Pod) -> bool:
        """Return whether the budget protects the pod. An absent selector selects no pod, an empty
        one all pods."""
        selector = self.spec.selector
        return selector is not None and label_selectors.matches(selector, pod.metadata.labels or {})


class Counts(msgspec.Struct, frozen=True, rename="camel"):
    """The counts in the status of a budget."""

    current_healthy: int
    desired_healthy: int
    expected_pods: int
    disruptions_allowed: int


def counts(budget: Budget, pods: Iterable[core.Pod]) -> Counts:
    """Return the counts of a budget over the pods of its namespace. Raises ValueError for a
    number that is neither an integer nor a percentage. O(pods)."""
    selected = [
        pod
        for pod in pods
        if budget.selects(pod) and pod.status.phase not in ("Succeeded", "Failed")
    ]
    healthy, expected = sum(map(is_healthy, selected)), len(selected)
    if budget.spec.max_unavailable is not None:
        desired = max(expected - _scaled(budget.spec.max_unavailable, expected), 0)
    else:
        desired = _scaled(budget.spec.min_available or 0, expected)
    return Counts(healthy, desired, expected, max(healthy - desired, 0))


def is_healthy(pod: core.Pod) -> bool:
    """Return whether a pod is ready and not being deleted."""
    is_ready = any(it.type == "Ready" and it.status == "True" for it in pod.status.conditions)
    return is_ready and pod.metadata.deletion_timestamp is None


def check(pod: core.Pod, budgets: Sequence[Budget], pods: Sequence[core.Pod], what: str) -> None:
    """Check an eviction. Raises DisruptionBudgetError, and TransientError for a pod that two
    budgets select, as an API server does."""
    if pod.status.phase in _UNPROTECTED or pod.metadata.deletion_timestamp is not None:
        return
    selecting = [budget for budget in budgets if budget.selects(pod)]
    if not selecting:
        return
    if len(selecting) > 1:
        names = ", ".join(sorted(budget.metadata.name for budget in selecting))
        raise errors.TransientError(what, f"several PodDisruptionBudgets select the pod: {names}")
    (budget,) = selecting
    try:
        pod_counts = counts(budget, pods)
    except ValueError as error:  # unreadable: no pod may be evicted
        name = budget.metadata.name
        reason = f"PodDisruptionBudget {name} cannot be read: {error}"
        raise errors.DisruptionBudgetError(what, reason, RETRY_AFTER_S) from None
    if not _allows(budget, pod_counts, is_pod_healthy=is_healthy(pod)):
        reason = (
            f"the PodDisruptionBudget {budget.metadata.name} needs {pod_counts.desired_healthy} "
            f"healthy pods and has {pod_counts.current_healthy}"
        )
        raise errors.DisruptionBudgetError(what, reason, RETRY_AFTER_S)


def _allows(budget: Budget, pod_counts: Counts, *, is_pod_healthy: bool) -> bool:
    if not is_pod_healthy:
        if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return True
        if pod_counts.current_healthy >= pod_counts.desired_healthy > 0:
            return True  # the eviction does not lower the number of healthy pods
    return pod_counts.disruptions_allowed > 0


def _scaled(value: int | str, total: int) -> int:
    """Return a number, or a percentage of the total, rounded up."""
    if isinstance(value, int):
        return value
    if not (value.endswith("%") and value[:-1].isdecimal()):
        raise ValueError(f"{value!r} is neither a number nor a percentage")
    return math.ceil(int(value[:-1]) * total / 100)
