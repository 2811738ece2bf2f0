"""A running monitor, and the records that it has published."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec

from stromboli.monitor import service
from stromboli.monitor.settings import MonitorSettings
from stromboli.shared import envelope, topics
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, records

SETTINGS = MonitorSettings(heartbeat_s=0.02)


class Running(msgspec.Struct):
    """A monitor's task and health."""

    task: asyncio.Task[None]
    health: runtime.Health


@contextlib.asynccontextmanager
async def monitoring(bus: bus_port.Bus, cluster: cluster_port.Cluster) -> AsyncIterator[Running]:
    """A monitor that is ready, until the end of the block."""
    health = runtime.Health("monitor")
    serving = service.serve(SETTINGS, bus, cluster, health, lambda: builders.NOON)
    task = asyncio.create_task(serving)
    ready = asyncio.create_task(health.ready())
    try:
        async with asyncio.timeout(records.DEADLINE_S):
            await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
        assert ready.done(), task.result()
        yield Running(task, health)
    finally:
        for each in (task, ready):
            each.cancel()
        await asyncio.gather(task, ready, return_exceptions=True)


@contextlib.asynccontextmanager
async def going_on(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Something that never ends, until the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(
    bus: bus_port.Bus, topic: topics.Topic, is_so: Callable[[list[envelope.Record]], bool]
) -> list[envelope.Record]:
    """The records of a topic, once they are as wanted."""
    found: list[envelope.Record] = []
    async with (
        asyncio.timeout(records.DEADLINE_S),
        contextlib.aclosing(bus.materialize([topic])) as batches,
    ):
        async for batch in batches:
            found += batch.records
            if found and is_so(found):
                return found
    raise AssertionError("a fold ended")


async def said(bus: bus_port.Bus, *wanted: topics.Topic) -> list[envelope.Record]:
    """All records so far."""
    found, _ = await records.read(bus, *wanted)
    return found


def news(now: list[envelope.Record], before: list[envelope.Record]) -> list[envelope.Record]:
    """New records; topics are not read in one order."""
    known = {record.id for record in before}
    return [record for record in now if record.id not in known]


def count(least: int) -> Callable[[list[envelope.Record]], bool]:
    """Whether there are this many records."""
    return lambda found: len(found) >= least


def last(found: list[envelope.Record], name: str) -> envelope.Record | None:
    """The newest record of a name in the default namespace."""
    return next((r for r in reversed(found) if r.key == f"default/{name}"), None)
