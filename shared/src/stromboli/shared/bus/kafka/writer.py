"""The Kafka adapter of ``port.Writer``: appends the records of a service in order, at least once.

One lock around sending and Kafka's idempotent producer keep the order; the producer retries a lost
request under its old sequence number. Sends do not wait for each other's acknowledgement.

A producer can fail permanently (the broker has lost or fenced its sequence). Then it is discarded,
and a new one sends, in order, the records that were not acknowledged to the old one: at least once.
The epoch stays the same: it is a property of the log, not of the producer.

When an append times out, its records stay with the producer, because only the producer can still
deliver them in order. Until they are delivered, later appends send nothing: a broker that is
unavailable for an hour costs no memory.
"""

import asyncio
import functools
import itertools
import uuid
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import aiokafka
import msgspec
import structlog

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import fencing, port
from stromboli.shared.bus.kafka import clients, reader, settings
from stromboli.shared.messages import log
from stromboli.shared.runtime import runtime

T = TypeVar("T")

_log = structlog.get_logger(__name__)

BATCH_BYTES = 1024 * 1024
"""Size limit of one produce request per topic: aiokafka has one in flight at a time, so this bounds
throughput. A broker processes a megabyte in a few milliseconds.
"""
OVERHEAD_BYTES = 61 + 21
"""Upper bound of Kafka's framing of a batch and of a record."""
HEADER_BYTES = 10
"""Upper bound of the length fields of a header's name and value."""
BATCH_FROM = 4
"""Minimum number of records of a topic in one append that are sent as one batch. A batch needs one
future instead of one per record, and futures are most of the client's cost per record."""


