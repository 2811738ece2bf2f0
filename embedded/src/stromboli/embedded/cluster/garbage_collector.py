"""Deletes objects whose owners are gone, as the garbage collector of Kubernetes does.

Owners are identified by uid. An object is deleted in the background when none of its owners exists;
while one does, only the references to missing owners are removed. An owner of an unknown kind
counts as present. Event objects are deleted an hour after their creation.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from stromboli.embedded.cluster import timestamps
from stromboli.embedded.cluster.state import Event, Key, State, key_of, resource_of
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port

EVENTS_KEPT = timedelta(hours=1)
_EVENTS_BETWEEN_SWEEPS = 1000
_RETRY_S = 1.0
"""Pause after a rejection, for instance by a webhook, before rejected deletions are retried."""

_KINDS = {resource_of(kind): kind for kind in kinds.BY_NAME.values()}
_log = structlog.get_logger(__name__)


class GarbageCollector:
    """Receives every durable change; ``run`` acts on them."""

    def __init__(self, state: State, clock: Callable[[], datetime]) -> None:
        self._state = state
        self._clock = clock
        self._dependents: defaultdict[str, set[Key]] = defaultdict(set)
        self._suspects: dict[Key, None] = {}
        self._wanted = asyncio.Event()
        self._events_made = 0
        state.when_published.append(self._handle_change)

    async def run(self, cluster: port.Cluster) -> None:
        """Collect indefinitely, starting with the objects that an earlier process left behind."""
        self._sweep_events()
        for key, stored in self._state.all_objects():
            self._link(key, stored.owners)
            self._suspects[key] = None
        self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            suspects, self._suspects = self._suspects, {}
            refused = [key for key in suspects if not await self._collect(cluster, key)]
            if refused:
                await asyncio.sleep(_RETRY_S)
                self._enqueue(*refused)

    def _handle_change(self, event: Event) -> None:
        """Queue the objects that a change may have orphaned."""
        if event.type == "DELETED":
            self._enqueue(*self._dependents.pop(event.stored.uid, ()))
        elif event.stored.owners:
            self._link(event.key, event.stored.owners)
            self._enqueue(event.key)
        if event.type == "ADDED" and event.key.resource == kinds.EVENTS.plural:
            self._events_made += 1
            if self._events_made % _EVENTS_BETWEEN_SWEEPS == 0:
                self._sweep_events()

    def _link(self, key: Key, owners: Iterable[str]) -> None:
        for uid in owners:
            self._dependents[uid].add(key)

    def _enqueue(self, *keys: Key) -> None:
        self._suspects |= dict.fromkeys(keys)
        self._wanted.set()

    def _sweep_events(self) -> None:
        """Queue the expired Event objects: no change announces that one has expired."""
        for key, stored in self._state.all(kinds.EVENTS).items():
            if self._is_old_event(kinds.EVENTS, stored.document()["metadata"]):
                self._enqueue(key)

    async def _collect(self, cluster: port.Cluster, key: Key) -> bool:
        """Delete the object, or remove references to missing owners. Returns False if a deletion
        was rejected and has to be retried."""
        stored = self._state.get(key)
        if stored is None:
            return True
        kind = _KINDS[key.resource]
        metadata = stored.document()["metadata"]
        references = metadata.get("ownerReferences") or []
        left = [owner for owner in references if not self._is_gone(owner, key.namespace)]
        try:
            if self._is_old_event(kind, metadata) or (references and not left):
                if "deletionTimestamp" not in metadata:
                    await cluster.delete(kind, key.namespace, key.name, uid=stored.uid)
            elif len(left) < len(references):
                await cluster.patch(
                    kind, key.namespace, key.name, _keep(left, references), patch_type="json"
                )
        except (errors.NotFoundError, errors.ConflictError):
            return True  # it changed meanwhile, so another event follows
        except errors.ExternalError as error:
            _log.warning("garbage not collected", object=key, reason=str(error))
            return False
        return True

    def _is_gone(self, owner: dict[str, Any], namespace: str) -> bool:
        kind = kinds.BY_NAME.get((owner["apiVersion"], owner["kind"]))
        if kind is None:
            return False
        stored = self._state.get(key_of(kind, namespace, owner["name"]))
        return stored is None or stored.uid != owner["uid"]

    def _is_old_event(self, kind: port.AnyKind, metadata: dict[str, Any]) -> bool:
        oldest = timestamps.timestamp(self._clock() - EVENTS_KEPT)
        return kind is kinds.EVENTS and metadata["creationTimestamp"] < oldest


def _keep(left: list[Any], references: list[Any]) -> bytes:
    path = "/metadata/ownerReferences"
    return msgspec.json.encode(
        [
            {"op": "test", "path": path, "value": references},
            {"op": "replace", "path": path, "value": left},
        ]
    )
