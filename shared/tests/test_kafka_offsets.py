"""Groups that commit nothing new for longer than Kafka keeps offsets: on a broker that keeps them
for a minute instead of a week."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stromboli.shared import topics
from stromboli.shared.bus import kafka
from stromboli.testkit import log_reading, records
from stromboli.testkit.parts import tools
from stromboli.testkit.parts.kafka import Kafka

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

EVENTS = topics.BATCH_EVENTS
WAIT_S = 180.0


class Forgetful(Kafka):
    """A broker that soon forgets offsets."""

    def properties(self) -> dict[str, str]:
        return {
            **super().properties(),
            "offsets.retention.minutes": "1",
            "offsets.retention.check.interval.ms": "1000",
        }


@pytest.fixture
async def settings(real_tools: tools.Tools, tmp_path: Path) -> AsyncIterator[kafka.KafkaSettings]:
    broker = Forgetful(real_tools, tmp_path / "kafka")
    await broker.start()
    try:
        yield kafka.KafkaSettings(bootstrap=(broker.bootstrap,), commit_again_s=5.0)
    finally:
        await broker.stop()


async def test_an_idle_group_keeps_its_offset(settings: kafka.KafkaSettings) -> None:
    """While it runs. One that does not run loses it, which shows that the broker
    deletes offsets.
    """
    async with kafka.KafkaBus(settings) as bus:
        writer = await bus.open_writer("controller", "c1")
        await writer.append(*(records.phase_change(f"default/{number}") for number in range(3)))
        async with bus.consume(EVENTS, "away") as consumer:
            for record in await log_reading.take(consumer, 3):
                consumer.acknowledge(record)
        async with bus.consume(EVENTS, "idle") as idle:
            for record in await log_reading.take(idle, 3):
                idle.acknowledge(record)
            async with asyncio.timeout(WAIT_S):
                while await _begins_at(bus, "away") != 0:  # noqa: ASYNC110 - Kafka has no events for it
                    await asyncio.sleep(5.0)
        await writer.append(records.phase_change("default/next"))
        async with bus.consume(EVENTS, "idle") as consumer:
            assert records.keys(await log_reading.take(consumer, 1)) == ["default/next"]


async def _begins_at(bus: kafka.KafkaBus, group: str) -> int:
    """Where a group would begin, without a commit of its own."""
    assert bus._admin is not None
    name = f"default.{group}"
    found = await bus._admin.list_consumer_group_offsets(name)
    return max((each.offset for each in found.values()), default=0)
