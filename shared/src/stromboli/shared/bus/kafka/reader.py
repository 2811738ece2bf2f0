"""Reads topics for ``materialize`` and ``consume``: one consumer with manually assigned partitions.

Progress is measured by positions, not by records: compaction leaves gaps, even at the end.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import aiokafka
import aiokafka.errors as kafka_errors
import msgspec
import structlog
from aiokafka import structs

from stromboli.shared import envelope, topics
from stromboli.shared.bus import fencing, port
from stromboli.shared.bus.kafka import clients, settings, topic_metadata
from stromboli.shared.runtime import telemetry

_log = structlog.get_logger(__name__)

_behind = telemetry.meter.create_gauge(
    "stromboli.log.behind", description="Offsets of a topic that are not read yet"
)

POLL_MS = 200
"""Milliseconds that a read waits for records before it checks its position again: a gap in the
offsets advances the position without records."""
BATCH_RECORDS = 1000
"""Maximum number of records per batch: a few milliseconds of work, so that the event loop stays
responsive."""
LARGE_BYTES = 1 << 20
"""Bytes after which a broker answers a reader that is not urgent (``fetch.min.bytes``). A log with
more unread records is read as fast as by an urgent reader."""


TOPIC_ID_CHECK_S = 5.0
"""Seconds between two fetches of the topic ids by a reader, one small request each. A recreated
topic is usually detected sooner, by an offset that is out of range.
"""


UNREADABLE = (UnicodeDecodeError, kafka_errors.UnsupportedCodecError)
"""The errors that aiokafka raises, at each attempt, for a batch with a record whose header name is
not UTF-8, and for a batch with a codec that is not installed. A broker accepts both."""


class ReadResult(msgspec.Struct, frozen=True):
    """The result of one read: accepted and fenced records, announcements, and names of topics that
    are read from their start again. ``at_end``: see ``port.Batch``."""

    accepted: tuple[envelope.Record, ...] = ()
    fenced: tuple[envelope.Record, ...] = ()
    recreated: frozenset[str] = frozenset()
    at_end: Mapping[str, float] = msgspec.field(default_factory=dict)
    announced: tuple[envelope.Record, ...] = ()


EMPTY_RESULT = ReadResult()


class Reader:
    """A consumer of several topics. It waits while the broker is unavailable and then continues."""

    def __init__(
        self,
        consumer: aiokafka.AIOKafkaConsumer,
        wanted: Sequence[topics.Topic],
        cluster_name: str,
    ) -> None:
        self.consumer = consumer
        self.partitions = {
            structs.TopicPartition(topic.full_name(cluster_name), clients.PARTITION): topic
            for topic in wanted
        }
        self._cluster_name = cluster_name
        self._fence = fencing.Fence(cluster_name)
        self._check_at = 0.0
        self.topic_ids: dict[str, str] = {}
        self.is_missing = False
        self.ends: dict[str, int] = {}
        self.at_end: dict[str, float] = {}
        self._positions: dict[structs.TopicPartition, int] = {}
        """Position of each partition, read from the consumer once after each fetch."""
        self._polled: dict[structs.TopicPartition, tuple[int, float]] = {}
        self._behind: dict[str, int] = {}

    async def seek(self, start: port.Position) -> None:
        """Note the end offsets, and seek to ``start`` or the beginning.

        A position that is out of range, or that belongs to an earlier topic of the same name, is
        replaced by the beginning, with a warning.
        """
        self.topic_ids = await clients.retry_until_available(
            "identify the topics", self._identities_now
        )
        self._check_at = _now() + TOPIC_ID_CHECK_S
        start = start.valid_in(self.topic_ids)
        self._fence = fencing.Fence(self._cluster_name, start.epochs, start.positions)
        ends, begins = await clients.retry_until_available(
            "read the end offsets of the log", self._bounds
        )
        for partition, topic in self.partitions.items():
            begin, end = begins[partition], ends[partition]
            at = start.positions.get(topic.name, begin)
            if not begin <= at <= end:
                _log.warning("offset out of range", topic=topic.name, at=at, begin=begin, end=end)
                if at > end:
                    self._fence.forget(topic)
                at = begin
            self.move(partition, at)
            self.ends[topic.name] = end

    def move(self, partition: structs.TopicPartition, offset: int) -> None:
        """Read this partition from this offset on."""
        self.consumer.seek(partition, offset)
        self._positions[partition] = offset

    async def _bounds(
        self,
    ) -> tuple[dict[structs.TopicPartition, int], dict[structs.TopicPartition, int]]:
        partitions = list(self.partitions)
        ends = await self.consumer.end_offsets(partitions)
        return ends, await self.consumer.beginning_offsets(partitions)

    async def _identities_now(self) -> dict[str, str]:
        names = {partition.topic: topic.name for partition, topic in self.partitions.items()}
        topic_ids = await topic_metadata.fetch_topic_ids(self.consumer._client, list(names))
        self.is_missing = len(topic_ids) < len(names)
        return {names[full]: topic_id for full, topic_id in topic_ids.items()}

    async def read(self) -> ReadResult:
        """The next records, in order within each topic; empty if none arrive within ``POLL_MS``.
        Raises ExternalError."""
        if _now() >= self._check_at:
            recreated = await self._recreated()
            if recreated:
                return ReadResult(recreated=recreated)
        try:
            fetched = await self.fetch()
        except kafka_errors.OffsetOutOfRangeError as error:
            return await self._recover_position(next(iter(error.args[0])))
        except clients.CLIENT_ERRORS as error:
            raise clients.translate_error("read the log", error) from error
        accepted, fenced, announced = self._fence.split(fetched)
        at_end = dict(self.at_end)
        self._note_progress()
        return ReadResult(tuple(accepted), tuple(fenced), at_end=at_end, announced=tuple(announced))

    async def fetch(self, *wanted: structs.TopicPartition) -> list[envelope.Record]:
        """The next records of these partitions (of all, if none are given), including fenced
        records. Raises kafka errors."""
        partitions = wanted or tuple(self.partitions)
        try:
            fetched = await self.consumer.getmany(
                *partitions, timeout_ms=POLL_MS, max_records=BATCH_RECORDS
            )
        except UNREADABLE:
            # The error of one partition discards the records fetched from the partitions before it.
            for partition in partitions:
                self.consumer.seek(partition, self._positions[partition])
            records = await self._fetch_to_unreadable(partitions)
        else:
            records = [
                record_of(self.partitions[partition], one)
                for partition, raw in fetched.items()
                for one in raw
            ]
        for partition in partitions:
            self._positions[partition] = await self.consumer.position(partition)
        return records

    async def _fetch_to_unreadable(
        self, partitions: Sequence[structs.TopicPartition]
    ) -> list[envelope.Record]:
        """Records, fetched one by one, up to the unreadable record. The unreadable record is
        returned without content, so it cannot be decoded and is reported like any undecodable
        record."""
        records: list[envelope.Record] = []
        for partition in partitions:
            while len(records) < BATCH_RECORDS:
                try:
                    fetched = await self.consumer.getmany(
                        partition, timeout_ms=POLL_MS, max_records=1
                    )
                except UNREADABLE as error:
                    topic, offset = self.partitions[partition], await self._step(partition)
                    _log.error(
                        "record unreadable", topic=topic.name, offset=offset, reason=str(error)
                    )
                    return [*records, envelope.Record(topic, offset, "", b"", {})]
                except clients.CLIENT_ERRORS:
                    return records  # the next read raises it
                if not fetched:
                    break
                records += [
                    record_of(self.partitions[partition], one) for one in fetched[partition]
                ]
        return records

    async def _step(self, partition: structs.TopicPartition) -> int:
        """Move past the next offset; returns that offset."""
        offset: int = await self.consumer.position(partition)
        self.consumer.seek(partition, offset + 1)
        return offset

    def _note_progress(self) -> None:
        """Record how far each topic was read, and the time at which it was read to its end: the
        time before the request was sent (when the previous response arrived). The response itself
        may have waited for this process.
        """
        now = _now()
        for partition, topic in self.partitions.items():
            end = self.consumer.highwater(partition)
            if end is None:
                continue  # no fetch was sent yet
            behind = max(end - self._positions[partition], 0)
            if self._behind.get(topic.name) != behind:
                self._behind[topic.name] = behind
                _behind.set(behind, {"topic": topic.name})
            answer = self.consumer.last_poll_timestamp(partition)
            before, at = self._polled.get(partition, (None, 0.0))
            if answer is None or answer == before:
                continue
            if before is not None and self._positions[partition] == end:
                self.at_end[topic.name] = at
            self._polled[partition] = answer, now

    async def _recover_position(self, partition: structs.TopicPartition) -> ReadResult:
        """Handle an offset out of range: retention removed it, or the topic was recreated or lost
        its tail.
        """
        recreated = await self._recreated()
        if recreated:
            return ReadResult(recreated=recreated)
        topic = self.partitions[partition]
        at = self._positions[partition]
        ends, begins = await clients.retry_until_available(
            "find the beginning of the log", self._bounds
        )
        begin, end = begins[partition], ends[partition]
        _log.warning("offset out of range", topic=topic.name, at=at, begin=begin, end=end)
        self.ends[topic.name] = min(self.ends[topic.name], end)
        self.move(partition, begin)
        if at <= end:
            return EMPTY_RESULT
        self._fence.forget(topic)
        return ReadResult(recreated=frozenset({topic.name}))

    async def _recreated(self) -> frozenset[str]:
        """Topics that were deleted and created again. They are read from their start."""
        self._check_at = _now() + TOPIC_ID_CHECK_S
        try:
            current_ids = await self._identities_now()
        except clients.CLIENT_ERRORS:
            return frozenset()  # the broker is unavailable, which the next read handles
        recreated = {
            name for name, topic_id in current_ids.items() if self.topic_ids.get(name) != topic_id
        }
        if not recreated:
            return frozenset()
        ends, begins = await clients.retry_until_available(
            "find the beginning of the log", self._bounds
        )
        # Not before the await: a commit meanwhile names the topic that its offsets belong to.
        self.topic_ids |= current_ids
        for partition, topic in self.partitions.items():
            if topic.name in recreated:
                _log.warning("topic was recreated", topic=topic.name)
                self._fence.forget(topic)
                self.at_end.pop(topic.name, None)
                self.ends[topic.name] = min(self.ends[topic.name], ends[partition])
                self.move(partition, begins[partition])
        return frozenset(recreated)

    def position(self) -> port.Position:
        """The position after the records that were read."""
        positions = {
            topic.name: self._positions[partition] for partition, topic in self.partitions.items()
        }
        return port.Position(positions, self._fence.accepted, dict(self.topic_ids))


def _now() -> float:
    return asyncio.get_running_loop().time()


def record_of(topic: topics.Topic, read: structs.ConsumerRecord) -> envelope.Record:
    """A Kafka record as an envelope record. Bytes that are not UTF-8 are replaced, not dropped."""
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in read.headers}
    key = (read.key or b"").decode("utf-8", "replace")
    return envelope.Record(topic, read.offset, key, read.value, headers)


@contextlib.asynccontextmanager
async def open_reader(
    kafka: settings.KafkaSettings,
    wanted: Sequence[topics.Topic],
    group: str | None = None,
    *,
    is_urgent: bool = True,
) -> AsyncIterator[Reader]:
    """A connected reader without a position. Waits while the broker is unavailable. Without
    ``is_urgent``, the broker holds each fetch for ``fetch_wait_ms`` or until ``LARGE_BYTES`` have
    been appended."""
    consumer = aiokafka.AIOKafkaConsumer(
        **clients.connection(kafka),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none",  # seek() chooses the position and logs it
        fetch_max_wait_ms=kafka.fetch_wait_ms,
        fetch_min_bytes=1 if is_urgent else LARGE_BYTES,
    )
    reader = Reader(consumer, wanted, kafka.cluster_name)
    try:
        consumer.assign(list(reader.partitions))
        await clients.retry_until_available("open a reader", consumer.start)
        yield reader
    finally:
        await clients.stop_consumer(consumer, kafka.close_timeout_s)


async def tails(
    kafka: settings.KafkaSettings,
    wanted: Sequence[topics.Topic],
    count: int,
    counts: Callable[[envelope.Record], bool] = lambda _: True,
) -> tuple[dict[str, list[envelope.Record]], dict[str, int]]:
    """The last records and the end offsets, by topic name.

    The records are those of the last ``count`` offsets or, where ``counts`` accepts none of them,
    of earlier offsets. All topics are read concurrently. Waits while the broker is unavailable.
    Raises UnavailableError when a topic is deleted or created again meanwhile.
    """
    async with open_reader(kafka, wanted) as reader:
        await reader.seek(port.START)
        positions = reader.position().positions
        begins = {at: positions[topic.name] for at, topic in reader.partitions.items()}
        left = {
            at for at, topic in reader.partitions.items() if begins[at] < reader.ends[topic.name]
        }
        records: dict[str, list[envelope.Record]] = {topic.name: [] for topic in wanted}
        while left:
            firsts = {
                at: max(begins[at], reader.ends[reader.partitions[at].name] - count) for at in left
            }
            for at, first in firsts.items():
                reader.move(at, first)
            read = await _read_to_ends(reader, left)
            records |= {name: [it for it in each if counts(it)] for name, each in read.items()}
            # The last offsets may be a gap, so read further back until a record is found.
            left = {
                at
                for at in left
                if not records[reader.partitions[at].name] and firsts[at] > begins[at]
            }
            count *= 2
        return records, reader.ends


async def between(
    kafka: settings.KafkaSettings, topic: topics.Topic, first: int, end: int
) -> list[envelope.Record]:
    """The records from offset ``first`` up to and excluding ``end``. Waits while the broker is
    unavailable. Raises UnavailableError if the topic does not contain them, or no longer does.
    """
    async with open_reader(kafka, (topic,)) as reader:
        (partition,) = reader.partitions
        reader.move(partition, first)
        reader.ends[topic.name] = end
        records = await _read_to_ends(reader, {partition})
    return [record for record in records[topic.name] if record.offset < end]


async def newest(kafka: settings.KafkaSettings, topic: topics.Topic) -> envelope.Record | None:
    """The last record of a topic, without epoch announcements and records of other clusters. Waits
    while the broker is unavailable. Raises UnavailableError as ``tails`` does.
    """

    def is_message(record: envelope.Record) -> bool:
        is_foreign = fencing.is_foreign(record, kafka.cluster_name)
        return not is_foreign and not fencing.is_announcement(record)

    records, _ = await tails(kafka, (topic,), 1, is_message)
    return next(reversed(records[topic.name]), None)


async def _read_to_ends(
    reader: Reader, wanted: set[structs.TopicPartition]
) -> dict[str, list[envelope.Record]]:
    records: dict[str, list[envelope.Record]] = {reader.partitions[at].name: [] for at in wanted}
    left = set(wanted)
    while left:
        try:
            fetched = await reader.fetch(*left)
        except clients.CLIENT_ERRORS as error:
            raise clients.translate_error("read the log", error) from error
        for record in fetched:
            records[record.topic.name].append(record)
        positions = reader.position().positions
        names = {at: reader.partitions[at].name for at in left}
        left = {at for at, name in names.items() if positions[name] < reader.ends[name]}
    return records
