"""Rejects pods beyond quotas and keeps the usage in the status of each quota.

``QuotaUsage`` decides. Like the quota controller of Kubernetes, it updates the status in the
background, with as few writes as possible.
"""

import asyncio
from typing import Any

import msgspec
import structlog

from stromboli.embedded.cluster import quota_usage
from stromboli.embedded.cluster.state import Event, State
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port

Document = dict[str, Any]

_log = structlog.get_logger(__name__)


class QuotaController:
    """Receives every change when it is decided; ``run`` writes the statuses of quotas."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._usage = quota_usage.QuotaUsage(self._pods_of)
        self._stale: dict[tuple[str, str], None] = {}
        self._wanted = asyncio.Event()
        state.when_decided.append(self._handle_change)

    def begin(self) -> None:
        """Load the quotas after the cluster's file was opened."""
        self._usage = quota_usage.QuotaUsage(self._pods_of)
        for key, stored in self._state.all(kinds.RESOURCE_QUOTAS).items():
            self._usage.open(key.namespace, key.name, stored.raw)
            self._enqueue(key.namespace, [key.name])
        for problem in self._usage.problems():
            _log.warning("ResourceQuota cannot be enforced", problem=problem)

    def _handle_change(self, event: Event) -> None:
        """Update usage with a decided change."""
        self._enqueue(event.key.namespace, self._usage.apply(event))

    def check(self, pod: Document, what: str) -> None:
        """Raise InvalidError for a new pod beyond a quota."""
        refusal = self._usage.refusal(pod)
        if refusal is not None:
            raise errors.InvalidError(what, refusal)

    async def run(self, cluster: port.Cluster) -> None:
        """Write changed statuses of quotas until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            stale, self._stale = self._stale, {}
            for namespace, name in stale:
                await self._write(cluster, namespace, name)

    async def _write(self, cluster: port.Cluster, namespace: str, name: str) -> None:
        status = self._usage.status(namespace, name)
        if status is None:
            return
        patch = msgspec.json.encode([{"op": "add", "path": "/status", "value": status}])
        try:
            await cluster.patch(
                kinds.RESOURCE_QUOTAS,
                namespace,
                name,
                patch,
                patch_type="json",
                subresource="status",
            )
        except errors.NotFoundError:
            return  # it was deleted meanwhile
        except (
            errors.ExternalError
        ) as error:  # the store has stopped, so no status can be written any more
            _log.warning("status of quota not written", quota=name, reason=str(error))

    def _enqueue(self, namespace: str, names: list[str]) -> None:
        if names:
            self._stale |= dict.fromkeys((namespace, name) for name in names)
            self._wanted.set()

    def _pods_of(self, namespace: str) -> list[bytes]:
        return [stored.raw for stored in self._state.newest_of(kinds.PODS, namespace)]
