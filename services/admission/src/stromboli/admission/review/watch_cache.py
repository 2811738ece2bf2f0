"""Watches for REST clients: one cluster watch per kind, for any number of readers.

A watch cache keeps the latest changes of its kind in order. A reader keeps only the version it has
seen, so a slow reader costs little memory. A reader behind the oldest kept change gets ``reset``
and everything again. Resuming works the same way after a disconnect and after a restart: from a
version that the cache or the API server still has, else ``reset``.
"""

import asyncio
import bisect
import contextlib
import math
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Literal, Self

import msgspec

from stromboli.shared import errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.cluster import watches
from stromboli.shared.runtime import runtime, telemetry

MAX_EVENTS, MAX_BYTES = 10_000, 64 * 1024 * 1024
"""Maximum number and size of the changes kept for one kind: a minute of a busy cluster."""
BATCH = 256
"""Maximum changes that one reader holds at a time."""
NOTIFY_INTERVAL_S = 0.02
"""Wake-ups of readers are coalesced: the first is immediate, later ones of a burst are delayed by
this.
"""
MAX_READERS_PER_USER = 64
"""Maximum streams of one user, so that one user cannot take all of them."""
MAX_READERS = 256
"""Maximum concurrent streams; each costs a connection, and CPU for every change of its kind."""

WatchEventType = Literal["added", "modified", "deleted", "reset", "synced", "alive"]
_TYPES: Mapping[str, WatchEventType] = {
    "ADDED": "added",
    "MODIFIED": "modified",
    "DELETED": "deleted",
}


class ObjectSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Selects objects of a kind: by namespace, labels and name."""

    namespace: str = ""
    name: str = ""
    labels: dict[str, str] = {}

    def has(self, metadata: meta.ObjectMeta) -> bool:
        """Whether the selector matches an object."""
        return (
            self.namespace in ("", metadata.namespace)
            and self.name in ("", metadata.name)
            and self.labels.items() <= (metadata.labels or {}).items()
        )


class WatchEvent(msgspec.Struct, frozen=True):
    """An event for a reader. ``version`` is the version to resume from afterwards, or ``mark``
    where there is no version; with neither the previous one remains valid.
    """

    type: WatchEventType
    version: int = 0
    object: bytes = b""
    mark: str = ""


class Notifier:
    """Wakes all waiters, immediately and then at most every few milliseconds."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._is_missed = False

    def wait(self) -> "asyncio.Event":
        """The event that the next ``ring`` sets. Get it before checking for changes."""
        return self._rung

    def ring(self) -> None:
        """Wake all waiters, immediately or after the delay that coalesces a burst."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(NOTIFY_INTERVAL_S, self._again)
            self.ring_now()
        else:
            self._is_missed = True

    def _again(self) -> None:
        self._later = None
        if self._is_missed:
            self._is_missed = False
            self.ring()

    def ring_now(self) -> None:
        """Wake waiters immediately."""
        self._rung.set()
        self._rung = asyncio.Event()

    def still(self) -> None:
        """Cancel a pending wake-up."""
        if self._later is not None:
            self._later.cancel()


class WatchCache:
    """The changes of one kind after version ``since``, in order of their versions."""

    def __init__(
        self, cluster: cluster_port.Cluster, kind: cluster_port.AnyKind, events_kept: int
    ) -> None:
        self._cluster = cluster
        self._events_kept = events_kept
        self.kind = kind
        self.bell = Notifier()
        self.since = self.version = 0
        self._versions: list[int] = []
        self._changes: list[tuple[WatchEvent, meta.ObjectMeta]] = []
        self._bytes = 0

    async def begin(self, wanted: int) -> None:
        """Start at a version that a reader has seen, if possible; else at the current one."""
        now = await self.newest()
        self._forget(wanted if 0 < wanted <= now else now)

    async def newest(self) -> int:
        """The cluster's current version."""
        return int((await self._cluster.page(self.kind, limit=1)).resource_version)

    async def run(self) -> None:
        """Watch the cluster and keep its changes, until cancelled."""
        backoff = runtime.Backoff()
        while True:
            try:
                stream = self._cluster.watch(self.kind, str(self.version))
                async with watches.closing(stream, backoff) as events:
                    async for event in events:
                        backoff.reset()
                        self._take(event)
            except errors.ExpiredError:
                with contextlib.suppress(errors.TransientError):
                    self._forget(await self.newest())
                    self.bell.ring()
                await asyncio.sleep(backoff.next_s())
            except errors.ExternalError as error:
                telemetry.log.warning("watch failed", kind=self.kind.kind, error=str(error))
                await asyncio.sleep(backoff.next_s(error.retry_after_s))

    def behind(self, version: int) -> list[tuple[WatchEvent, meta.ObjectMeta]]:
        """The next changes after a version, at most ``BATCH``."""
        first = bisect.bisect_right(self._versions, version)
        return self._changes[first : first + BATCH]

    def _take(self, event: cluster_port.WatchEvent) -> None:
        metadata = kinds.metadata_of(event.object)
        if metadata.version <= self.version:
            return  # repeated
        self.version = metadata.version
        if event.type == "BOOKMARK":
            return
        self._versions.append(metadata.version)
        self._changes.append(
            (WatchEvent(_TYPES[event.type], metadata.version, event.object), metadata)
        )
        self._bytes += len(event.object)
        if len(self._changes) > self._events_kept or self._bytes > MAX_BYTES:
            self._cut()
        self.bell.ring()

    def _cut(self) -> None:
        """Drop the older half at once: each cut costs O(kept changes)."""
        count = (len(self._changes) + 1) // 2
        self._bytes -= sum(len(event.object) for event, _ in self._changes[:count])
        self.since = self._versions[count - 1]
        del self._versions[:count], self._changes[:count]

    def _forget(self, version: int) -> None:
        self._versions.clear()
        self._changes.clear()
        self._bytes = 0
        self.since = self.version = version


