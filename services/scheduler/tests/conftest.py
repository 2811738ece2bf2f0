"""A log that the scheduler's service runs on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.scheduler.tests.running import Outside
from stromboli.local.bus import EmbeddedBus
from stromboli.testkit import builders


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with EmbeddedBus(tmp_path / "log.db", clock=lambda: builders.NOON) as bus:
        monitor = await bus.open_writer("monitor", "test")
        made = Outside(bus, monitor, await bus.open_writer("controller", "test"))
        beating = asyncio.create_task(made.beat())
        yield made
        beating.cancel()
        await asyncio.wait([beating])
