"""``EmbeddedBus``: the verbs of the port over ``Log``.

See ``stromboli.shared.bus.port`` for what it promises and ``stromboli.embedded.store`` for when a
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

from stromboli.embedded.bus import consumer, log, writer
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import fencing, port
from stromboli.shared.runtime import runtime


class EmbeddedBus:
    """See the module. ``path``: the file; ``clock`` decides what is too old to keep."""

    def __init__(
        self,
        path: Path,
        cluster_name: str = "default",
        *,
        clock: Callable[[], datetime] = runtime.utc_now,
    ) -> None:
        self._clock = clock
        self._log = log.Log(path, cluster_name, clock)
        self._inside = 0
        self._entering = asyncio.Lock()
        self._opening = asyncio.Lock()

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
        async with self._opening:
            floor = fencing.floor(
                record
                for record in await self._log.tails(topics.of(service))
                if not fencing.is_foreign(record, self._log.cluster_name)
            )
            draft = fencing.opening(service, instance, floor, self._clock())

            def seal(offset: int) -> writer.Sealed:
                return envelope.seal(
                    draft, service, max(offset, floor), 0, cluster_name=self._log.cluster_name
                )

            (opened_at,) = await self._log.append([log.PendingRecord(draft.topic, draft.key, seal)])
            opened = writer.EmbeddedWriter(
                self._log, service, instance, max(opened_at, floor), opened_at, self._clock
            )
            await opened.announce()
        return opened

    async def put(
        self, topic: topics.Topic, key: str, headers: Mapping[str, str], value: bytes | None
    ) -> int:
        """Append what somebody outside hands in, as it is; its offset. Raises ValueError for a
        topic of our own services."""
        if topic.writer != topics.OUTSIDE:
            raise ValueError(f"{topic.name} is written by {topic.writer} alone")
        (offset,) = await self._log.append(
            [log.PendingRecord(topic, key, lambda _: (headers, value))]
        )
        return offset

    async def materialize(
        self, wanted: Sequence[topics.Topic], start: port.Position = port.START
    ) -> AsyncGenerator[port.Batch, None]:
        """State. A start behind the end, or in an earlier topic of the name, means the start."""
        names = [topic.name for topic in wanted]
        topic_ids = self._log.topic_ids(names)
        start = start.valid_in(topic_ids)
        barrier = {name: self._log.ends[name] for name in names}
        positions = {name: start.positions.get(name, 0) for name in names}
        fence = fencing.Fence(self._log.cluster_name, start.epochs, positions)
        for topic in wanted:
            if positions[topic.name] > barrier[topic.name]:
                positions[topic.name] = 0
                fence.forget(topic)
        is_caught_up = False
        at_end: dict[str, float] = {}
        while True:
            read: list[envelope.Record] = []
            now = self._log.topic_ids(names)
            recreated = {name for name in names if now[name] != topic_ids[name]}
            for topic in wanted:
                if topic.name in recreated:
                    positions[topic.name], topic_ids = 0, now
                    barrier[topic.name] = min(barrier[topic.name], self._log.ends[topic.name])
                    fence.forget(topic)
            if self._log.has_more(positions):
                read, positions = await self._log.page(positions, topic_ids)
            elif is_caught_up and not recreated:
                await self._log.growth()  # returns at once when something is appended
                at_end |= dict.fromkeys(names, asyncio.get_running_loop().time())
                continue
            is_caught_up = all(positions[name] >= end for name, end in barrier.items())
            accepted, fenced = fence.split(read)
            at_end = {name: at for name, at in at_end.items() if name not in recreated}
            yield port.Batch(
                tuple(accepted),
                port.Position(dict(positions), fence.accepted, topic_ids),
                is_caught_up,
                tuple(fenced),
                frozenset(recreated),
                dict(at_end),
            )

    @contextlib.asynccontextmanager
    async def consume(self, topic: topics.Topic, group: str) -> AsyncIterator[port.GroupConsumer]:
        """Things to do once."""
        given = consumer.EmbeddedConsumer(self._log, topic, group)
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
        except errors.ExternalError:
            return False
        return True

    async def recreate(self, topic: topics.Topic) -> None:
        """Delete a topic with its records and the offsets of its groups, and create it again."""
        await self._log.recreate(topic)

    async def compact(self) -> None:
        """Let go now of what need not be kept; it also happens when enough has come together."""
        await self._log.compact()
