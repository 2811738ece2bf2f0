"""Failures of the broker: the log waits, retries, continues, and reports it."""

import asyncio
import contextlib
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import aiokafka
import msgspec
import pytest
from aiokafka import admin
from aiokafka import client as kafka_client
from aiokafka.admin import config_resource
from aiokafka.protocol import fetch, produce
from aiokafka.record import default_records, memory_records

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import kafka, port
from stromboli.shared.bus.kafka import reader
from stromboli.shared.runtime import runtime
from stromboli.testkit import records
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

EVENTS = topics.BATCH_EVENTS
PATIENT_S = 60.0
"""Append timeout where an append is to outlive a restart of the broker."""


@pytest.fixture
def settings(real_parts: real.RealParts) -> kafka.KafkaSettings:
    return kafka.KafkaSettings(
        bootstrap=(real_parts.kafka_bootstrap,),
        cluster_name=uuid.uuid4().hex[:8],
        append_timeout_s=PATIENT_S,
    )


@pytest.fixture
async def open_bus(settings: kafka.KafkaSettings) -> AsyncIterator[port.Bus]:
    async with kafka.KafkaBus(settings) as opened:
        yield opened


@pytest.fixture
async def client(real_parts: real.RealParts) -> AsyncIterator[admin.AIOKafkaAdminClient]:
    made = admin.AIOKafkaAdminClient(bootstrap_servers=real_parts.kafka_bootstrap)
    await made.start()
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def entered(settings: kafka.KafkaSettings) -> AsyncIterator[port.Bus]:
    """A connection, entered as services do: a request that runs out of its time is repeated."""
    bus = kafka.KafkaBus(settings)
    await runtime.retry_until_available(bus.__aenter__, "log", runtime.Health("test"))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(bus.__aexit__)
        yield bus


@contextlib.asynccontextmanager
async def away(parts: real.RealParts, *, crashed: bool = False) -> AsyncIterator[None]:
    """The broker is down during the context, and up again after it."""
    await (parts.kafka.kill() if crashed else parts.kafka.stop())
    try:
        yield
    finally:
        await parts.kafka.start()


@contextlib.contextmanager
def hanging(parts: real.RealParts) -> Iterator[None]:
    """The broker takes connections inside but answers nothing."""
    os.kill(parts.kafka.process.pid, signal.SIGSTOP)
    # One of its many threads may answer until all have stopped.
    os.waitid(os.P_PID, parts.kafka.process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        os.kill(parts.kafka.process.pid, signal.SIGCONT)


def event(number: int) -> envelope.Draft:
    return records.phase_change(f"default/j{number:03}")


def first_seen(read: list[str]) -> list[str]:
    """Keys in order of their first record: at least once is allowed, disorder is not."""
    return list(dict.fromkeys(read))


# --- the broker is stopped and started ------------------------------------------------------


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "killed"])
async def test_appends_outlive_a_restart_in_order(
    real_parts: real.RealParts, open_bus: port.Bus, crashed: bool
) -> None:
    """All are acknowledged in the end, each at the reported offset and in order."""
    writer = await open_bus.open_writer("controller", "c1")
    drafts = [event(number) for number in range(100)]
    stand = [await writer.append(draft) for draft in drafts[:10]]
    async with away(real_parts, crashed=crashed):
        pending = [asyncio.create_task(writer.append(draft)) for draft in drafts[10:]]
        await asyncio.wait(pending, timeout=0.1)
    stand += await asyncio.gather(*pending)
    read, _ = await records.read(open_bus, EVENTS)
    assert first_seen([record.key for record in read]) == [draft.key for draft in drafts]
    keys = {record.offset: record.key for record in read}
    assert [keys[appended.offset] for (appended,) in stand] == [draft.key for draft in drafts]


