"""Keeps the status of PodDisruptionBudgets, which schedulers read, and checks evictions.

Like the disruption controller of Kubernetes, it updates statuses in the background, with one write
for any number of changed pods. An eviction is checked against the newest pods, not the status.
"""

import asyncio

import msgspec
import structlog

from stromboli.embedded.cluster import disruption_budgets
from stromboli.embedded.cluster.disruption_budgets import Budget
from stromboli.embedded.cluster.state import Event, State, Stored, resource_of
from stromboli.shared import decoding, errors
from stromboli.shared.api import core, kinds
from stromboli.shared.cluster import port

_log = structlog.get_logger(__name__)
_BUDGET = decoding.decoder_of(Budget)
_BUDGETS = resource_of(kinds.DISRUPTION_BUDGETS)
_PODS = resource_of(kinds.PODS)


class DisruptionController:
    """Receives every change when it is decided; ``run`` writes the statuses of budgets."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._protected: set[str] = set()
        """Namespaces that have had a budget; changes of pods in others are ignored."""
        self._stale: dict[str, None] = {}
        self._wanted = asyncio.Event()
        state.when_decided.append(self._handle_change)

    def begin(self) -> None:
        """Load the budgets after the cluster's file was opened."""
        for key in self._state.all(kinds.DISRUPTION_BUDGETS):
            self._protected.add(key.namespace)
            self._enqueue(key.namespace)

    def _handle_change(self, event: Event) -> None:
        if event.key.resource == _BUDGETS:
            self._protected.add(event.key.namespace)
        if event.key.resource in (_BUDGETS, _PODS) and event.key.namespace in self._protected:
            self._enqueue(event.key.namespace)

    def _enqueue(self, namespace: str) -> None:
        self._stale[namespace] = None
        self._wanted.set()

    def check(self, pod: core.Pod, what: str) -> None:
        """Check an eviction. Raises DisruptionBudgetError, TransientError."""
        namespace = pod.metadata.namespace
        if namespace not in self._protected:
            return
        try:
            budgets = [decoding.decode(_BUDGET, each.raw) for each in self._budgets(namespace)]
        except msgspec.DecodeError as error:  # unreadable: no pod may be evicted
            reason = f"a PodDisruptionBudget of namespace {namespace} cannot be read: {error}"
            raise errors.DisruptionBudgetError(what, reason) from None
        disruption_budgets.check(pod, budgets, self._pods(namespace), what)

    async def run(self, cluster: port.Cluster) -> None:
        """Write changed statuses of budgets until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            stale, self._stale = self._stale, {}
            for namespace in stale:
                await self._update(cluster, namespace)

    async def _update(self, cluster: port.Cluster, namespace: str) -> None:
        """Write the statuses of a namespace that changed."""
        budgets = self._budgets(namespace)
        pods = self._pods(namespace) if budgets else []
        for stored in budgets:
            try:
                budget = decoding.decode(_BUDGET, stored.raw)
                counts = disruption_budgets.counts(budget, pods)
            except ValueError as error:  # DecodeError is a ValueError
                name = kinds.metadata_of(stored.raw).key
                _log.warning("PodDisruptionBudget cannot be read", budget=name, reason=str(error))
                continue
            status = msgspec.to_builtins(counts)
            status["observedGeneration"] = budget.metadata.generation
            old = stored.document().get("status") or {}
            if any(old.get(field) != value for field, value in status.items()):
                await self._write(cluster, budget, {"status": status})

    async def _write(
        self, cluster: port.Cluster, budget: Budget, change: dict[str, object]
    ) -> None:
        try:
            await cluster.patch(
                kinds.DISRUPTION_BUDGETS,
                budget.metadata.namespace,
                budget.metadata.name,
                msgspec.json.encode(change),
                patch_type="merge",
                subresource="status",
            )
        except errors.NotFoundError:
            return  # deleted meanwhile
        except errors.ExternalError as error:
            name = budget.metadata.key
            _log.warning("status of budget not written", budget=name, reason=str(error))

    def _budgets(self, namespace: str) -> list[Stored]:
        return self._state.newest_of(kinds.DISRUPTION_BUDGETS, namespace)

    def _pods(self, namespace: str) -> list[core.Pod]:
        return [
            kinds.PODS.decode(stored.raw) for stored in self._state.newest_of(kinds.PODS, namespace)
        ]
