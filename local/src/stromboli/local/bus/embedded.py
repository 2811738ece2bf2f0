"""``EmbeddedBus``: the verbs of the port over ``Log``.

See ``stromboli.shared.bus.port`` for what it promises and ``stromboli.local.store`` for when a
record is durable. All services of a process share one instance and each enters it for itself; it
is open while one of them is inside. A lone append is seen by a fold after about 1 ms.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from stromboli.local.bus import log, work, writer
from stromboli.shared import envelope, errors, runtime, topics
from stromboli.shared.bus import port
from stromboli.shared.messages.log import OPENED_KEY, Opened


class EmbeddedBus:
    """See the module. ``path``: the file; ``clock`` decides what is too old to keep."""

    def __init__(
        self,
        path: Path,
        cell: str = "default",
        *,
        clock: Callable[[], datetime] = runtime.utc_now,
    ) -> None:
        self._clock = clock
        self._log = log.Log(path, cell, clock)
        self._inside = 0
        self._entering = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open the file. Raises PermanentError if another process or instance has it."""
        async with self._entering:
            if self._inside == 0:
                await self._log.open()
            self._inside += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file when the last one leaves; who still reads then gets UnavailableError."""
        async with self._entering:
            self._inside -= 1
            if self._inside == 0:
                await self._log.close()

    async def open_writer(self, service: topics.Service, instance: str) -> port.Writer:
        """Begin a new epoch."""
        draft = envelope.Draft(
            topic=topics.MAIN[service],
            key=OPENED_KEY,
            message=Opened(writer=service, instance=instance),
            time=self._clock(),
        )
        opening = log.Line(
            draft.topic, draft.key, lambda offset: envelope.seal(draft, service, offset, 0)
        )
        (epoch,) = await self._log.append([opening])
        return writer.EmbeddedWriter(self._log, service, epoch)

    async def put(
        self, topic: topics.Topic, key: str, headers: Mapping[str, str], value: bytes | None
    ) -> int:
        """Append what somebody outside hands in, as it is; its offset. Raises ValueError for a
        topic of our own services."""
        if topic.writer != topics.OUTSIDE:
            raise ValueError(f"{topic.name} is written by {topic.writer} alone")
        (offset,) = await self._log.append([log.Line(topic, key, lambda _: (headers, value))])
        return offset

    async def fold(
        self, wanted: Sequence[topics.Topic], start: port.Place = port.START
    ) -> AsyncGenerator[port.Batch, None]:
        """State. A start behind the end, as of another log, means the beginning."""
        barrier = {topic.name: self._log.ends[topic.name] for topic in wanted}
        positions = {name: start.positions.get(name, 0) for name in barrier}
        fence = port.Fence(start.epochs)
        for topic in wanted:
            if positions[topic.name] > barrier[topic.name]:
                positions[topic.name] = 0
                fence.forget(topic)
        is_caught_up = False
        while True:
            read: list[envelope.Record] = []
            if self._log.has_more(positions):
                read, positions = await self._log.page(positions)
            elif is_caught_up:
                await self._log.growth()
                continue
            is_caught_up = all(positions[name] >= end for name, end in barrier.items())
            yield _batch(read, positions, fence, is_caught_up=is_caught_up)

    @contextlib.asynccontextmanager
    async def work(self, topic: topics.Topic, group: str) -> AsyncIterator[port.Work]:
        """Things to do once."""
        given = work.EmbeddedWork(self._log, topic, group)
        await given.begin()
        try:
            yield given
        finally:
            await given.end()

    async def last(self, topic: topics.Topic) -> envelope.Record | None:
        """The newest record."""
        return await self._log.last(topic)

    async def is_reachable(self) -> bool:
        """Whether the file is open and takes writes."""
        try:
            await self._log.probe()
        except errors.OutsideError:
            return False
        return True

    async def compact(self) -> None:
        """Let go now of what need not be kept; it also happens when enough has come together."""
        await self._log.compact()


def _batch(
    read: Sequence[envelope.Record],
    positions: Mapping[str, int],
    fence: port.Fence,
    *,
    is_caught_up: bool,
) -> port.Batch:
    heard: list[envelope.Record] = []
    unheard: list[envelope.Record] = []
    for record in read:
        (heard if fence.passes(record) else unheard).append(record)
    place = port.Place(dict(positions), fence.heard)
    return port.Batch(tuple(heard), place, is_caught_up, tuple(unheard))
