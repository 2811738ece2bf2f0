"""Records that Kafka stores and its Python client cannot read: each is replaced, none stops us."""

import struct
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiokafka
import pytest
from aiokafka import client as kafka_client
from aiokafka.protocol import produce
from aiokafka.record import default_records, util

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import kafka, port
from stromboli.testkit import records
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

EVENTS, SUBMISSIONS = topics.BATCH_EVENTS, topics.SUBMISSIONS
LENGTH_AT, CRC_AT, ATTRIBUTES_AT, RECORDS_AT = 8, 17, 21, 61
"""Places in a record batch: see Kafka's documentation of the message format."""
NOT_READY = (3, 6)
"""Responses of a broker that does not know yet a topic that the controller has created."""
SNAPPY = 2
SNAPPY_FRAME = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@pytest.fixture
def settings(real_parts: real.RealParts) -> kafka.KafkaSettings:
    return kafka.KafkaSettings(
        bootstrap=(real_parts.kafka_bootstrap,), cluster_name=uuid.uuid4().hex[:8]
    )


@pytest.fixture
async def open_bus(settings: kafka.KafkaSettings) -> AsyncIterator[port.Bus]:
    async with kafka.KafkaBus(settings) as opened:
        yield opened


def batch(keys: Sequence[bytes], unreadable: frozenset[bytes] = frozenset()) -> bytes:
    """A batch of small records; the ``unreadable`` ones have a header name that is not UTF-8."""
    builder = default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1024 * 1024,
    )
    for at, key in enumerate(keys):
        name = "mark" if key in unreadable else "name"
        assert builder.append(at, None, key, b"{}", [(name, b"x")])
    return sealed(bytes(builder.build()).replace(b"mark", b"\xff\xfe\xff\xff"))


def sealed(raw: bytes) -> bytes:
    """The batch with its length and checksum."""
    raw = raw[:LENGTH_AT] + struct.pack(">i", len(raw) - LENGTH_AT - 4) + raw[LENGTH_AT + 4 :]
    checksum = struct.pack(">I", util.calc_crc32c(raw[ATTRIBUTES_AT:]))
    return raw[:CRC_AT] + checksum + raw[ATTRIBUTES_AT:]


def compressed(raw: bytes) -> bytes:
    """The batch with Snappy's codec, as one literal of at most 256 bytes."""
    plain = raw[RECORDS_AT:]
    size = bytes([len(plain) & 127 | 128, len(plain) >> 7])
    block = size + bytes([60 << 2, len(plain) - 1]) + plain
    head = raw[:ATTRIBUTES_AT] + struct.pack(">h", SNAPPY) + raw[ATTRIBUTES_AT + 2 : RECORDS_AT]
    return sealed(head + SNAPPY_FRAME + struct.pack(">i", len(block)) + block)


async def append(settings: kafka.KafkaSettings, topic: topics.Topic, *batches: bytes) -> None:
    """Append record batches as they are."""
    connection = kafka_client.AIOKafkaClient(bootstrap_servers=list(settings.bootstrap))
    await connection.bootstrap()
    try:
        for raw in batches:
            where = [(topic.full_name(settings.cluster_name), [(0, raw)])]
            request = produce.ProduceRequest(
                transactional_id=None, required_acks=-1, timeout=5000, topics=where
            )
            code = None
            while code in (None, *NOT_READY):
                answer: Any = await connection.send(connection.get_random_node(), request)
                ((_, ((_, code, *_),)),) = answer.topics
            assert code == 0
    finally:
        await connection.close()


def shown(read: Sequence[envelope.Record]) -> list[tuple[int, str]]:
    return [(record.offset, record.key) for record in read]


@pytest.mark.parametrize("bad", [b"a", b"b", b"c"])
async def test_a_header_name_that_is_not_utf8_hides_nothing_before_and_behind_its_batch(
    open_bus: port.Bus, settings: kafka.KafkaSettings, bad: bytes
) -> None:
    """Kafka does not check names of headers, and aiokafka cannot read past one in its batch."""
    keys = [b"a", b"b", b"c"]
    await append(settings, EVENTS, batch(keys, frozenset({bad})), batch([b"d"]))
    await append(settings, topics.REVIEWS, batch([b"r"]))
    read, positions = await records.read(open_bus, EVENTS, topics.REVIEWS)
    expected = [(at, key.decode() if key < bad else "") for at, key in enumerate(keys)]
    assert shown([it for it in read if it.topic is EVENTS]) == [*expected, (3, "d")]
    assert [it.key for it in read if it.topic is topics.REVIEWS] == ["r"]
    assert positions == {EVENTS.name: 4, topics.REVIEWS.name: 1}
    for unreadable in (it for it in read if not it.key):
        with pytest.raises(errors.UndecodableError):
            envelope.decode(unreadable)


async def test_the_newest_record_may_be_an_unreadable_one(
    open_bus: port.Bus, settings: kafka.KafkaSettings
) -> None:
    await append(settings, EVENTS, batch([b"a", b"b"], frozenset({b"b"})))
    newest = await open_bus.last_record(EVENTS)
    assert newest is not None
    assert (newest.offset, newest.key, newest.value) == (1, "", b"")


async def test_a_consumer_receives_an_unreadable_record_without_its_content(
    open_bus: port.Bus, settings: kafka.KafkaSettings
) -> None:
    """So that it is answered and reported like any other, and the offset is committed."""
    await append(settings, SUBMISSIONS, batch([b"a", b"b"], frozenset({b"b"})), batch([b"c"]))
    async with open_bus.consume(SUBMISSIONS, "g") as consumer:
        read = []
        for _ in range(3):
            read.append(await anext(aiter(consumer)))
            consumer.acknowledge(read[-1])
    assert shown(read) == [(0, "a"), (1, ""), (2, "c")]
    assert (read[1].value, dict(read[1].headers)) == (b"", {})
    async with open_bus.consume(SUBMISSIONS, "g") as consumer:
        assert consumer.lowest_unfinished == 3


async def test_a_batch_with_a_missing_codec_is_skipped(
    open_bus: port.Bus, settings: kafka.KafkaSettings
) -> None:
    """aiokafka names neither its size nor its end; what follows is read."""
    await append(settings, EVENTS, batch([b"a"]), compressed(batch([b"b", b"c"])), batch([b"d"]))
    read, _ = await records.read(open_bus, EVENTS)
    assert shown(read) == [(0, "a"), (1, ""), (2, ""), (3, "d")]


async def test_submissions_are_read_whatever_their_producer_compresses_with(
    open_bus: port.Bus, settings: kafka.KafkaSettings
) -> None:
    """The broker stores them uncompressed, which also bounds the size that admission reads."""
    await append(settings, SUBMISSIONS, compressed(batch([b"b", b"c"])))
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=list(settings.bootstrap), compression_type="gzip"
    )
    async with producer:
        await producer.send_and_wait(SUBMISSIONS.full_name(settings.cluster_name), b"{}", b"d")
    read, _ = await records.read(open_bus, SUBMISSIONS)
    assert shown(read) == [(0, "b"), (1, "c"), (2, "d")]
