"""The Kafka adapter does what every log does, on a real broker; and strangers can read along."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import aiokafka
import pytest
from aiokafka import admin
from aiokafka.admin import config_resource

from stromboli.shared import topics
from stromboli.shared.bus import kafka, port
from stromboli.shared.bus.kafka import topic_metadata
from stromboli.testkit import records
from stromboli.testkit.contracts import bus, external_writers
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

EXAMPLE = Path(__file__).parents[2] / "examples" / "consumer.py"
COMPACT_SOON = {
    "cleanup.policy": "compact",
    "segment.ms": "50",  # the filler arrives later than this and so starts a new segment
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1",
    "max.message.bytes": str(topics.RECORD_BYTES),
}


class TestKafkaBus(bus.BusContract, external_writers.ExternalWritersContract):
    """A test has cells of its own; their topics are removed behind it."""

    @pytest.fixture
    async def bus_factory(self, real_parts: real.RealParts) -> AsyncIterator[bus.BusFactory]:
        test = uuid.uuid4().hex[:8]
        cluster_names: set[str] = set()

        def make(cluster_name: str = "a") -> port.Bus:
            cluster_names.add(f"{test}-{cluster_name}")
            settings = kafka.KafkaSettings(
                bootstrap=(real_parts.kafka_bootstrap,), cluster_name=f"{test}-{cluster_name}"
            )
            return kafka.KafkaBus(settings)

        self.bootstrap, self.cluster_name = real_parts.kafka_bootstrap, f"{test}-a"
        yield make
        await self._remove(cluster_names)

    async def _remove(self, cluster_names: set[str]) -> None:
        client = admin.AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await client.start()
        try:
            await client.delete_topics(
                [
                    topic.full_name(cluster_name)
                    for cluster_name in cluster_names
                    for topic in topics.ALL
                ]
            )
        finally:
            await client.close()

    async def put(
        self,
        open_bus: port.Bus,
        key: str,
        headers: dict[str, str],
        value: bytes | None,
        topic: topics.Topic = topics.SUBMISSIONS,
    ) -> None:
        name = topic.full_name(self.cluster_name)
        pairs = [(header, text.encode()) for header, text in headers.items()]
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            await producer.send_and_wait(name, value, key=key.encode(), headers=pairs)

    async def recreate(self, open_bus: port.Bus, topic: topics.Topic) -> None:
        name = topic.full_name(self.cluster_name)
        client = admin.AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await client.start()
        try:
            before = await topic_metadata.fetch_topic_ids(client._client, [name])
            await client.delete_topics([name])
            async with asyncio.timeout(records.DEADLINE_S):
                while await topic_metadata.fetch_topic_ids(client._client, [name]) == before:
                    pass
                settings = kafka.KafkaSettings(
                    bootstrap=(self.bootstrap,), cluster_name=self.cluster_name
                )
                while not await topic_metadata.fetch_topic_ids(client._client, [name]):
                    async with kafka.KafkaBus(settings):
                        pass  # entering creates what is missing
        finally:
            await client.close()

    async def compact(self, open_bus: port.Bus, topic: topics.Topic) -> None:
        name = topic.full_name(self.cluster_name)
        client = admin.AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await client.start()
        try:
            await client.alter_configs(
                [
                    config_resource.ConfigResource(
                        config_resource.ConfigResourceType.TOPIC, name, COMPACT_SOON
                    )
                ]
            )
        finally:
            await client.close()
        before = await self._count(name)
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            while await self._count(name) >= before:
                # The last segment is never compacted: this starts another one.
                await producer.send_and_wait(name, b"{}", key=b"filler")
                before += 1

    async def _count(self, name: str) -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="earliest"
        )
        async with consumer:
            partition = aiokafka.TopicPartition(name, 0)
            consumer.assign([partition])
            (end,) = (await consumer.end_offsets([partition])).values()
            count = 0
            while await consumer.position(partition) < end:
                fetched = await consumer.getmany(partition, timeout_ms=200)
                count += len(fetched.get(partition, ()))
            return count


async def test_the_example_follows_job_events(real_parts: real.RealParts) -> None:
    """A consumer that uses nothing of Stromboli but the topic's name."""
    settings = kafka.KafkaSettings(
        bootstrap=(real_parts.kafka_bootstrap,), cluster_name=uuid.uuid4().hex[:8]
    )
    async with kafka.KafkaBus(settings) as open_bus:
        writer = await open_bus.open_writer("controller", "c1")
        await writer.append(records.phase_change("default/before"))
        example = await asyncio.create_subprocess_exec(
            sys.executable,
            EXAMPLE,
            *settings.bootstrap,
            settings.cluster_name,
            stdout=asyncio.subprocess.PIPE,
        )
        assert example.stdout is not None
        try:
            async with asyncio.timeout(records.DEADLINE_S):
                first = await example.stdout.readline()
                await writer.append(records.phase_change("default/after"))
                second = await example.stdout.readline()
        finally:
            example.kill()
            await example.wait()
    assert first == b"2026-01-01T12:00:00Z default/before job_phase_changed Running\n"
    assert second == b"2026-01-01T12:00:00Z default/after job_phase_changed Running\n"
