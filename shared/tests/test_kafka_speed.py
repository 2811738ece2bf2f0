"""How long a hop over the broker takes, against an empty request in the same run, and how much
passes in a second of our processor's time. That catches a lost setting (a linger, a wait for a full
fetch, a request for each record) and no busy machine. Raw numbers: `pytest -rP`."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest
import structlog

from stromboli.shared import envelope, topics
from stromboli.shared.bus import kafka, port
from stromboli.testkit import records
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

WARM_UP, COUNTED = 50, 500
MANY = 20_000
EMPTY_REQUESTS_PER_HOP = 8.0
"""At the median: two to four are usual, and a linger or a wait of 5 ms makes it more than ten."""
RECORDS_PER_CPU_S = 2_000

_log = structlog.get_logger()


@pytest.fixture
async def open_bus(real_parts: real.RealParts) -> AsyncIterator[port.Bus]:
    settings = kafka.KafkaSettings(
        bootstrap=(real_parts.kafka_bootstrap,), cluster_name=uuid.uuid4().hex[:8]
    )
    async with kafka.KafkaBus(settings) as opened:
        yield opened


def percentile(sorted_s: Sequence[float], part: float) -> float:
    """In milliseconds."""
    return round(sorted_s[int(part * (len(sorted_s) - 1))] * 1000, 2)


async def _next(batches: AsyncIterator[port.Batch]) -> tuple[envelope.Record, ...]:
    while True:
        batch = await anext(batches)
        if batch.records:
            return batch.records


async def test_a_hop_takes_milliseconds(open_bus: port.Bus) -> None:
    """One record at a time, from the call of ``append`` to the fold of all topics that sees it."""
    writer = await open_bus.open_writer("controller", "c1")
    seen_s, acknowledged_s, empty_s = [], [], []
    async with contextlib.aclosing(open_bus.materialize(topics.ALL)) as batches:
        while not (await anext(batches)).caught_up:
            pass
        for _ in range(WARM_UP + COUNTED):
            folding = asyncio.ensure_future(_next(batches))
            began = time.perf_counter()
            await writer.append(records.phase_change())
            acknowledged_s.append(time.perf_counter() - began)
            await folding
            seen_s.append(time.perf_counter() - began)
            began = time.perf_counter()
            assert await open_bus.is_reachable()
            empty_s.append(time.perf_counter() - began)
    hops: dict[str, float] = {}
    for name, measured in (
        ("seen", seen_s),
        ("acknowledged", acknowledged_s),
        ("empty_request", empty_s),
    ):
        counted = sorted(measured[WARM_UP:])
        hops |= {f"{name}_p{part}_ms": percentile(counted, part / 100) for part in (50, 99)}
    _log.info("hop", **hops)
    assert hops["seen_p50_ms"] < EMPTY_REQUESTS_PER_HOP * hops["empty_request_p50_ms"]


async def test_thousands_of_records_per_cpu_second(open_bus: port.Bus) -> None:
    """Pod events of about 0.8 kB with their headers, appended in one call, then folded."""
    writer = await open_bus.open_writer("controller", "c1")
    drafts = [records.phase_change(f"default/{'x' * 200}-{number}") for number in range(MANY)]
    began = time.process_time()
    await writer.append(*drafts)
    appended_cpu_s = time.process_time() - began
    began = time.process_time()
    one_by_one = drafts[: MANY // 4]
    await asyncio.gather(*(writer.append(draft) for draft in one_by_one))
    concurrent_cpu_s = time.process_time() - began
    began = time.process_time()
    read, _ = await records.read(open_bus, topics.BATCH_EVENTS)
    folded_cpu_s = time.process_time() - began
    assert len(read) == MANY + len(one_by_one)
    rates = {
        "appended_per_cpu_s": round(MANY / appended_cpu_s),
        "concurrent_calls_per_cpu_s": round(len(one_by_one) / concurrent_cpu_s),
        "folded_per_cpu_s": round(len(read) / folded_cpu_s),
    }
    record = read[0]
    size = len(record.value or b"") + sum(map(len, record.headers.values()))
    _log.info("throughput", **rates, bytes_each=size)
    assert min(rates.values()) > RECORDS_PER_CPU_S
