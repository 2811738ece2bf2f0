"""A new leader on a real broker restores the state, and reads the events behind it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiokafka import admin

from services.controller.tests.support.terms import Clock, Term, pod_event
from stromboli.shared import topics
from stromboli.shared.bus import kafka
from stromboli.shared.bus.kafka import topic_metadata
from stromboli.testkit.parts import tools
from stromboli.testkit.parts.kafka import Kafka

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

JOBS = 2_000


@pytest.fixture
async def settings(real_tools: tools.Tools, tmp_path: Path) -> AsyncIterator[kafka.KafkaSettings]:
    broker = Kafka(real_tools, tmp_path / "kafka")
    await broker.start()
    try:
        yield kafka.KafkaSettings(bootstrap=(broker.bootstrap,))
    finally:
        await broker.stop()


async def test_a_new_leader_on_kafka_reads_few_events_and_survives_the_loss_of_the_state(
    settings: kafka.KafkaSettings,
) -> None:
    clock = Clock()
    async with kafka.KafkaBus(settings) as bus:
        first = Term(bus, clock)
        await first.begin()
        await first.publish([pod_event(f"default/j{it}", 0, "Running") for it in range(JOBS)])
        clock.pass_by(timedelta(hours=1))
        await first.write_round()
        await first.publish([pod_event("default/late", 0, "Pending")])
        second = Term(bus, clock)
        await second.begin()
        assert second.cache.published.jobs == first.cache.published.jobs
        assert second.cache.events == 1
        await second.write_round()
    await recreate(settings, topics.BATCH_STATE)
    async with kafka.KafkaBus(settings) as bus:
        third = Term(bus, clock)
        await third.begin()
        assert third.cache.published.jobs == first.cache.published.jobs
        assert third.cache.events == JOBS + 1
        await third.write_round()
        fourth = Term(bus, clock)
        await fourth.begin()
        assert fourth.cache.published.jobs == first.cache.published.jobs
        assert fourth.cache.events <= 1


async def recreate(settings: kafka.KafkaSettings, topic: topics.Topic) -> None:
    """Delete a topic, and create it again by connecting."""
    name = topic.full_name(settings.cluster_name)
    client = admin.AIOKafkaAdminClient(bootstrap_servers=list(settings.bootstrap))
    await client.start()
    try:
        before = await topic_metadata.fetch_topic_ids(client._client, [name])
        await client.delete_topics([name])
        async with asyncio.timeout(60):
            while await topic_metadata.fetch_topic_ids(client._client, [name]) == before:
                pass
            while not await topic_metadata.fetch_topic_ids(client._client, [name]):
                async with kafka.KafkaBus(settings):
                    pass
    finally:
        await client.close()
