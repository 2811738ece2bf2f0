"""A log during a takeover: the previous writer still appends, and some of its records arrive
late."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from stromboli.shared import envelope, topics
from stromboli.shared.bus import port


class TakeoverBus:
    """Wraps a log. ``last_words``: called before ``service`` opens a writer; it appends the last
    records of the previous leader. Records with ``key`` are delivered only when ``is_late`` is
    false and there are further records.
    """

    def __init__(
        self,
        bus: port.Bus,
        service: topics.Service,
        key: str,
        last_words: Callable[[], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._service = service
        self._key = key
        self._last_words = last_words
        self.has_opened = asyncio.Event()
        self.is_late = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def open_writer(self, name: topics.Service, instance: str) -> port.Writer:
        """See ``port.Bus``."""
        if name != self._service:
            return await self._bus.open_writer(name, instance)
        await self._last_words()
        writer = await self._bus.open_writer(name, instance)
        self.has_opened.set()
        return writer

    async def materialize(
        self,
        wanted: Sequence[topics.Topic],
        start: port.Position = port.START,
        *,
        is_urgent: bool = True,
    ) -> AsyncGenerator[port.Batch, None]:
        """See ``port.Bus``."""
        late: list[envelope.Record] = []
        reading = self._bus.materialize(wanted, start, is_urgent=is_urgent)
        async with contextlib.aclosing(reading) as batches:
            async for batch in batches:
                if not self.is_late:
                    yield msgspec.structs.replace(batch, records=(*late, *batch.records))
                    late.clear()
                    continue
                late += [it for it in batch.records if it.key == self._key]
                rest = tuple(it for it in batch.records if it.key != self._key)
                positions = dict(batch.positions)
                for it in late:
                    positions[it.topic.name] = min(it.offset, positions[it.topic.name])
                position = msgspec.structs.replace(batch.position, positions=positions)
                yield msgspec.structs.replace(batch, records=rest, position=position)
