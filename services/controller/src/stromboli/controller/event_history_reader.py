"""Reads what controllers published: ``batch.state``, then the later events of ``batch.events``.

A standby reads both topics continuously, so that it has little left to read when it becomes the
leader. A state that cannot be used is discarded, and all events are read; see
``core.store.batch_state``.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import datetime

import structlog

from stromboli.controller import isolation
from stromboli.controller.core.store import batch_state, controller_cache
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import materialization
from stromboli.shared.bus import port as bus_port
from stromboli.shared.formats.counts import counted
from stromboli.shared.messages import batch as messages
from stromboli.shared.runtime import runtime

RECORDS_AT_ONCE = 500
"""Number of records that are restored before other tasks run; this takes about 10 ms."""
_STATE, _EVENTS = topics.BATCH_STATE, topics.BATCH_EVENTS
_log = structlog.get_logger(__name__)


class EventHistoryReader:
    """Builds the event history of one term, and keeps it up to date until this controller is the
    leader."""

    def __init__(
        self,
        bus: bus_port.Bus,
        health: runtime.Health,
        cache: controller_cache.ControllerCache,
        state: batch_state.BatchState,
        clock: runtime.Clock,
    ) -> None:
        self._bus = bus
        self._health = health
        self._cache = cache
        self._state = state
        self._clock = clock
        self._position: bus_port.Position | None = None

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Topic name -> id of the topic that was read."""
        return {} if self._position is None else self._position.topic_ids

    async def read(self, *, to_the_end: bool) -> None:
        """Read the topics: up to the current end if ``to_the_end``, else indefinitely."""
        if self._position is None:
            self._position = await self._restore()
        expected_id = self._position.topic_ids.get(_EVENTS.name)
        stream = materialization.materialize(
            self._bus, (_STATE, _EVENTS), self._health.set, "history", self._position
        )
        async with contextlib.aclosing(stream) as batches:
            async for batch in batches:
                found_id = batch.position.topic_ids.get(_EVENTS.name)
                if expected_id is not None and found_id != expected_id:
                    _log.warning("state discarded", reason="batch.events was recreated")
                    self._state.discard()  # all events are read
                expected_id = found_id
                for record in batch.records:
                    self._apply(record)
                for record in batch.fenced:
                    if record.topic == _STATE:
                        self._state.note_fenced(record.key)
                self._position = batch.position
                if to_the_end and batch.caught_up:
                    return

    async def _restore(self) -> bus_port.Position:
        """Restore the history from the state. Returns the position where reading continues."""
        records: dict[str, envelope.Record] = {}
        hidden: set[str] = set()
        position = bus_port.START
        stream = materialization.materialize(self._bus, (_STATE,), self._health.set, "history")
        async with contextlib.aclosing(stream) as batches:
            async for batch in batches:
                fenced = {record.offset for record in batch.fenced}
                for record in sorted((*batch.records, *batch.fenced), key=lambda it: it.offset):
                    if record.offset in fenced:
                        hidden.add(record.key)
                        continue
                    hidden.discard(record.key)
                    if record.value is None:
                        records.pop(record.key, None)
                    else:
                        records[record.key] = record
                position = batch.position
                if batch.caught_up:
                    break
        problem = await self._restore_from(records)
        if hidden:
            problem = f"records of {counted(len(hidden), 'key')} were written by a fenced writer"
        at = self._position_of(records)
        problem = problem or await self._mismatch(at, position)
        if at is None or problem:
            if records or hidden:
                _log.warning("state discarded", reason=problem)
            for key in hidden:
                self._state.note_fenced(key)
            self._state.discard()
            return position
        self._state.resume(at)
        return bus_port.Position(
            {**position.positions, _EVENTS.name: at.resume_from},
            {**position.epochs, _EVENTS.name: at.resume_epoch},
            {**position.topic_ids, _EVENTS.name: at.events_topic_id},
        )

    async def _restore_from(self, records: Mapping[str, envelope.Record]) -> str:
        """Restore all records. Returns why one cannot be used, or an empty string."""
        chunks: list[tuple[str, messages.PublishedTaskChunk]] = []
        problem = ""
        for number, (key, record) in enumerate(records.items(), 1):
            try:
                message = envelope.decode(record)
            except errors.UndecodableError as error:
                problem = str(error)
                self._state.note_fenced(key)
                continue
            if isinstance(message, messages.PublishedJob):
                self._state.restore_job(key, message)
            elif isinstance(message, messages.PublishedTaskChunk):
                chunks.append((key, message))
            if number % RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)
        for number, (key, chunk) in enumerate(chunks, 1):
            self._state.restore_chunk(key, chunk)
            if number % RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return problem

    def _position_of(self, records: Mapping[str, envelope.Record]) -> messages.StatePosition | None:
        record = records.get(batch_state.POSITION_KEY)
        with contextlib.suppress(errors.UndecodableError):
            message = None if record is None else envelope.decode(record)
            return message if isinstance(message, messages.StatePosition) else None
        return None

    async def _mismatch(self, at: messages.StatePosition | None, read: bus_port.Position) -> str:
        """Why the state does not belong to the topics as they are now, or an empty string."""
        if at is None:
            return "batch.state has no position"
        if at.state_topic_id != read.topic_ids.get(_STATE.name):
            return "batch.state was recreated"
        ends = await materialization.end_offsets(self._bus, (_EVENTS,), self._health)
        if at.events_end > ends[_EVENTS.name]:
            return f"batch.events ends at {ends[_EVENTS.name]}, before {at.events_end}"
        return ""

    def _apply(self, record: envelope.Record) -> None:
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            # At worst an event is repeated; a state record is written again.
            _log.warning("record not readable", topic=record.topic.name, reason=error.reason)
            if record.topic == _STATE:
                self._state.note_fenced(record.key)
            return
        try:
            if record.topic == _STATE:
                self._state.note_record(record.key, message)
            elif message is not None:
                self._cache.load(message)
                self._state.note_event(
                    message, record.offset, record.epoch or 0, self._time(record)
                )
        except Exception as error:  # one record must not stop all others
            isolation.report(error, "event record", offset=record.offset)

    def _time(self, record: envelope.Record) -> datetime:
        now = self._clock()
        with contextlib.suppress(errors.UndecodableError):
            return min(record.time, now)
        return now
