"""The history of nodes, pods, jobs, flows and claims on an API server, recorded by watches.

Raw requests without the system's code, continued through restarts of the server. A restarted server
forgets old versions; then its list is compared with the last known state, so one of two changes
within that second may be missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from stromboli.testkit.parts import api, real

Event = dict[str, Any]
Object = dict[str, Any]
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Job": "/apis/batch.volcano.sh/v1alpha1/jobs",
    "JobFlow": "/apis/flow.volcano.sh/v1alpha1/jobflows",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims",
}
PAUSE_S = 0.1
"""Between attempts while the server is not reachable."""
LONGEST_LINE = 1 << 20
GONE = 410


class _ExpiredError(Exception):
    """The server no longer has the version from which the watch should continue."""


class ApiHistory:
    """The events of these kinds since the beginning; list it when nothing has happened yet.
    ``events`` is in the order of each kind; ``ordered`` is in the server's."""

    def __init__(self, parts: real.RealParts) -> None:
        self.events: list[Event] = []
        self._objects: dict[str, dict[str, Object]] = {kind: {} for kind in PATHS}
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._session = aiohttp.ClientSession(
            base_url=parts.api_url,
            headers={"Authorization": f"Bearer {parts.token}"},
            connector=aiohttp.TCPConnector(ssl=api.tls_context(parts.ca_file)),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=90),
            read_bufsize=LONGEST_LINE,
        )

    def objects(self, kind: str, namespace: str) -> list[Object]:
        """The present objects according to the recorded events."""
        found = self._objects[kind].values()
        return [it for it in found if it["metadata"]["namespace"] == namespace]

    def ordered(self, namespaces: frozenset[str]) -> list[Event]:
        """Events of nodes, of volumes and of these namespaces in the order in which the server made
        them: all kinds share the counter of its store."""
        mine = (
            event
            for event in self.events
            if event["object"]["metadata"].get("namespace") in (*namespaces, None)
        )
        return sorted(mine, key=lambda it: int(it["object"]["metadata"]["resourceVersion"]))

    async def until(self, holds: Callable[[], bool], within_s: float) -> None:
        """Return when ``holds`` is true, checked after each event. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while not holds():
                for task in self._tasks:
                    if task.done():
                        task.result()  # raises why nothing is recorded any more
                await self._changed.wait()

    async def quiet(self, for_s: float, within_s: float) -> None:
        """Return once nothing has happened for so long. Raises TimeoutError."""
        async with asyncio.timeout(within_s):
            while True:
                try:
                    async with asyncio.timeout(for_s):
                        await self._changed.wait()
                except TimeoutError:
                    return

    @contextlib.asynccontextmanager
    async def recording(self) -> AsyncIterator[ApiHistory]:
        """Record during the context; all existing objects are recorded when it starts."""
        async with self._session:
            versions = {kind: await self._list(kind) for kind in PATHS}
            self._tasks = [asyncio.create_task(self._follow(*of)) for of in versions.items()]
            for task in self._tasks:
                task.add_done_callback(lambda _: self._changed.set())
            try:
                yield self
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.wait(self._tasks)

    async def _follow(self, kind: str, version: str) -> None:
        while True:
            try:
                async for line in self._watch(kind, version):
                    version = self._take(kind, json.loads(line)) or version
            except _ExpiredError:
                version = ""
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
            while not version:
                try:
                    version = await self._list(kind)
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(PAUSE_S)

    async def _watch(self, kind: str, version: str) -> AsyncIterator[bytes]:
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        async with self._session.get(PATHS[kind], params=query) as answer:
            if answer.status == GONE:
                raise _ExpiredError
            answer.raise_for_status()
            async for line in answer.content:
                yield line

    def _take(self, kind: str, event: Event) -> str:
        """Take in an event; the version it brings us to."""
        if event["type"] == "ERROR":
            if event["object"].get("code") == GONE:
                raise _ExpiredError
            return ""
        if event["type"] != "BOOKMARK":
            self._note(kind, event["type"], event["object"])
        return str(event["object"]["metadata"]["resourceVersion"])

    def _note(self, kind: str, change: str, thing: Object, *, listed: bool = False) -> None:
        thing["kind"] = kind
        uid = thing["metadata"]["uid"]
        if change == "DELETED":
            self._objects[kind].pop(uid, None)
        else:
            self._objects[kind][uid] = thing
        event = {"type": change, "object": thing, "at": time.time(), "listed": listed}
        self.events.append(event)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _list(self, kind: str) -> str:
        """Compare with what the server has; the version of its list."""
        async with self._session.get(PATHS[kind]) as answer:
            answer.raise_for_status()
            listed = await answer.json()
        version = str(listed["metadata"]["resourceVersion"])
        there = {item["metadata"]["uid"]: item for item in listed["items"]}
        known = dict(self._objects[kind])
        for uid, thing in known.items():
            if uid not in there:
                gone = {**thing, "metadata": {**thing["metadata"], "resourceVersion": version}}
                self._note(kind, "DELETED", gone, listed=True)
        for uid, item in there.items():
            if uid not in known:
                self._note(kind, "ADDED", item, listed=True)
            elif item["metadata"]["resourceVersion"] != _version_of(known[uid]):
                self._note(kind, "MODIFIED", item, listed=True)
        return version


def _version_of(thing: Object) -> str:
    return str(thing["metadata"]["resourceVersion"])