async def test_an_append_to_a_hanging_broker_is_stored_once(
    real_parts: real.RealParts, settings: kafka.KafkaSettings
) -> None:
    """Although its request was given up and repeated on other connections."""
    async with entered(msgspec.structs.replace(settings, request_timeout_s=0.5)) as open_bus:
        writer = await open_bus.open_writer("controller", "c1")
        await writer.append(event(0))
        with hanging(real_parts):
            appending = asyncio.create_task(writer.append(event(1), event(2)))
            await asyncio.wait([appending], timeout=2.0)
            assert not appending.done()
        stand = await appending
        assert [appended.offset for appended in stand] == [2, 3], "behind the announcement"
        read, _ = await records.read(open_bus, EVENTS)
        assert [record.key for record in read] == [f"default/j{number:03}" for number in range(3)]


async def test_a_materialization_continues_after_a_restart(
    real_parts: real.RealParts, open_bus: port.Bus
) -> None:
    writer = await open_bus.open_writer("controller", "c1")
    await writer.append(event(0))
    async with contextlib.aclosing(open_bus.materialize([EVENTS])) as batches:
        batch = await anext(batches)
        while not batch.caught_up:
            batch = await anext(batches)
        async with away(real_parts):
            folding = asyncio.ensure_future(anext(batches))
            await asyncio.wait([folding], timeout=0.5)
            assert not folding.done()
        await writer.append(event(1))
        batch = await folding
        assert [record.key for record in batch.records] == ["default/j001"]


async def test_a_materialization_waits_for_an_unavailable_broker(
    real_parts: real.RealParts, open_bus: port.Bus
) -> None:
    writer = await open_bus.open_writer("controller", "c1")
    await writer.append(event(0))
    async with away(real_parts):
        folding = asyncio.create_task(records.read(open_bus, EVENTS))
        await asyncio.wait([folding], timeout=0.5)
        assert not folding.done()
    read, _ = await folding
    assert [record.key for record in read] == ["default/j000"]


async def test_a_consumer_continues_after_a_restart(
    real_parts: real.RealParts, settings: kafka.KafkaSettings
) -> None:
    """Records finished while the broker was down are committed later, at the latest at the end."""
    patient = msgspec.structs.replace(settings, close_timeout_s=PATIENT_S)
    async with kafka.KafkaBus(patient) as open_bus:
        writer = await open_bus.open_writer("controller", "c1")
        await writer.append(event(0), event(1))
        async with open_bus.consume(EVENTS, "g") as consumer:
            taken = [await anext(aiter(consumer)) for _ in range(2)]
            async with away(real_parts):
                for record in taken:
                    consumer.acknowledge(record)
            await writer.append(event(2))
            assert (await anext(aiter(consumer))).key == "default/j002"
        async with open_bus.consume(EVENTS, "g") as consumer:
            assert (await anext(aiter(consumer))).key == "default/j002"


async def test_an_append_that_timed_out_may_be_stored_and_is_repeated(
    real_parts: real.RealParts, settings: kafka.KafkaSettings
) -> None:
    """It fails with UnavailableError. During the outage further attempts are not sent."""
    hasty = msgspec.structs.replace(settings, append_timeout_s=2.0, request_timeout_s=0.5)
    async with entered(hasty) as open_bus:
        writer = await open_bus.open_writer("controller", "c1")
        async with away(real_parts):
            for number in range(3):
                with pytest.raises(errors.UnavailableError):
                    await writer.append(event(number))
            assert not await open_bus.is_reachable()
            with pytest.raises(errors.UnavailableError):
                await open_bus.last_record(EVENTS)
            with pytest.raises(errors.UnavailableError):
                await open_bus.open_writer("monitor", "m1")
        attempts = 1
        while True:  # each may run out of its short time
            with contextlib.suppress(errors.UnavailableError):
                await writer.append(event(0), event(1))
                break
            attempts += 1
        while not await open_bus.is_reachable():
            pass
        read, _ = await records.read(open_bus, EVENTS)
        keys = [record.key for record in read]
        assert first_seen(keys) == ["default/j000", "default/j001"]
        assert len(read) <= 1 + 2 * attempts


