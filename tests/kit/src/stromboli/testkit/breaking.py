"""A log whose readers can be cut off, as by a broker that goes away, and come back."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port


class BreakingBus:
    """Passes everything through to a log that somebody else has entered. Inside ``cut`` folds fail
    as soon as they wait for records, and so does each that begins anew."""

    def __init__(self, bus: port.Bus) -> None:
        self._bus = bus
        self._cut = asyncio.Event()
        self._failed = asyncio.Condition()
        self._failures = 0

    @contextlib.asynccontextmanager
    async def cut(self, folds: int) -> AsyncGenerator[None, None]:
        """While inside, nothing is read; entered once so many folds have failed."""
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
        return await self._bus.open_writer(service, instance)

    async def fold(
        self, wanted: Sequence[topics.Topic], start: port.Place = port.START
    ) -> AsyncGenerator[port.Batch, None]:
        async with contextlib.aclosing(self._bus.fold(wanted, start)) as batches:
            while True:
                pull = asyncio.ensure_future(anext(batches))
                cut = asyncio.ensure_future(self._cut.wait())
                try:
                    await asyncio.wait([pull, cut], return_when=asyncio.FIRST_COMPLETED)
                    if not pull.done() or self._cut.is_set():
                        async with self._failed:
                            self._failures += 1
                            self._failed.notify_all()
                        raise errors.UnavailableError("read the log", "cut off")
                    read = pull.result()
                finally:
                    for future in (pull, cut):
                        future.cancel()
                    await asyncio.gather(pull, cut, return_exceptions=True)
                yield read

    def work(self, topic: topics.Topic, group: str) -> AbstractAsyncContextManager[port.Work]:
        return self._bus.work(topic, group)

    async def last(self, topic: topics.Topic) -> envelope.Record | None:
        return await self._bus.last(topic)

    async def is_reachable(self) -> bool:
        return not self._cut.is_set()
