"""Drafts of one kind on their way to the log, in order.

What comes is appended at once; what comes meanwhile goes out together afterwards. One append is
under way at a time, so that a repeated one cannot overtake another.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable

from stromboli.shared import envelope, runtime, telemetry
from stromboli.shared.bus import port

MOST_AT_ONCE = 1000
"""Drafts in one append: some megabytes."""
MOST_WAITING = 5000
"""Drafts held while the log is away; then reading the cluster waits, which it can."""

_appends = telemetry.meter.create_counter(
    "stromboli.monitor.records", description="Snapshots and tombstones acknowledged by the log"
)


class LogLostError(Exception):
    """The log ends before what it has acknowledged: what we know of it is void. Begin again."""


class Outbox:
    """See the module. ``position``: the offset behind everything appended."""

    def __init__(self, writer: port.Writer, health: runtime.Health, position: int) -> None:
        self.position = position
        self._writer = writer
        self._health = health
        self._waiting: deque[envelope.Draft] = deque()
        self._put = 0
        self._appended = 0
        self._filled = asyncio.Event()
        self._progress = asyncio.Condition()

    def put(self, draft: envelope.Draft | None) -> None:
        """Send a draft off, if it is one. Never waits: what was seen is on its way at once."""
        if draft is not None:
            self._waiting.append(draft)
            self._put += 1
            self._filled.set()

    async def room(self) -> None:
        """Return when there is room for more."""
        if len(self._waiting) >= MOST_WAITING:
            await self._until(lambda: len(self._waiting) < MOST_WAITING)

    async def settled(self) -> int:
        """The position, once everything put so far is acknowledged."""
        put = self._put
        await self._until(lambda: self._appended >= put)
        return self.position

    async def run(self) -> None:
        """Append for ever. Raises LogLostError, and permanent errors."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                count = min(len(self._waiting), MOST_AT_ONCE)
                await self._append([self._waiting.popleft() for _ in range(count)])

    async def _append(self, drafts: list[envelope.Draft]) -> None:
        call = functools.partial(self._writer.append, *drafts)
        stand = await runtime.persist(call, "log", self._health)
        if stand[0].offset < self.position:
            raise LogLostError(
                f"{drafts[0].topic.name}: an append came to stand at {stand[0].offset}, "
                f"behind it stood {self.position}"
            )
        self.position = stand[-1].offset + 1
        self._appended += len(drafts)
        _appends.add(len(drafts), {"topic": drafts[0].topic.name})
        async with self._progress:
            self._progress.notify_all()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with self._progress:
            await self._progress.wait_for(is_so)
