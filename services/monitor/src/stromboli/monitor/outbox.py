"""Queues the drafts of one kind and appends them to the log in order.

A draft is appended immediately; drafts that arrive meanwhile go out together afterwards. During a
burst, appends happen at ticks that all kinds share: an append costs the log and all readers a round
trip, whatever its size. One append is in flight at a time, so that a retried one cannot be
overtaken.
"""

import asyncio
import functools
import itertools
from collections.abc import Callable

import msgspec
import structlog

from stromboli.shared import envelope, errors
from stromboli.shared.api import meta
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster
from stromboli.shared.runtime import runtime, telemetry

MAX_BATCH = 1000
"""Drafts in one append: some megabytes."""
MAX_QUEUED = 5000
"""Drafts held while the log is unavailable; then reading the cluster waits."""
TICK_MS = 50
TICK_S = TICK_MS / 1000
FEW, FEW_PER_S = 20, 200.0
"""Initial drafts, and drafts per second afterwards, that do not count as a burst: the pods of one
job.
"""

_appends = telemetry.meter.create_counter(
    "stromboli.monitor.records", description="Snapshots and tombstones acknowledged by the log"
)


_rejected = telemetry.meter.create_counter(
    "stromboli.monitor.rejected", description="Records that the log rejects"
)
_OF_ONE_DRAFT = (errors.TooLargeError, TypeError, ValueError, OverflowError, RecursionError)
"""Errors of an append that one draft causes: it is too large, or cannot be encoded."""
_log = structlog.get_logger(__name__)


def to_next_tick_s(now: float) -> float:
    """Seconds until the next tick, at least a millisecond: a shorter wait would add a second tick
    at almost the same time.
    """
    return (TICK_MS - round(now * 1000) % TICK_MS) / 1000


class BurstDetector:
    """Detects bursts by a leaky bucket: more than ``FEW`` at once and ``FEW_PER_S`` a second. A
    burst ends at most a tick after its last draft. O(1).
    """

    def __init__(self) -> None:
        self._left = float(FEW)
        self._at = 0.0

    def is_burst(self, count: int, now: float) -> bool:
        """Whether these drafts are part of a burst. ``now``: the time of a monotonic clock, in
        seconds."""
        left = min(self._left + (now - self._at) * FEW_PER_S, FEW) - count
        self._left, self._at = max(left, -TICK_S * FEW_PER_S), now
        return left < 0


class Outbox:
    """The queued drafts of one kind. ``position``: the offset after the last appended record.

    ``keeps_newest``: a draft replaces a queued one of its key. For reports of nodes, which do not
    wait for room: while the log is unavailable, the queue has one draft of a node at most, however
    often its agent sends another report.
    """

    def __init__(
        self,
        writer: port.Writer,
        health: runtime.Health,
        position: int,
        *,
        keeps_newest: bool = False,
    ) -> None:
        self.position = position
        self._writer = writer
        self._health = health
        self._keeps_newest = keeps_newest
        self._waiting: dict[str | int, envelope.Draft] = {}
        """In order; by key if only the newest draft of a key is kept, else by number."""
        self._put = 0
        self._appended = 0
        self._filled = asyncio.Event()
        self._progress = asyncio.Condition()

    def put(self, draft: envelope.Draft | None) -> None:
        """Queue a draft, unless it is None. Never waits."""
        if draft is None:
            return
        place = draft.key if self._keeps_newest else self._put
        self._put += place not in self._waiting
        self._waiting[place] = draft
        self._filled.set()

    async def room(self) -> None:
        """Return when the queue has room for more drafts."""
        if len(self._waiting) >= MAX_QUEUED:
            await self._until(lambda: len(self._waiting) < MAX_QUEUED)

    async def settled(self) -> int:
        """The position, once everything queued so far is acknowledged."""
        put = self._put
        await self._until(lambda: self._appended >= put)
        return self.position

    async def append(self, draft: envelope.Draft) -> None:
        """Queue a draft once there is room, and return when it is acknowledged. A cancelled call
        may have queued it."""
        await self.room()
        self.put(draft)
        await self.settled()

    async def run(self) -> None:
        """Append indefinitely. Raises LogLostError, and permanent errors."""
        loop, flow = asyncio.get_running_loop(), BurstDetector()
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                places = list(itertools.islice(self._waiting, MAX_BATCH))
                await self._append([self._waiting.pop(place) for place in places])
                if flow.is_burst(len(places), loop.time()):
                    await asyncio.sleep(to_next_tick_s(loop.time()))

    async def _append(self, drafts: list[envelope.Draft]) -> None:
        call = functools.partial(self._writer.append, *drafts)
        try:
            appended = await runtime.retry_until_available(call, "log", self._health)
        except _OF_ONE_DRAFT as error:
            if len(drafts) > 1:
                for draft in drafts:
                    await self._append([draft])
            else:
                await self._append_instead(drafts[0], error)
            return
        if appended[0].offset < self.position:
            reason = f"appended at {appended[0].offset}, below earlier offset {self.position}"
            raise errors.LogLostError(f"append to {drafts[0].topic.name}", reason)
        self.position = appended[-1].offset + 1
        self._appended += len(drafts)
        _appends.add(len(drafts), {"topic": drafts[0].topic.name})
        async with self._progress:
            self._progress.notify_all()

    async def _append_instead(self, draft: envelope.Draft, error: Exception) -> None:
        """Append a stub for an object that cannot be recorded: its key is unknown. Other drafts
        that cannot be recorded are dropped.
        """
        topic = draft.topic.name
        _log.error("not recorded", topic=topic, key=draft.key, reason=str(error))
        _rejected.add(1, {"topic": topic})
        message = draft.message
        if isinstance(message, meta.Object):
            names, why = message.metadata, f"not recorded: {type(error).__name__}: {error}"
            stub = cluster.Unreadable(
                uid=names.uid, resource_version=names.resource_version, reason=why[:1000]
            )
            await self._append([msgspec.structs.replace(draft, message=stub, traceparent="")])
            return
        self._appended += 1
        async with self._progress:
            self._progress.notify_all()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with self._progress:
            await self._progress.wait_for(is_so)