async def test_a_bus_cannot_be_entered_without_a_broker_and_can_be_afterwards(
    real_parts: real.RealParts, settings: kafka.KafkaSettings
) -> None:
    unopened = kafka.KafkaBus(settings)
    async with away(real_parts):
        with pytest.raises(errors.UnavailableError):
            await unopened.__aenter__()
        assert not await unopened.is_reachable()
    async with unopened:
        assert await unopened.is_reachable()


@pytest.mark.parametrize("trouble", ["away", "hanging"])
async def test_everything_closes_within_ten_seconds(
    real_parts: real.RealParts, settings: kafka.KafkaSettings, trouble: str
) -> None:
    """With an open materialization and an open consumer, and records that are not acknowledged.
    Each has a quarter of its usual time, so that a busy machine has the rest."""
    hasty = msgspec.structs.replace(settings, close_timeout_s=settings.close_timeout_s / 4)
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(kafka.KafkaBus(hasty))
        writer = await bus.open_writer("controller", "c1")
        await writer.append(event(0))
        batches = await stack.enter_async_context(contextlib.aclosing(bus.materialize([EVENTS])))
        await anext(batches)
        consumer = await stack.enter_async_context(bus.consume(EVENTS, "g"))
        consumer.acknowledge(await anext(aiter(consumer)))
        async with contextlib.AsyncExitStack() as gone:
            if trouble == "away":
                await gone.enter_async_context(away(real_parts))
            else:
                gone.enter_context(hanging(real_parts))
            appending = asyncio.create_task(writer.append(event(1)))
            await asyncio.wait([appending], timeout=0.2)
            appending.cancel()
            began = time.monotonic()
            await stack.aclose()
            assert time.monotonic() - began < 10


# --- the producer fails for good -------------------------------------------------------------


class Impostor:
    """Writes under another producer's id, which makes the broker refuse that producer."""

    def __init__(self, connection: kafka_client.AIOKafkaClient, topic: str) -> None:
        self._connection = connection
        self._topic = topic

    async def take_over(self) -> None:
        """A higher epoch of the producer: the broker fences the lower one."""
        number, epoch, _ = await self._last()
        await self._produce(number, epoch + 1, 0, count=1)

    async def skip(self) -> None:
        """Two records of the producer's own epoch: its next sequence number is out of order."""
        number, epoch, sequence = await self._last()
        await self._produce(number, epoch, sequence + 1, count=2)

    async def _last(self) -> tuple[int, int, int]:
        """Producer id, epoch and last sequence number of the last batch."""
        where = [(self._topic, [(0, 0, 1024 * 1024)])]
        answer = await self._send(fetch.FetchRequest(100, 1, 1024 * 1024, 0, where))
        ((_, ((*_, raw),)),) = answer.topics
        stored = memory_records.MemoryRecords(raw)
        batch = None
        while stored.has_next():
            batch = stored.next_batch()
        assert batch is not None
        count = len(list(batch))
        return batch.producer_id, batch.producer_epoch, batch.base_sequence + count - 1

    async def _produce(self, number: int, epoch: int, sequence: int, count: int) -> None:
        builder = default_records.DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=number,
            producer_epoch=epoch,
            base_sequence=sequence,
            batch_size=1024 * 1024,
        )
        for place in range(count):
            assert builder.append(place, None, b"impostor", b"{}", [])
        raw = bytes(builder.build())
        answer = await self._send(
            produce.ProduceRequest(
                transactional_id=None,
                required_acks=-1,
                timeout=5000,
                topics=[(self._topic, [(0, raw)])],
            )
        )
        ((_, ((_, code, *_),)),) = answer.topics
        assert code == 0

    async def _send(self, request: object) -> Any:
        return await self._connection.send(self._connection.get_random_node(), request)


@pytest.fixture
async def impostor(settings: kafka.KafkaSettings) -> AsyncIterator[Impostor]:
    connection = kafka_client.AIOKafkaClient(bootstrap_servers=list(settings.bootstrap))
    await connection.bootstrap()
    yield Impostor(connection, EVENTS.full_name(settings.cluster_name))
    await connection.close()


