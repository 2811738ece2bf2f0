"""What ``fold`` and ``work`` read through: one consumer whose partitions are assigned by hand.

Positions, not records, say how far a reader is: compaction leaves holes, also at the end.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence

import aiokafka
import aiokafka.errors as kafka_errors
import msgspec
import structlog
from aiokafka import structs

from stromboli.shared import envelope, telemetry, topics
from stromboli.shared.bus import port
from stromboli.shared.bus.kafka import clients, settings

_log = structlog.get_logger(__name__)

_behind = telemetry.meter.create_gauge(
    "stromboli.log.behind", description="Offsets of a topic that are not read yet"
)

POLL_MS = 200
"""How long a read waits before it looks at its position again: a hole moves it without records."""
BATCH_RECORDS = 1000
"""Records handed on at a time: a few milliseconds of work, so that an event loop stays awake."""


class Read(msgspec.Struct, frozen=True):
    """Records that count, and those of writers that were replaced."""

    heard: tuple[envelope.Record, ...]
    unheard: tuple[envelope.Record, ...]


NOTHING = Read((), ())


class Reader:
    """A consumer of some topics. It waits while the broker is away and goes on where it was."""

    def __init__(
        self,
        consumer: aiokafka.AIOKafkaConsumer,
        wanted: Sequence[topics.Topic],
        cell: str,
    ) -> None:
        self.consumer = consumer
        self.partitions = {
            structs.TopicPartition(topic.full_name(cell), clients.PARTITION): topic
            for topic in wanted
        }
        self._fence = port.Fence()
        self.ends: dict[str, int] = {}
        self._behind: dict[str, int] = {}

    async def seek(self, start: port.Place) -> None:
        """Note the ends, and go to ``start`` or the beginning.

        An offset that is no longer there, or not yet, is replaced by the beginning, and said.
        """
        self._fence = port.Fence(start.epochs)
        ends, begins = await clients.patiently("find the end of the log", self._bounds)
        for partition, topic in self.partitions.items():
            begin, end = begins[partition], ends[partition]
            at = start.positions.get(topic.name, begin)
            if not begin <= at <= end:
                _log.warning("log is not there", topic=topic.name, at=at, begin=begin, end=end)
                if at > end:
                    self._fence.forget(topic)
                at = begin
            self.consumer.seek(partition, at)
            self.ends[topic.name] = end

    async def _bounds(
        self,
    ) -> tuple[dict[structs.TopicPartition, int], dict[structs.TopicPartition, int]]:
        partitions = list(self.partitions)
        ends = await self.consumer.end_offsets(partitions)
        return ends, await self.consumer.beginning_offsets(partitions)

    async def read(self) -> Read:
        """The next records, in order by topic; none after ``POLL_MS`` without any."""
        try:
            fetched = await self.consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_RECORDS)
        except kafka_errors.OffsetOutOfRangeError as error:
            await self._begin_anew(next(iter(error.args[0])))
            return NOTHING
        except clients.TROUBLE as error:
            raise clients.translated("read the log", error) from error
        heard: list[envelope.Record] = []
        unheard: list[envelope.Record] = []
        for partition, raw in fetched.items():
            topic = self.partitions[partition]
            for record in (record_of(topic, one) for one in raw):
                (heard if self._fence.passes(record) else unheard).append(record)
        await self._tell_how_far()
        return Read(tuple(heard), tuple(unheard))

    async def _tell_how_far(self) -> None:
        for partition, topic in self.partitions.items():
            end = self.consumer.highwater(partition)
            if end is None:
                continue  # nothing was asked of it yet
            behind = max(end - await self.consumer.position(partition), 0)
            if self._behind.get(topic.name) != behind:
                self._behind[topic.name] = behind
                _behind.set(behind, {"topic": topic.name})

    async def _begin_anew(self, partition: structs.TopicPartition) -> None:
        """Retention removed where we were, or the log lost its tail: go on from its beginning."""
        topic = self.partitions[partition]
        at = await self.consumer.position(partition)
        ends, begins = await clients.patiently("find the begin of the log", self._bounds)
        begin, end = begins[partition], ends[partition]
        _log.warning("log is not there", topic=topic.name, at=at, begin=begin, end=end)
        if at > end:
            self._fence.forget(topic)
        self.ends[topic.name] = min(self.ends[topic.name], end)
        self.consumer.seek(partition, begin)

    async def place(self) -> port.Place:
        """Behind what was read."""
        positions = {
            topic.name: await self.consumer.position(partition)
            for partition, topic in self.partitions.items()
        }
        return port.Place(positions, self._fence.heard)


def record_of(topic: topics.Topic, read: structs.ConsumerRecord) -> envelope.Record:
    """A record as the rest of the house sees it; what is no text is made readable, not dropped."""
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in read.headers}
    key = (read.key or b"").decode("utf-8", "replace")
    return envelope.Record(topic, read.offset, key, read.value, headers)


@contextlib.asynccontextmanager
async def reading(
    given: settings.KafkaSettings,
    wanted: Sequence[topics.Topic],
    group: str | None = None,
) -> AsyncIterator[Reader]:
    """A connected reader, still without a position. Waits for the broker."""
    consumer = aiokafka.AIOKafkaConsumer(
        **clients.connection(given),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none",  # we choose where to go on, and say so
        fetch_max_wait_ms=given.fetch_wait_ms,
    )
    reader = Reader(consumer, wanted, given.cell)
    try:
        consumer.assign(list(reader.partitions))
        await clients.patiently("open a reader", consumer.start)
        yield reader
    finally:
        await clients.stopped(consumer, given.close_timeout_s)


async def newest(given: settings.KafkaSettings, topic: topics.Topic) -> envelope.Record | None:
    """The last record of a topic. Raises UnavailableError after ``append_timeout_s``."""
    async with reading(given, (topic,)) as reader:
        (partition,) = reader.partitions
        await reader.seek(port.START)
        begin, end = await reader.consumer.position(partition), reader.ends[topic.name]
        step = 1
        while begin < end:
            # The end itself may be a hole, so look further back until something is found.
            at = max(begin, end - step)
            reader.consumer.seek(partition, at)
            found = await _read_to(reader, partition, end)
            if found is not None:
                return record_of(topic, found)
            if at == begin:
                break
            step *= 2
        return None


async def _read_to(
    reader: Reader, partition: structs.TopicPartition, end: int
) -> structs.ConsumerRecord | None:
    found = None
    while await reader.consumer.position(partition) < end:
        fetched = await reader.consumer.getmany(timeout_ms=POLL_MS)
        for record in fetched.get(partition, ()):
            found = record
    return found
