"""A log that delivers late, repeats records and reorders them across topics.

The order within a topic is kept. Repeated records are a suffix of the delivered ones, in order,
before any new record of the topic, as if the reader had lost its position.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Any, Self

from stromboli.embedded.fault_injection.faults import (
    DEFAULT_RATES,
    FaultRates,
    Seed,
    SeededFaults,
    Sleep,
)
from stromboli.shared import envelope, topics
from stromboli.shared.bus import port

LONGEST_REPEAT = 10
"""Maximum number of records repeated at once."""


class FaultyBus:
    """The faulty log. An append may raise although the record is in the log, and readers are
    disconnected.
    """

    def __init__(
        self,
        bus: port.Bus,
        seed: Seed,
        rates: FaultRates = DEFAULT_RATES,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._bus = bus
        self._dice = SeededFaults(seed, rates, sleep)

    async def __aenter__(self) -> Self:
        """Enter the wrapped log."""
        await self._bus.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the wrapped log."""
        await self._bus.__aexit__(kind, error, trace)

    async def open_writer(self, service: topics.Service, instance: str) -> port.Writer:
        """Return a writer whose appends fail at random."""
        what = f"open writer {service}"
        inner = await self._dice.call(what, lambda: self._bus.open_writer(service, instance))
        return _FaultyWriter(inner, self._dice)

    async def last_record(self, topic: topics.Topic) -> envelope.Record | None:
        """Return the newest record, or fail."""
        return await self._dice.call(f"last {topic.name}", lambda: self._bus.last_record(topic))

    async def is_reachable(self) -> bool:
        """Return whether the wrapped log is reachable."""
        return await self._bus.is_reachable()

    async def materialize(
        self,
        wanted: Sequence[topics.Topic],
        start: port.Position = port.START,
        *,
        is_urgent: bool = True,
    ) -> AsyncGenerator[port.Batch, None]:
        """Read topics, each with its own delay."""
        names = " ".join(topic.name for topic in wanted)
        chance = self._dice.draw(f"fold {names}")
        delayed_records = _DelayedRecords(chance, self._dice.rates.repeat, start)
        inner = self._bus.materialize(wanted, start, is_urgent=is_urgent)
        pull = asyncio.ensure_future(anext(inner))
        try:
            while True:
                await self._news(pull, chance, is_holding=delayed_records.is_holding)
                if pull.done():
                    delayed_records.add(pull.result())
                    pull = asyncio.ensure_future(anext(inner))
                yield delayed_records.release()
                self._dice.maybe_disconnect(chance, f"read {names}")
        finally:
            pull.cancel()
            await asyncio.gather(pull, return_exceptions=True)
            await inner.aclose()

    async def _news(
        self, pull: asyncio.Future[port.Batch], chance: Random, *, is_holding: bool
    ) -> None:
        """Wait for new records of the log, but only briefly while delayed records are held."""
        if not is_holding:
            await asyncio.wait([pull])
            return
        pause = asyncio.ensure_future(self._dice.delay(chance))
        either: list[asyncio.Future[Any]] = [pull, pause]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            await asyncio.gather(pause, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def consume(self, topic: topics.Topic, group: str) -> AsyncIterator[port.GroupConsumer]:
        """Consume a topic with repeated deliveries."""
        async with self._bus.consume(topic, group) as inner:
            yield _FaultyConsumer(inner, self._dice, f"work {topic.name} {group}")


class _FaultyWriter:
    """A writer whose appends fail at random, before or after they take effect."""

    def __init__(self, writer: port.Writer, seeded: SeededFaults) -> None:
        self._writer = writer
        self._dice = seeded
        self.epoch = writer.epoch
        self.opened_at = writer.opened_at

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        """Append; the acknowledgement may be lost."""
        what = f"append to {drafts[0].topic.name}" if drafts else "append nothing"
        return await self._dice.call(what, lambda: self._writer.append(*drafts), at_once=True)


class _DelayedRecords:
    """Records that were read and not released yet, by topic, and the recently released ones."""

    def __init__(self, chance: Random, repeat: float, start: port.Position) -> None:
        self._chance = chance
        self._repeat = repeat
        self._epochs: Mapping[str, int] = start.epochs  # of all records read
        self._identities: Mapping[str, str] = start.topic_ids
        self._recreated: frozenset[str] = frozenset()
        self._at_end: Mapping[str, float] = {}
        self._waiting: dict[str, deque[tuple[envelope.Record, bool]]] = {}
        self._released: dict[str, deque[envelope.Record]] = {}
        self._read_to: dict[str, int] = {}
        self._barrier: Mapping[str, int] | None = None
        self._announced: tuple[envelope.Record, ...] = ()

    @property
    def is_holding(self) -> bool:
        """Return whether records wait for their release."""
        return any(self._waiting.values())

    def add(self, batch: port.Batch) -> None:
        """Add a batch of the wrapped log."""
        for name in batch.recreated:  # held records belong to the previous topic
            self._waiting.pop(name, None)
            self._released.pop(name, None)
            if self._barrier is not None:
                self._barrier = {**self._barrier, name: 0}
        self._recreated |= batch.recreated
        self._identities = batch.position.topic_ids
        self._epochs = batch.position.epochs
        self._at_end = batch.at_end
        self._announced += batch.announced
        whole = [(record, True) for record in batch.records]
        whole += [(record, False) for record in batch.fenced]
        for record, is_accepted in sorted(whole, key=lambda pair: pair[0].offset):
            self._waiting.setdefault(record.topic.name, deque()).append((record, is_accepted))
        self._read_to.update(batch.positions)
        if batch.caught_up and self._barrier is None:
            self._barrier = dict(batch.positions)

    def release(self) -> port.Batch:
        """Return some records of some topics, and some repeated ones."""
        accepted_records: dict[str, list[envelope.Record]] = {}
        fenced: list[envelope.Record] = []
        for name, waiting in self._waiting.items():
            if not waiting or self._chance.random() < 0.5:
                continue
            released = accepted_records.setdefault(name, self._again(name))
            for _ in range(self._chance.randint(1, len(waiting))):
                record, is_accepted = waiting.popleft()
                if is_accepted:
                    released.append(record)
                    self._released.setdefault(name, deque(maxlen=LONGEST_REPEAT)).append(record)
                else:
                    fenced.append(record)
        positions = self._positions()
        barrier = self._barrier
        recreated, self._recreated = self._recreated, frozenset()
        announced, self._announced = self._announced, ()
        return port.Batch(
            records=tuple(_interleave(accepted_records, self._chance)),
            position=port.Position(positions, self._epochs_there(), self._identities),
            announced=announced,
            caught_up=barrier is not None
            and all(positions[name] >= end for name, end in barrier.items()),
            fenced=tuple(fenced),
            recreated=recreated,
            at_end=self._at_end,
        )

    def _again(self, name: str) -> list[envelope.Record]:
        """Return the last records of a topic again, a random number of them, mostly none."""
        lately = list(self._released.get(name, ()))
        if not lately or self._chance.random() >= self._repeat:
            return []
        return lately[-self._chance.randint(1, len(lately)) :]

    def _positions(self) -> dict[str, int]:
        """Return positions: never before a released record, never after a held one."""
        return {
            name: self._waiting[name][0][0].offset if self._waiting.get(name) else end
            for name, end in self._read_to.items()
        }

    def _epochs_there(self) -> dict[str, int]:
        """Return topic name -> highest epoch accepted before its position.

        If records are held, this is the epoch of the first accepted one: announcements of epochs
        are never held, so its announcement is before the position.
        """
        epochs = dict(self._epochs)
        for name, waiting in self._waiting.items():
            accepted = (record.epoch for record, is_accepted in waiting if is_accepted)
            first = next((epoch for epoch in accepted if epoch is not None), None)
            if first is not None and name in epochs:
                epochs[name] = first
        return epochs


def _interleave(
    by_topic: dict[str, list[envelope.Record]], chance: Random
) -> list[envelope.Record]:
    """Return all records in an order that keeps the order of each topic."""
    turns = [name for name, released in by_topic.items() for _ in released]
    chance.shuffle(turns)
    each = {name: iter(released) for name, released in by_topic.items()}
    return [next(each[name]) for name in turns]


class _FaultyConsumer:
    """A consumer that delivers recent records repeatedly at random."""

    def __init__(self, consumer: port.GroupConsumer, seeded: SeededFaults, what: str) -> None:
        self._work = consumer
        self._inner = aiter(consumer)
        self._dice = seeded
        self._what = what
        self._chance = seeded.draw(what)
        self._given: deque[envelope.Record] = deque(maxlen=LONGEST_REPEAT)
        self._again: deque[envelope.Record] = deque()

    def __aiter__(self) -> AsyncIterator[envelope.Record]:
        """Iterate over records in order, with repetitions."""
        return self

    async def __anext__(self) -> envelope.Record:
        """Return the next record or an earlier one."""
        await self._dice.delay(self._chance)
        self._dice.maybe_disconnect(self._chance, self._what)
        if not self._again and self._given and self._chance.random() < self._dice.rates.repeat:
            lately = list(self._given)
            self._again.extend(lately[-self._chance.randint(1, len(lately)) :])
        if self._again:
            return self._again.popleft()
        record = await anext(self._inner)
        self._given.append(record)
        return record

    def acknowledge(self, record: envelope.Record) -> None:
        """Mark the record as finished, however often it was delivered."""
        self._work.acknowledge(record)

    @property
    def lowest_unfinished(self) -> int:
        """Return the offset from which a restarted group would read."""
        return self._work.lowest_unfinished