class _PendingRecord(msgspec.Struct, eq=False):
    """One record in flight. ``sent`` is its future at the current producer; the records of a batch
    share one, with the offset of the record at ``place`` 0."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]
    id: str
    sent: asyncio.Future[Any] | None = None
    place: int = 0
    is_wanted: bool = True

    @property
    def offset(self) -> int | None:
        """The offset, once acknowledged. A broker may acknowledge a repeated record whose offset it
        does not remember with offset -1: that counts as not acknowledged.
        """
        if self.sent is None or not self.sent.done() or self.sent.cancelled():
            return None
        if self.sent.exception() is not None:
            return None
        offset: int = self.sent.result().offset
        return offset + self.place if offset >= 0 else None

    @property
    def is_failed(self) -> bool:
        """Whether the producer failed to deliver the record and will not retry."""
        return self.sent is None or (self.sent.done() and self.offset is None)

    @property
    def error(self) -> BaseException | None:
        """The error that the producer reported for the record, if any."""
        if self.sent is None or not self.sent.done() or self.sent.cancelled():
            return None
        return self.sent.exception()


class KafkaWriter:
    """See ``port.Writer``. Created by ``open_writer``."""

    def __init__(
        self,
        service: topics.Service,
        instance: str,
        kafka: settings.KafkaSettings,
        clock: runtime.Clock,
    ) -> None:
        self._service = service
        self._instance = instance
        self._given = kafka
        self._clock = clock
        self._epoch = self._opened_at = -1
        self._last: dict[str, int] = {}  # topic -> offset of the last acknowledged record
        self._sequence = 0
        self._order = asyncio.Lock()
        self._producer: aiokafka.AIOKafkaProducer | None = None
        self._is_sound = False
        self._is_closed = False
        self._unacknowledged: deque[_PendingRecord] = deque()

    @property
    def epoch(self) -> int:
        """See ``port.Writer.epoch``."""
        return self._epoch

    @property
    def opened_at(self) -> int:
        """See ``port.Writer.opened_at``."""
        return self._opened_at

    async def open(self) -> None:
        """Append ``opened`` until no other writer opens meanwhile: see ``fencing``."""
        main = topics.MAIN.get(self._service)
        if main is None:
            self._epoch = fencing.unfenced_epoch(self._clock())
            return
        while True:
            records, ends = await self._in_time(
                reader.tails(self._given, topics.of(self._service), fencing.TAIL_RECORDS)
            )
            floor = fencing.epoch_floor(
                filter(self._is_own, itertools.chain.from_iterable(records.values()))
            )
            self._opened_at = await self._append_opened(floor)
            self._epoch = max(self._opened_at, floor)
            self._last[main.full_name(self._given.cluster_name)] = self._opened_at
            between: list[envelope.Record] = []
            if main.is_fenced and self._opened_at != ends[main.name]:
                between = await self._in_time(
                    reader.between(self._given, main, ends[main.name], self._opened_at)
                )
            if not any(record.type == log.OPENED for record in filter(self._is_own, between)):
                break
        await self._announce([it for it in topics.of(self._service) if it.is_announced])

    def _is_own(self, record: envelope.Record) -> bool:
        return not fencing.is_foreign(record, self._given.cluster_name)

    async def _in_time(self, reading: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._given.append_timeout_s):
                return await reading
        except TimeoutError:
            what = f"open writer {self._service}"
            raise errors.UnavailableError(what, "the log is unavailable") from None

    async def _append_opened(self, floor: int) -> int:
        draft = fencing.opening_draft(self._service, self._instance, floor, self._clock())
        sealed = self._seal(draft, 0)
        # The epoch is known only after the append, so a random id makes the record unique.
        opening = f"{self._service}/opened/{uuid.uuid4()}"
        sealed.headers = [
            (name, opening.encode() if name == "ce_id" else value) for name, value in sealed.headers
        ]
        (offset,) = await self._deliver([sealed], f"open writer {self._service}")
        return offset

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        """See ``port.Writer.append``. If an offset is lower than the offset of an earlier record,
        the topic was created again: the epoch is announced there, and the records are appended
        again.
        """
        if not drafts:
            return ()
        before = dict(self._last)
        sealed = [
            self._seal(draft, self._sequence + place) for place, draft in enumerate(drafts, 1)
        ]
        self._sequence += len(drafts)
        offsets = await self._deliver(sealed, f"append to {sealed[0].topic}")
        lost = set()
        for offset, entry in zip(offsets, sealed, strict=True):
            if offset <= before.get(entry.topic, -1):
                lost.add(entry.topic)
            is_later = entry.topic in lost or offset > self._last.get(entry.topic, -1)
            self._last[entry.topic] = offset if is_later else self._last[entry.topic]
        if await self._announced_again(lost):
            return await self.append(*drafts)
        return tuple(
            port.Appended(offset, entry.id) for offset, entry in zip(offsets, sealed, strict=True)
        )

    async def _announced_again(self, lost: set[str]) -> bool:
        """Announce the epoch on recreated topics; returns whether there are any. Raises
        LogLostError for the main topic, because its ``opened`` is lost.
        """
        own = {
            topic.full_name(self._given.cluster_name): topic for topic in topics.of(self._service)
        }
        again = [topic for name, topic in own.items() if name in lost and topic.is_fenced]
        for topic in again:
            if topic.main:
                reason = f"topic {topic.name} was recreated"
                raise errors.LogLostError(f"append as {self._service}", reason)
        await self._announce(again)
        return bool(again)

    async def _announce(self, wanted: Sequence[topics.Topic]) -> None:
        if wanted:
            drafts = fencing.announcements(wanted, self._service, self._instance, self._clock())
            await self.append(*drafts)

    async def close(self) -> None:
        """Deliver the records in flight within ``close_timeout_s``, and close the producer."""
        self._is_closed, self._is_sound = True, False
        producer, self._producer = self._producer, None
        if producer is not None:
            await clients.discard_producer(producer, self._given.close_timeout_s)

    def _seal(self, draft: envelope.Draft, sequence: int) -> _PendingRecord:
        if draft.topic.writer not in (None, self._service):
            raise ValueError(
                f"{draft.topic.name} is written by {draft.topic.writer}, not {self._service}"
            )
        texts, value = envelope.seal(
            draft, self._service, self._epoch, sequence, cluster_name=self._given.cluster_name
        )
        headers = [(name, text.encode()) for name, text in texts.items()]
        key = draft.key.encode()
        size = OVERHEAD_BYTES + len(key) + len(value or b"")
        size += sum(len(name) + len(text) + HEADER_BYTES for name, text in headers)
        if size > topics.RECORD_BYTES:
            raise errors.TooLargeError(
                f"append {draft.key} to {draft.topic.name}",
                f"{size} bytes, at most {topics.RECORD_BYTES} are allowed",
            )
        return _PendingRecord(
            draft.topic.full_name(self._given.cluster_name), key, value, headers, texts["ce_id"]
        )

    async def _deliver(self, entries: Sequence[_PendingRecord], what: str) -> tuple[int, ...]:
        """Send in order; returns the offsets. Raises TransientError or PermanentError."""
        try:
            async with asyncio.timeout(self._given.append_timeout_s):
                async with self._order:
                    await self._leftovers_gone()
                    if not self._is_sound:
                        await self._rebuild(what)
                    await self._send(entries)
                return await self._offsets(entries, what)
        except TimeoutError:
            raise errors.UnavailableError(
                what, f"not acknowledged within {self._given.append_timeout_s:g} s"
            ) from None
        finally:
            for entry in entries:
                entry.is_wanted = False

    async def _leftovers_gone(self) -> None:
        """Wait until no record of an append that timed out is in flight."""
        left = [
            entry.sent
            for entry in self._unacknowledged
            if not entry.is_wanted and entry.sent is not None and not entry.sent.done()
        ]
        if left:
            await asyncio.wait(left)

    async def _send(self, entries: Sequence[_PendingRecord]) -> None:
        producer = self._producer
        assert producer is not None
        while self._unacknowledged and self._unacknowledged[0].offset is not None:
            self._unacknowledged.popleft()
        of_topic: dict[str, list[_PendingRecord]] = {}
        for entry in entries:
            of_topic.setdefault(entry.topic, []).append(entry)
        as_batch = {
            topic
            for topic, records in of_topic.items()
            if len(records) >= BATCH_FROM and not self._is_sending(topic)
        }
        self._unacknowledged.extend(entries)
        for topic, records in of_topic.items():
            try:
                count = await self._send_batch(producer, records) if topic in as_batch else 0
                for entry in records[count:]:
                    await self._send_one(producer, entry)
            except BaseException:
                self._is_sound = False  # cancelled between two records
                raise

    def _is_sending(self, topic: str) -> bool:
        """Whether earlier records of the topic may still be queued in the producer: a new batch
        would wait behind them, while single records join their request."""
        return any(it.topic == topic and it.offset is None for it in self._unacknowledged)

    async def _send_one(self, producer: aiokafka.AIOKafkaProducer, entry: _PendingRecord) -> None:
        entry.place = 0
        try:
            entry.sent = await producer.send(
                entry.topic,
                entry.value,
                key=entry.key,
                partition=clients.PARTITION,
                headers=entry.headers,
            )
        except clients.CLIENT_ERRORS as error:
            entry.sent = _failed(error)
        entry.sent.add_done_callback(functools.partial(self._answered, producer))

    async def _send_batch(
        self, producer: aiokafka.AIOKafkaProducer, records: Sequence[_PendingRecord]
    ) -> int:
        """Send the first records of a topic, as many as fit, as one batch; returns how many."""
        batch = producer.create_batch()
        count = 0
        for entry in records:
            record_metadata = batch.append(
                timestamp=None, key=entry.key, value=entry.value, headers=entry.headers
            )
            if record_metadata is None:
                break
            count += 1
        topic = records[0].topic
        try:
            sent = await producer.send_batch(batch, topic, partition=clients.PARTITION)
        except clients.CLIENT_ERRORS as error:
            sent = _failed(error)
        for place, entry in enumerate(records[:count]):
            entry.sent, entry.place = sent, place
        sent.add_done_callback(functools.partial(self._answered, producer))
        return count

    def _answered(self, producer: aiokafka.AIOKafkaProducer, sent: asyncio.Future[Any]) -> None:
        failed = sent.cancelled() or sent.exception() is not None or sent.result().offset < 0
        if failed and producer is self._producer:
            self._is_sound = False

    async def _offsets(self, entries: Sequence[_PendingRecord], what: str) -> tuple[int, ...]:
        while True:
            sent = [entry.sent for entry in entries if entry.sent is not None]
            if sent:
                await asyncio.wait(sent)
            for entry in entries:
                if entry.error is not None and clients.is_permanent(entry.error):
                    raise clients.translate_error(what, entry.error) from entry.error
            offsets = tuple(entry.offset for entry in entries if entry.offset is not None)
            if len(offsets) == len(entries):
                return offsets
            async with self._order:
                # Unless another append has sent them again with its own records.
                if any(entry.is_failed for entry in entries):
                    await self._rebuild(what)

    async def _rebuild(self, what: str) -> None:
        """Replace the producer. The new one first sends the records that are not acknowledged and
        still awaited.

        The caller holds the order lock; may be cancelled anywhere and called again. Raises
        UnavailableError once the writer is closed.
        """
        if self._is_closed:
            raise errors.UnavailableError(what, "the writer is closed")
        self._is_sound = False
        if self._producer is not None:
            failed = next((e.error for e in self._unacknowledged if e.error is not None), None)
            _log.warning("writer rebuilt", service=self._service, reason=repr(failed))
            await clients.discard_producer(self._producer, self._given.close_timeout_s)
            self._producer = None
        for entry in self._unacknowledged:
            if entry.sent is not None and not entry.sent.done():
                entry.sent.cancel()
        self._producer = await self._started()
        self._is_sound = True
        repeated = [
            entry for entry in self._unacknowledged if entry.is_wanted and entry.offset is None
        ]
        self._unacknowledged.clear()
        await self._send(repeated)

    async def _started(self) -> aiokafka.AIOKafkaProducer:
        producer = aiokafka.AIOKafkaProducer(
            **clients.connection(self._given),
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
            max_request_size=2 * topics.RECORD_BYTES,  # above our own limit, which is checked first
        )
        try:
            await clients.retry_until_available(f"open writer {self._service}", producer.start)
        except BaseException:
            await clients.discard_producer(producer, self._given.close_timeout_s)
            raise
        return producer


def _failed(error: BaseException) -> asyncio.Future[Any]:
    """A failed future, for records that the producer did not accept."""
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(error)
    return failed


async def open_writer(
    service: topics.Service,
    instance: str,
    kafka: settings.KafkaSettings,
    clock: runtime.Clock,
) -> KafkaWriter:
    """A writer with a new epoch. Raises UnavailableError after ``append_timeout_s``."""
    writer = KafkaWriter(service, instance, kafka, clock)
    try:
        await writer.open()
    except BaseException:
        await writer.close()
        raise
    return writer