class WatchCaches:
    """The watch caches of all kinds. Use as an async context manager inside the server that serves
    their readers: exiting ends every stream, so that the server can stop.
    """

    def __init__(
        self,
        cluster: cluster_port.Cluster,
        alive_every_s: float,
        *,
        events_kept: int = MAX_EVENTS,
        readers: int = MAX_READERS,
        readers_of_one: int = MAX_READERS_PER_USER,
    ) -> None:
        self._cluster = cluster
        self._alive_every_s = alive_every_s
        self._events_kept = events_kept
        self._most_readers = readers
        self._most_of_one = readers_of_one
        self._of_users: Counter[str] = Counter()
        self._feeds: dict[cluster_port.AnyKind, tuple[WatchCache, asyncio.Task[None]]] = {}
        self._beginning = asyncio.Lock()
        self._readers: dict[cluster_port.AnyKind, int] = {}
        self.is_open = False
        self.explanations_changed = Notifier()
        """Rings when state outside the cluster, such as an explanation, has changed."""

    async def __aenter__(self) -> Self:
        self.is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.is_open = False
        tasks = [task for _, task in self._feeds.values()]
        for feed, task in self._feeds.values():
            task.cancel()
            feed.bell.ring_now()
            feed.bell.still()
        self.explanations_changed.ring_now()
        self.explanations_changed.still()
        self._feeds.clear()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def watched(self) -> int:
        """The number of kinds that are watched now."""
        return len(self._feeds)

    async def follow(
        self,
        kind: cluster_port.AnyKind,
        chosen: ObjectSelector,
        last_version: int = 0,
        *,
        lasts_s: float = math.inf,
        explanations_changed: Notifier | None = None,
        user: str = "",
    ) -> AsyncGenerator[WatchEvent, None]:
        """All objects, then ``synced``, then every change; or the changes after ``last_version``.

        Changes during the initial list may be sent twice. ``alive`` is sent after each silence, and
        whenever ``explanations_changed`` rings. Ends after ``lasts_s`` seconds, but not before the
        initial list is complete; or when the caches close. ``user``: the owner of the stream; empty
        without accounts. Raises ExternalError if the cluster is unavailable, TransientError if
        there are too many readers, RateLimitedError if the user has too many.
        """
        until = runtime.timer_at(asyncio.get_running_loop().time() + lasts_s)
        async with self._reading(kind, last_version, user) as (feed, task):
            if last_version > feed.version and last_version > await feed.newest():
                yield WatchEvent("reset")  # a version of another cluster
                last_version = 0
            has_begun = False
            while self.is_open and not task.done():
                left = max(until - asyncio.get_running_loop().time(), 0.0)
                if has_begun and left == 0:
                    return
                has_begun = True
                rung = feed.bell.wait()
                other = explanations_changed.wait() if explanations_changed else None
                if last_version < feed.since:
                    if last_version:
                        yield WatchEvent("reset")
                    async for event in self._everything(kind, chosen):
                        last_version = event.version
                        yield event
                elif changes := feed.behind(last_version):
                    for event, metadata in changes:
                        last_version = event.version
                        if chosen.has(metadata):
                            yield event
                elif not await _is_notified(min(left, self._alive_every_s), rung, other):
                    last_version = max(last_version, feed.version)
                    yield WatchEvent("alive", last_version)
                elif other is not None and other.is_set():
                    yield WatchEvent("alive", last_version)

    async def _everything(
        self, kind: cluster_port.AnyKind, chosen: ObjectSelector
    ) -> AsyncGenerator[WatchEvent, None]:
        """All objects in pages, so that a slow reader holds one page. Then ``synced`` with the
        first page's version, after which every change is sent.
        """
        first = await self._cluster.page(kind, chosen.namespace, chosen.labels, limit=1)
        if chosen.name:
            with contextlib.suppress(errors.NotFoundError):
                raw_object = await self._cluster.get(kind, chosen.namespace, chosen.name)
                yield WatchEvent("added", object=raw_object)
        else:
            after = ""
            while True:
                page = await self._cluster.page(
                    kind, chosen.namespace, chosen.labels, limit=BATCH, after=after
                )
                for item in page.items:
                    yield WatchEvent("added", object=item)
                after = page.next
                if not after:
                    break
        yield WatchEvent("synced", int(first.resource_version))

    @contextlib.asynccontextmanager
    async def _reading(
        self, kind: cluster_port.AnyKind, last_version: int, user: str
    ) -> AsyncGenerator[tuple[WatchCache, "asyncio.Task[None]"], None]:
        """The watch cache of a kind while it has readers. The first reader starts it."""
        what = f"watch {kind.plural}"
        if sum(self._readers.values()) >= self._most_readers:
            raise errors.TransientError(
                what, f"the limit of {self._most_readers} open streams is reached"
            )
        if user and self._of_users[user] >= self._most_of_one:
            why = f"you have reached the limit of {self._most_of_one} open streams; close some"
            raise errors.RateLimitedError(what, why)
        self._readers[kind] = self._readers.get(kind, 0) + 1
        self._of_users[user] += 1
        try:
            async with self._beginning:
                if not self.is_open:
                    raise errors.TransientError(what, "the server is stopping")
                if kind not in self._feeds or self._feeds[kind][1].done():
                    feed = WatchCache(self._cluster, kind, self._events_kept)
                    await feed.begin(last_version)
                    self._feeds[kind] = feed, asyncio.create_task(feed.run())
                reading = self._feeds[kind]
            yield reading
        finally:
            self._readers[kind] -= 1
            self._of_users -= Counter({user: 1})
            if not self._readers[kind] and kind in self._feeds:
                feed, task = self._feeds.pop(kind)
                task.cancel()
                feed.bell.still()


async def _is_notified(within_s: float, *bells: asyncio.Event | None) -> bool:
    """Whether one of the events was set within the time, in seconds."""
    waits = [asyncio.ensure_future(bell.wait()) for bell in bells if bell is not None]
    try:
        done, _ = await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    return bool(done)
