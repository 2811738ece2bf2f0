"""A topic that is deleted under a running reader: no broker of ours creates topics by itself."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine

import aiokafka
import pytest
from aiokafka import admin

from stromboli.shared import envelope, topics
from stromboli.shared.bus import kafka, port
from stromboli.shared.bus.kafka import topic_metadata
from stromboli.testkit import records
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

SUBMISSIONS = topics.SUBMISSIONS
Read = Callable[[port.Bus, asyncio.Event], Coroutine[None, None, envelope.Record]]


@pytest.fixture
def settings(real_parts: real.RealParts) -> kafka.KafkaSettings:
    return kafka.KafkaSettings(
        bootstrap=(real_parts.kafka_bootstrap,), cluster_name=uuid.uuid4().hex[:8]
    )


@pytest.fixture
async def open_bus(settings: kafka.KafkaSettings) -> AsyncIterator[port.Bus]:
    async with kafka.KafkaBus(settings) as opened:
        yield opened


async def first_of_group(bus: port.Bus, reading: asyncio.Event) -> envelope.Record:
    """The first record that a group receives."""
    async with bus.consume(SUBMISSIONS, "g") as consumer:
        reading.set()
        return await anext(aiter(consumer))


async def first_materialized(bus: port.Bus, reading: asyncio.Event) -> envelope.Record:
    """The first record of a reader that builds state."""
    async with contextlib.aclosing(bus.materialize([SUBMISSIONS])) as batches:
        async for batch in batches:
            reading.set()
            if batch.records:
                return batch.records[0]
    raise AssertionError("a reader ended")


@pytest.mark.parametrize("read", [first_of_group, first_materialized])
async def test_a_deleted_topic_is_created_again_by_its_reader(
    open_bus: port.Bus, settings: kafka.KafkaSettings, read: Read
) -> None:
    """Otherwise what others append to it is refused until some service restarts."""
    name = SUBMISSIONS.full_name(settings.cluster_name)
    reading = asyncio.Event()
    record = asyncio.create_task(read(open_bus, reading))
    await reading.wait()
    client = admin.AIOKafkaAdminClient(bootstrap_servers=list(settings.bootstrap))
    await client.start()
    try:
        before = await topic_metadata.fetch_topic_ids(client._client, [name])
        await client.delete_topics([name])
        async with asyncio.timeout(records.DEADLINE_S):
            while await topic_metadata.fetch_topic_ids(client._client, [name]) in ({}, before):
                pass
    finally:
        await client.close()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=list(settings.bootstrap)) as producer:
        await producer.send_and_wait(name, b"{}", key=b"k")
    async with asyncio.timeout(records.DEADLINE_S):
        assert (await record).key == "k"
