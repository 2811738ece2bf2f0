"""The plugin ``pdb``: evictions respect PodDisruptionBudgets."""

from collections.abc import Sequence

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, pod_terms
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.api import core

_Budget = tuple[core.PodDisruptionBudget, pod_terms.Selector]


class Plugin:
    """Has no arguments."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._budgets: dict[str, list[_Budget]] = {}
        self._unread: set[str] = set()

    def open(self, ssn: session.Session) -> None:
        """Remove candidates whose budget is used up. In a namespace with a budget that cannot be
        read, remove all."""
        unreadable = ssn.model.auxiliary.unreadable["disruption_budgets"]
        self._unread = {key.partition("/")[0] for key in unreadable}
        ssn.complaints.extend(
            f"PodDisruptionBudget {key} cannot be read: {why}; no pod of its namespace is evicted"
            for key, why in sorted(unreadable.items())
        )
        for budget in sorted(ssn.cluster.disruption_budgets, key=lambda each: each.metadata.key):
            selector = pod_terms.selector(budget.spec.selector, {})
            # An empty selector matches no pod here, as in Volcano.
            if selector is not None and selector.requirements:
                budgets = self._budgets.setdefault(budget.metadata.namespace, [])
                budgets.append((budget, selector))
        ssn.add_preemptable(lambda preemptor, candidates: self._within_budgets(candidates))
        ssn.add_reclaimable(lambda reclaimer, candidates: self._within_budgets(candidates))
        ssn.add_victim_tasks(lambda tasks: self._within_budgets(tasks).tasks)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _within_budgets(self, candidates: Sequence[entities.Task]) -> extension_points.Victims:
        """Return the first candidates that budgets allow. A pod without labels is never a
        victim."""
        left: dict[str, int] = {}
        return extension_points.Victims(
            [
                task
                for task in candidates
                if task.pod.metadata.labels
                and task.namespace not in self._unread
                and self._allows(task, left)
            ]
        )

    def _allows(self, task: entities.Task, left: dict[str, int]) -> bool:
        """Charge every budget that selects the pod. Returns whether all of them still allowed a
        disruption."""
        is_allowed = True
        labels = task.pod.metadata.labels or {}
        for budget, selector in self._budgets.get(task.namespace, ()):
            status, key = budget.status, budget.metadata.key
            if task.name in (status.disrupted_pods or {}) or not selector.matches(labels):
                continue
            left[key] = left.get(key, status.disruptions_allowed) - 1
            is_allowed = is_allowed and left[key] >= 0
        return is_allowed
