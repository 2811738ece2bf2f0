"""Fixtures of the scheduler's tests."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.scheduler.tests.support.service_driver import OtherServices
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared.bus import kafka
from stromboli.testkit import builders
from stromboli.testkit.parts import real


@pytest.fixture
async def other_services(tmp_path: Path) -> AsyncIterator[OtherServices]:
    async with EmbeddedBus(tmp_path / "log.db", clock=lambda: builders.NOON) as bus:
        monitor = await bus.open_writer("monitor", "test")
        made = OtherServices(bus, monitor, await bus.open_writer("controller", "test"))
        beating = asyncio.create_task(made.send_heartbeats())
        yield made
        beating.cancel()
        await asyncio.wait([beating])


@pytest.fixture
async def kafka_services(real_parts: real.RealParts) -> AsyncIterator[OtherServices]:
    """The other services on a real broker; for tests marked ``real``."""
    settings = kafka.KafkaSettings(
        bootstrap=(real_parts.kafka_bootstrap,), cluster_name=f"scheduler-{uuid.uuid4().hex[:8]}"
    )
    async with kafka.KafkaBus(settings) as bus:
        monitor = await bus.open_writer("monitor", "test")
        other_services = OtherServices(bus, monitor, await bus.open_writer("controller", "test"))
        heartbeats = asyncio.create_task(other_services.send_heartbeats())
        yield other_services
        heartbeats.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await heartbeats


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.real)])
def services_of_each_log(request: pytest.FixtureRequest) -> OtherServices:
    """The other services on the embedded log, and on a real broker."""
    name = {"embedded": "other_services", "kafka": "kafka_services"}[request.param]
    found = request.getfixturevalue(name)
    assert isinstance(found, OtherServices)
    return found
