"""Reads the monitor's own topics: first to restore its state, then to detect other writers."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping

import structlog

from stromboli.monitor.core.data_reports import DataReports
from stromboli.monitor.core.reflector_state import ReflectorState
from stromboli.monitor.core.reports import NodeReports
from stromboli.monitor.core.usage_reports import UsageReports
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import materialization, port
from stromboli.shared.messages import cluster
from stromboli.shared.runtime import runtime

OWN: tuple[topics.Topic, ...] = (*topics.MATERIALIZED, topics.SYNC)
AgentReports = NodeReports | DataReports | UsageReports
PAUSE_S = 0.1
"""Seconds between reads of our own records, which are rarely urgent."""

_log = structlog.get_logger(__name__)


class OwnTopicsReader:
    """Restores reflector states and reports up to the end offsets at the start; then follows new
    records.
    """

    def __init__(
        self,
        bus: port.Bus,
        reflector_states: Iterable[ReflectorState],
        reports: Iterable[AgentReports],
        health: runtime.Health,
    ) -> None:
        self._bus = bus
        self._health = health
        self._epoch = -1
        self._by_plural = {state.kind.plural: state for state in reflector_states}
        self._by_topic: dict[str, ReflectorState | AgentReports] = {
            state.topic.name: state for state in self._by_plural.values()
        }
        self._by_topic |= {each.topic.name: each for each in reports}
        self._position = port.START
        self._moved = asyncio.Condition()

    async def follow_as_standby(self, caught_up: asyncio.Event) -> None:
        """Apply all records, set ``caught_up`` at the end offsets, and follow the active monitor
        indefinitely. Raises LogLostError.
        """
        async with contextlib.aclosing(self._read()) as batches:
            async for batch in batches:
                self._fold(batch)
                if batch.caught_up:
                    caught_up.set()

    async def restore(self, epoch: int) -> Mapping[str, int]:
        """Apply the records up to the end offsets of now; return topic name -> next offset.
        ``follow`` continues after them. Raises ReplacedError, LogLostError.
        """
        self._epoch = epoch
        async with contextlib.aclosing(self._read()) as batches:
            async for batch in batches:
                for record in batch.records:
                    self._check(record)
                self._fold(batch)
                if batch.caught_up:
                    break
        return dict(self._position.positions)

    async def follow(self) -> None:
        """Follow indefinitely, and mark keys that records of other writers hide. Raises
        ReplacedError, LogLostError."""
        async with contextlib.aclosing(self._read(is_urgent=False)) as batches:
            async for batch in batches:
                for record, is_accepted in self._new_records(batch):
                    self._check_writer(record, is_accepted=is_accepted)
                async with self._moved:
                    self._move(batch)
                    self._moved.notify_all()
                await asyncio.sleep(PAUSE_S)

    async def reached(self, topic: topics.Topic, position: int) -> None:
        """Return when all records before ``position`` of a topic have been processed."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._position.positions[topic.name] >= position)

    def _read(self, *, is_urgent: bool = True) -> AsyncGenerator[port.Batch, None]:
        return materialization.materialize(
            self._bus, OWN, self._health.set, "cache", self._position, is_urgent=is_urgent
        )

    def _fold(self, batch: port.Batch) -> None:
        for record, is_accepted in self._new_records(batch):
            if record.topic == topics.SYNC:
                if is_accepted:
                    self._fold_sync(record)
            elif is_accepted:
                self._by_topic[record.topic.name].apply(record)
            else:
                self._by_topic[record.topic.name].mark_overwritten(record.key)
        self._move(batch)

    def _move(self, batch: port.Batch) -> None:
        for name, position in batch.positions.items():
            before = self._position.positions.get(name, 0)
            if position < before:
                raise errors.LogLostError(f"read {name}", f"position was {before}, now {position}")
        self._position = batch.position

    def _new_records(self, batch: port.Batch) -> list[tuple[envelope.Record, bool]]:
        """New records in the order of their topics, each with whether it is accepted.

        Repeated records are left out: they would look like later records of another writer.
        """
        either = [(record, True) for record in batch.records]
        either += [(record, False) for record in batch.fenced]
        if batch.fenced:
            either.sort(key=lambda pair: pair[0].offset)
        return [
            (record, is_accepted)
            for record, is_accepted in either
            if record.offset >= self._position.positions.get(record.topic.name, 0)
        ]

    def _check_writer(self, record: envelope.Record, *, is_accepted: bool) -> None:
        if is_accepted:
            self._check(record)  # a dropped record does not replace a writer, whatever its epoch
        is_ours = is_accepted and record.epoch == self._epoch
        if not is_ours and record.topic != topics.SYNC:
            _log.warning("overwritten", topic=record.topic.name, key=record.key, by=record.id)
            self._by_topic[record.topic.name].mark_overwritten(record.key)

    def _check(self, record: envelope.Record) -> None:
        if record.epoch is not None and record.epoch > self._epoch:
            raise errors.ReplacedError(f"{record.topic.name}@{record.offset} is by {record.id}")

    def _fold_sync(self, record: envelope.Record) -> None:
        state = self._by_plural.get(record.key)
        if state is None:
            return  # the key of an unknown kind, or of another sync record
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            _log.warning("sync record not readable", kind=record.key, reason=error.reason)
            message = None
        synced = message if isinstance(message, cluster.KindSynced) else None
        state.apply_sync(synced, -1 if record.epoch is None else record.epoch)
