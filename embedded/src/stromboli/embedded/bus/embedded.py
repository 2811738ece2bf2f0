"""``EmbeddedBus``: the operations of the port over ``Log``.

``stromboli.shared.bus.port`` states the contract; ``stromboli.embedded.store`` states when a record
is durable. All services of a process share one instance, and each uses it as a context manager; the
file is open while at least one is inside. A materializing reader sees a single append after about
1 ms.
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
    """The embedded log. ``path``: the SQLite file; ``clock`` decides which records have expired."""

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
        """Open the file. Raises PermanentError if another process or instance has it open."""
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
        """Close the file when the last user leaves; active readers then get UnavailableError."""
        async with self._entering:
            self._inside -= 1
            if self._inside == 0:
                await self._log.close()

    async def open_writer(self, service: topics.Service, instance: str) -> port.Writer:
        """Open a writer with a new epoch."""
        if service not in topics.MAIN:
            epoch = fencing.unfenced_epoch(self._clock())
            return writer.EmbeddedWriter(self._log, service, instance, epoch, -1, self._clock)
        async with self._opening:
            floor = fencing.epoch_floor(
                record
                for record in await self._log.tails(topics.of(service))
                if not fencing.is_foreign(record, self._log.cluster_name)
            )
            draft = fencing.opening_draft(service, instance, floor, self._clock())

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
        """Append a record of an external client unchanged and return its offset. Raises ValueError
        for a topic that one of our services writes.
        """
        if topic.writer != topics.OUTSIDE:
            raise ValueError(f"{topic.name} is written only by {topic.writer}")
        (offset,) = await self._log.append(
            [log.PendingRecord(topic, key, lambda _: (headers, value))]
        )
        return offset

    async def materialize(
        self,
        wanted: Sequence[topics.Topic],
        start: port.Position = port.START,
        *,
        is_urgent: bool = True,
    ) -> AsyncGenerator[port.Batch, None]:
        """Read topics from their start, or continue at a position. A topic is read from its start
        if the position is after its end, or belongs to an earlier topic of the same name.
        ``is_urgent`` has no effect: records arrive immediately, because reading costs no request.
        """
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
                await self._log.growth()  # returns immediately when a record is appended
                at_end |= dict.fromkeys(names, asyncio.get_running_loop().time())
                continue
            is_caught_up = all(positions[name] >= end for name, end in barrier.items())
            accepted, fenced, announced = fence.split(read)
            at_end = {name: at for name, at in at_end.items() if name not in recreated}
            yield port.Batch(
                tuple(accepted),
                port.Position(dict(positions), fence.accepted, topic_ids),
                is_caught_up,
                tuple(fenced),
                frozenset(recreated),
                dict(at_end),
                tuple(announced),
            )

    @contextlib.asynccontextmanager
    async def consume(self, topic: topics.Topic, group: str) -> AsyncIterator[port.GroupConsumer]:
        """Process each record of a topic once per group."""
        embedded_consumer = consumer.EmbeddedConsumer(self._log, topic, group)
        await embedded_consumer.begin()
        try:
            yield embedded_consumer
        finally:
            await embedded_consumer.end()

    async def last_record(self, topic: topics.Topic) -> envelope.Record | None:
        """Return the newest record, except epoch announcements and records of other clusters."""
        return await self._log.last_record(topic)

    async def is_reachable(self) -> bool:
        """Return whether the file is open and writable."""
        try:
            await self._log.probe()
        except errors.ExternalError:
            return False
        return True

    async def recreate(self, topic: topics.Topic) -> None:
        """Delete a topic with its records and committed offsets, and create it again."""
        await self._log.recreate(topic)

    async def compact(self) -> None:
        """Remove expired and superseded records now; this also happens periodically with
        appends.
        """
        await self._log.compact()
