"""Reading a log in tests: a number of records, or up to the barrier, within
``records.DEADLINE_S``.
"""

import asyncio
from collections.abc import AsyncIterator

from stromboli.shared import envelope
from stromboli.shared.bus import port
from stromboli.testkit import records


async def take(consumer: port.GroupConsumer, count: int) -> list[envelope.Record]:
    """The next records of a consumer group."""
    taken: list[envelope.Record] = []
    async with asyncio.timeout(records.DEADLINE_S):
        async for record in consumer:
            taken.append(record)
            if len(taken) == count:
                break
    return taken


async def until_caught_up(fold: AsyncIterator[port.Batch]) -> port.Position:
    """Read a materialization until it is caught up; return its position."""
    async with asyncio.timeout(records.DEADLINE_S):
        while not (read := await anext(fold)).caught_up:
            pass
    return read.position


async def next_records(fold: AsyncIterator[port.Batch], count: int) -> list[envelope.Record]:
    """The next records of a materialization, from batches of any size."""
    read: list[envelope.Record] = []
    async with asyncio.timeout(records.DEADLINE_S):
        while len(read) < count:
            read += (await anext(fold)).records
    return read
