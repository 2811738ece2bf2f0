"""A materialization survives failures of the log and has the same content as without them."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest

from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.fault_injection import FaultRates, FaultyBus
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import materialization, port
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, records
from stromboli.testkit.doubles import interruptible_bus

SEED = int(os.environ.get("STROM_FAULT_SEED", "20261122"))
WANTED = (topics.JOBS, topics.QUEUES)
JOBS = 120
QUICK = FaultRates(longest_delay_s=0.001)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[port.Bus]:
    async with EmbeddedBus(tmp_path / "log.db") as opened:
        yield opened


async def written(writer: port.Writer, numbers: range) -> None:
    for number in numbers:
        objs = [builders.make_job(f"j{number}"), builders.make_queue(f"q{number}")]
        await writer.append(*(builders.snapshot_of(each) for each in objs))


CUT_OFF = {"cache": "read the log: cut off"}


@pytest.mark.parametrize("round_", range(3))
async def test_after_an_interruption_each_record_arrives_in_the_order_of_its_topic(
    log: port.Bus, round_: int
) -> None:
    """After a resumption no record is missing, and only records that arrived late are repeated."""
    chance = Random(f"{SEED}/{round_}")
    writer = await log.open_writer("monitor", "test")
    bus = interruptible_bus.InterruptibleBus(FaultyBus(log, f"{SEED}/{round_}", QUICK))
    health = runtime.Health("test")
    found: list[envelope.Record] = []
    position = port.START

    async def read() -> None:
        nonlocal position
        async with contextlib.aclosing(
            materialization.materialize(bus, WANTED, health.set, "cache")
        ) as batches:
            async for batch in batches:
                found.extend(batch.records)
                position = batch.position

    async with asyncio.timeout(records.DEADLINE_S), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        first = 0
        while first < JOBS:
            behind = min(first + chance.randint(1, 40), JOBS)
            await written(writer, range(first, behind))
            first = behind
            async with bus.cut(folds=1):
                # A fault that is injected at the same time may be reported before.
                while health.problems != CUT_OFF:  # noqa: ASYNC110 - what it was reported
                    await asyncio.sleep(0.001)
        _, ends = await records.read(log, *WANTED)
        while dict(position.positions) != ends:  # noqa: ASYNC110 - where its reader is
            await asyncio.sleep(0.001)
        await health.ready()
        reading.cancel()
    for topic in WANTED:
        stood = [each.offset for each in (await records.read(log, topic))[0]]
        came = [each.offset for each in found if each.topic == topic]
        assert sorted(set(came)) == stood
        news = [at for nth, at in enumerate(came) if at > max(came[:nth], default=-1)]
        assert news == stood, "what is new comes in order"


class Refusing(EmbeddedBus):
    """A log that may not be read, or not now."""

    def __init__(self, path: Path, reason: errors.ExternalError) -> None:
        super().__init__(path)
        self._reason = reason

    def materialize(
        self,
        wanted: Sequence[topics.Topic],
        start: port.Position = port.START,
        *,
        is_urgent: bool = True,
    ) -> AsyncGenerator[port.Batch, None]:
        raise self._reason


async def test_a_permanent_failure_is_an_error(tmp_path: Path) -> None:
    bus = Refusing(tmp_path / "log.db", errors.ForbiddenError("read the log", "no rights"))
    health = runtime.Health("test")
    with pytest.raises(errors.ForbiddenError):
        await anext(materialization.materialize(bus, WANTED, health.set, "cache"))


async def test_a_retry_waits_for_the_delay_of_the_log(tmp_path: Path) -> None:
    reason = errors.TransientError("read the log", "too many", retry_after_s=3600.0)
    bus = Refusing(tmp_path / "log.db", reason)
    reported: list[str] = []

    def tell(fact: str, problem: str | None) -> None:
        reported.append(f"{fact}: {problem}")

    reading = asyncio.ensure_future(anext(materialization.materialize(bus, WANTED, tell, "cache")))
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert reported == ["cache: read the log: too many"]
    reading.cancel()
    await asyncio.wait([reading])