@pytest.mark.parametrize("trouble", [Impostor.take_over, Impostor.skip])
async def test_a_producer_that_failed_for_good_is_rebuilt(
    open_bus: port.Bus, impostor: Impostor, trouble: Callable[[Impostor], Awaitable[None]]
) -> None:
    """What it was not acknowledged for is repeated in order; the epoch and the ids stay."""
    writer = await open_bus.open_writer("controller", "c1")
    epoch = writer.epoch
    await writer.append(event(0))
    await trouble(impostor)
    appends = [
        writer.append(event(number), records.outcome_of(f"d{number}")) for number in (1, 2, 3)
    ]
    stand = await asyncio.gather(*appends)
    assert writer.epoch == epoch
    read, _ = await records.read(open_bus, EVENTS)
    by_offset = {record.offset: record for record in read}
    for number, (appended, _) in enumerate(stand, 1):
        assert by_offset[appended.offset].key == f"default/j{number:03}"
        assert by_offset[appended.offset].id == appended.id
    ours = first_seen([record.key for record in read if record.key != "impostor"])
    assert ours == [f"default/j{number:03}" for number in range(4)]
    answers, _ = await records.read(open_bus, topics.OUTCOMES)
    assert first_seen(records.keys(answers)) == ["d1", "d2", "d3"]


# --- the log is not what it was --------------------------------------------------------------


async def test_after_retention_a_materialization_starts_at_the_first_remaining_record(
    open_bus: port.Bus, settings: kafka.KafkaSettings, client: admin.AIOKafkaAdminClient
) -> None:
    writer = await open_bus.open_writer("controller", "c1")
    await writer.append(*(event(number) for number in range(5)))
    partition = aiokafka.TopicPartition(EVENTS.full_name(settings.cluster_name), 0)
    await client.delete_records({partition: admin.RecordsToDelete(3)})
    for start in (port.START, port.Position({EVENTS.name: 1})):
        read, positions = await records.read(open_bus, EVENTS, start=start)
        assert [record.offset for record in read] == [3, 4, 5]
        assert positions == {EVENTS.name: 6}
    last = await open_bus.last_record(EVENTS)
    assert last is not None
    assert last.offset == 5
    async with open_bus.consume(EVENTS, "g") as consumer:
        assert (await anext(aiter(consumer))).offset == 3


async def test_reading_deleted_offsets_is_a_transient_error(
    settings: kafka.KafkaSettings, open_bus: port.Bus
) -> None:
    """As when a topic is created again between the question for its end and the read."""
    assert await open_bus.last_record(topics.NODES) is None
    with pytest.raises(errors.TransientError, match=r"read the log: .*cluster\.nodes"):
        await reader.between(settings, topics.NODES, first=11, end=12)


async def test_a_materialization_restarts_when_the_log_lost_its_tail(
    open_bus: port.Bus, settings: kafka.KafkaSettings, client: admin.AIOKafkaAdminClient
) -> None:
    """Its epochs restart too, and the writers of the shorter log are accepted."""
    for number in range(5):
        writer = await open_bus.open_writer("controller", f"c{number}")
        await writer.append(records.outcome_of(f"old{number}"))
    async with contextlib.aclosing(open_bus.materialize([topics.OUTCOMES])) as batches:
        await anext(batches)
        await client.delete_topics([topics.OUTCOMES.full_name(settings.cluster_name)])
        async with kafka.KafkaBus(settings) as again:
            writer = await again.open_writer("controller", "new")
            await writer.append(records.outcome_of("new"))
            read: list[str] = []
            async with asyncio.timeout(records.DEADLINE_S):
                while "new" not in read:
                    read += [record.key for record in (await anext(batches)).records]


