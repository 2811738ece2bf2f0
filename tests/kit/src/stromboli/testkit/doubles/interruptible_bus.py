"""A log whose readers can be disconnected, as by an unavailable broker, and reconnected."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port

T = TypeVar("T")


class InterruptibleBus:
    """Forwards everything to a log that is already open. Inside ``cut``, materializations fail as
    soon as they wait for records, and new ones fail immediately; while ``works_cut`` is set,
    consumers fail likewise, and while ``writes_cut`` is set, no record is appended.
    """

    def __init__(self, bus: port.Bus) -> None:
        self._bus = bus
        self._cut = asyncio.Event()
        self._failed = asyncio.Condition()
        self._failures = 0
        self.works_cut = asyncio.Event()
        self.writes_cut = asyncio.Event()

    @contextlib.asynccontextmanager
    async def cut(self, folds: int) -> AsyncGenerator[None, None]:
        """Disconnect all readers during the context, which starts when this number of
        materializations have failed.
        """
        self._failures = 0
        self._cut.set()
        async with self._failed:
            await self._failed.wait_for(lambda: self._failures >= folds)
        yield
        self._cut.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def open_writer(self, service: topics.Service, instance: str) -> port.Writer:
        _raise_if_interrupted(self.writes_cut)
        return _Writer(await self._bus.open_writer(service, instance), self.writes_cut)

    async def materialize(
        self,
        wanted: Sequence[topics.Topic],
        start: port.Position = port.START,
        *,
        is_urgent: bool = True,
    ) -> AsyncGenerator[port.Batch, None]:
        reading = self._bus.materialize(wanted, start, is_urgent=is_urgent)
        async with contextlib.aclosing(reading) as batches:
            while True:
                try:
                    read = await _read_or_fail(self._cut, anext(batches))
                except errors.UnavailableError:
                    async with self._failed:
                        self._failures += 1
                        self._failed.notify_all()
                    raise
                yield read

    @contextlib.asynccontextmanager
    async def consume(self, topic: topics.Topic, group: str) -> AsyncIterator[port.GroupConsumer]:
        async with self._bus.consume(topic, group) as consumer:
            yield _Work(consumer, self.works_cut)

    async def last_record(self, topic: topics.Topic) -> envelope.Record | None:
        return await self._bus.last_record(topic)

    async def is_reachable(self) -> bool:
        return not self._cut.is_set()


class _Writer:
    """See ``port.Writer``."""

    def __init__(self, writer: port.Writer, cut: asyncio.Event) -> None:
        self._writer = writer
        self._cut = cut
        self.epoch = writer.epoch
        self.opened_at = writer.opened_at

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        _raise_if_interrupted(self._cut)
        return await self._writer.append(*drafts)


def _raise_if_interrupted(cut: asyncio.Event) -> None:
    if cut.is_set():
        raise errors.UnavailableError("write the log", "cut off")


class _Work:
    """See ``port.GroupConsumer``."""

    def __init__(self, consumer: port.GroupConsumer, cut: asyncio.Event) -> None:
        self._work = consumer
        self._records = aiter(consumer)
        self._cut = cut

    def __aiter__(self) -> AsyncIterator[envelope.Record]:
        return self

    async def __anext__(self) -> envelope.Record:
        return await _read_or_fail(self._cut, anext(self._records))

    def acknowledge(self, record: envelope.Record) -> None:
        self._work.acknowledge(record)

    @property
    def lowest_unfinished(self) -> int:
        return self._work.lowest_unfinished


async def _read_or_fail(cut: asyncio.Event, read: Awaitable[T]) -> T:
    """The result of ``read``; raises UnavailableError once readers are disconnected."""
    pull, off = asyncio.ensure_future(read), asyncio.ensure_future(cut.wait())
    try:
        await asyncio.wait([pull, off], return_when=asyncio.FIRST_COMPLETED)
        if not pull.done() or cut.is_set():
            raise errors.UnavailableError("read the log", "cut off")
        return pull.result()
    finally:
        for future in (pull, off):
            future.cancel()
        await asyncio.gather(pull, off, return_exceptions=True)
