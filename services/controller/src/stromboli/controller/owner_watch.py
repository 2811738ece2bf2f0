"""Watches the owners of unmanaged pods, since their annotations determine the PodGroups.

The watch reads the API server directly, and only kinds that own such pods: no other service needs
these objects, so they are not published. It costs a paged list and one watch for each kind.
Transient errors only delay updates.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from stromboli.controller import isolation
from stromboli.controller.core.store import controller_cache
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port, watches
from stromboli.shared.runtime import runtime

PAGE = 200
"""Number of objects in a page of the list; a page has some megabytes at most."""
LOOK_S = 1.0
"""Interval at which to check whether there are pods with owners of a kind."""

_log = structlog.get_logger(__name__)


class OwnerWatch:
    """Follows the owners of unmanaged pods; ``follow`` runs until cancelled."""

    def __init__(
        self,
        cache: controller_cache.ControllerCache,
        cluster: port.Cluster,
        add_key: Callable[[controller_cache.ReconcileKey, str], None],
    ) -> None:
        self._cache = cache
        self._cluster = cluster
        self._add_key = add_key

    async def follow(self) -> None:
        """Follow all kinds concurrently."""
        async with asyncio.TaskGroup() as tasks:
            for kind in kinds.WORKLOADS:
                tasks.create_task(self._follow(kind))

    async def _follow(self, kind: kinds.Kind[Any]) -> None:
        backoff = runtime.Backoff()
        version = ""
        while True:
            while not self._cache.unmanaged_pods.has_owners(kind):
                await asyncio.sleep(LOOK_S)
                version = ""
            try:
                version = version or await self._list(kind)
                version = await self._watch(kind, version, backoff)
            except errors.ExpiredError:
                version = ""
                await asyncio.sleep(backoff.next_s())
            except errors.ExternalError as error:
                _log.warning("owners not watched", kind=kind.kind, reason=str(error))
                await asyncio.sleep(backoff.next_s(error.retry_after_s))

    async def _list(self, kind: kinds.Kind[Any]) -> str:
        """List all owners. Returns the resourceVersion from which to watch."""
        first = page = await self._cluster.page(kind, limit=PAGE)
        while True:
            for raw in page.items:
                self._apply(kind, raw)
            if not page.next:
                return first.resource_version
            page = await self._cluster.page(kind, limit=PAGE, after=page.next)

    async def _watch(self, kind: kinds.Kind[Any], version: str, backoff: runtime.Backoff) -> str:
        """Watch the kind until the server ends the watch. Returns the resourceVersion to continue
        from."""
        async with watches.closing(self._cluster.watch(kind, version), backoff) as events:
            async for event in events:
                backoff.reset()
                if (
                    event.type != "DELETED"
                ):  # its pods are deleted next, and remove it from the index
                    version = self._apply(kind, event.object) or version
        return version

    def _apply(self, kind: kinds.Kind[Any], raw: bytes) -> str:
        """Apply an owner, or a bookmark, which contains none. Returns the resourceVersion."""
        try:
            metadata = kinds.metadata_of(raw)
        except msgspec.DecodeError as error:
            _log.warning("owner not readable", kind=kind.kind, reason=str(error))
            return ""
        try:
            items = self._cache.note_owner(metadata.namespace, metadata.uid, metadata)
        except Exception as error:  # one owner must not stop the others
            isolation.report(error, "owner", name=metadata.key)
            return metadata.resource_version
        for item in items:
            self._add_key(item, "")
        return metadata.resource_version