async def test_foreign_records_are_delivered(
    open_bus: port.Bus, settings: kafka.KafkaSettings
) -> None:
    """A fold must see it to call its key unknown; nothing about it can stop a reader."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=list(settings.bootstrap))
    async with producer:
        name = EVENTS.full_name(settings.cluster_name)
        await producer.send_and_wait(name, b"\xff", headers=[("ce_type", b"\xff"), ("x", None)])
        await producer.send_and_wait(name, None, key=b"\xff")
    read, _ = await records.read(open_bus, EVENTS)
    assert [(record.key, record.value, record.epoch) for record in read] == [
        ("", b"\xff", None),
        ("�", None, None),
    ]
    with pytest.raises(errors.UndecodableError):
        envelope.decode(read[0])


# --- topics as they should be ----------------------------------------------------------------


async def test_topics_are_created_as_the_design_has_them(
    open_bus: port.Bus, settings: kafka.KafkaSettings, client: admin.AIOKafkaAdminClient
) -> None:
    await _until_seen(client, [topic.full_name(settings.cluster_name) for topic in topics.ALL])
    for topic in topics.ALL:
        found = await _settings(client, topic.full_name(settings.cluster_name))
        assert {name: found[name] for name in topic.settings} == dict(topic.settings)
    described = await client.describe_topics(
        [topic.full_name(settings.cluster_name) for topic in topics.ALL]
    )
    assert {len(found["partitions"]) for found in described} == {1}


async def test_a_topic_that_differs_is_altered_where_no_record_can_be_lost(
    settings: kafka.KafkaSettings, client: admin.AIOKafkaAdminClient
) -> None:
    """And what an operator set besides stays."""
    found = {
        topics.NODES: {
            "segment.ms": "1234",
            "max.message.bytes": "1000",
            "index.interval.bytes": "99",
        },
        topics.PODS: {"cleanup.policy": "compact,delete"},
        EVENTS: {"retention.ms": "1000", "cleanup.policy": "compact"},
        topics.DECISIONS: {"retention.ms": "-1"},
        topics.OUTCOMES: {"retention.ms": str(99 * topics.DAY_MS)},
    }
    await client.create_topics(
        [
            admin.NewTopic(topic.full_name(settings.cluster_name), 1, 1, topic_configs=configs)
            for topic, configs in found.items()
        ]
    )
    await _until_seen(client, [topic.full_name(settings.cluster_name) for topic in found])
    expected = {topic: dict(topic.settings) for topic in found}
    expected[topics.NODES]["index.interval.bytes"] = "99"
    expected[EVENTS]["cleanup.policy"] = "compact"  # reported: age would remove records
    expected[topics.DECISIONS]["retention.ms"] = "-1"
    expected[topics.OUTCOMES]["retention.ms"] = str(99 * topics.DAY_MS)
    async with kafka.KafkaBus(settings):
        pass
    async with asyncio.timeout(records.DEADLINE_S):
        for topic, configs in expected.items():
            # The broker shows an alteration some moments after it has acknowledged it.
            while (
                configs.items()
                - (await _settings(client, topic.full_name(settings.cluster_name))).items()
            ):
                pass


async def _until_seen(client: admin.AIOKafkaAdminClient, names: list[str]) -> None:
    """The broker lists a topic some moments after the controller has created it."""
    async with asyncio.timeout(records.DEADLINE_S):
        while not set(names) <= set(await client.list_topics()):
            pass


async def _settings(client: admin.AIOKafkaAdminClient, name: str) -> dict[str, str]:
    resource = config_resource.ConfigResource(config_resource.ConfigResourceType.TOPIC, name)
    (answer,) = await client.describe_configs([resource])
    ((*_, entries),) = answer.resources
    return {entry[0]: entry[1] for entry in entries}


async def test_an_unknown_broker_cannot_be_entered() -> None:
    nowhere = kafka.KafkaBus(kafka.KafkaSettings(bootstrap=("127.0.0.1:9",)))
    with pytest.raises(errors.UnavailableError, match=r"127\.0\.0\.1:9"):
        await nowhere.__aenter__()


async def test_more_copies_than_brokers_are_refused_for_good(
    settings: kafka.KafkaSettings,
) -> None:
    wide = msgspec.structs.replace(settings, replication_factor=3)
    with pytest.raises(errors.PermanentError, match="fewer brokers"):
        await kafka.KafkaBus(wide).__aenter__()
