"""Fixtures of the scheduler's tests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.scheduler.tests.support.service_driver import OtherServices
from stromboli.embedded.bus import EmbeddedBus
from stromboli.testkit import builders


@pytest.fixture
async def other_services(tmp_path: Path) -> AsyncIterator[OtherServices]:
    async with EmbeddedBus(tmp_path / "log.db", clock=lambda: builders.NOON) as bus:
        monitor = await bus.open_writer("monitor", "test")
        made = OtherServices(bus, monitor, await bus.open_writer("controller", "test"))
        beating = asyncio.create_task(made.send_heartbeats())
        yield made
        beating.cancel()
        await asyncio.wait([beating])
