"""Drafts on their way to the log: in order, and no more round trips than a reader notices."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.monitor import outbox
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster as messages
from stromboli.shared.messages import node_topology
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def draft(number: int) -> envelope.Draft:
    message = messages.Unreadable(uid=str(number), resource_version="1", reason="r")
    return envelope.Draft(topic=topics.PODS, key=f"ns/pod-{number}", message=message, time=NOW)


class Log:
    """Accepts everything immediately, almost like an idle broker."""

    epoch = opened_at = 0

    def __init__(self, refused: Mapping[str, Exception] | None = None) -> None:
        self.appends: list[tuple[str, ...]] = []
        self.messages: dict[str, object] = {}
        self._refused = refused or {}

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        for it in drafts:
            if it.key in self._refused and not isinstance(it.message, messages.Unreadable):
                raise self._refused[it.key]
        self.messages |= {it.key: it.message for it in drafts}
        begin = sum(map(len, self.appends))
        self.appends.append(tuple(it.key for it in drafts))
        return tuple(port.Appended(begin + place, it.key) for place, it in enumerate(drafts))

    async def close(self) -> None: ...


@contextlib.asynccontextmanager
async def running(
    refused: Mapping[str, Exception] | None = None,
) -> AsyncIterator[tuple[outbox.Outbox, Log]]:
    log = Log(refused)
    box = outbox.Outbox(log, runtime.Health("monitor"), 0)
    task = asyncio.create_task(box.run())
    try:
        yield box, log
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_a_burst_is_more_than_a_few_records_at_once_or_per_second() -> None:
    """Half as many a second for a minute are none; twice as many are, and it ends with them."""
    calm, crowded = outbox.BurstDetector(), outbox.BurstDetector()
    step_s = 1 / outbox.FEW_PER_S
    assert not any(calm.is_burst(1, place * 2 * step_s) for place in range(6000))
    seen = [crowded.is_burst(2, place * step_s) for place in range(6000)]
    assert not any(seen[: outbox.FEW // 2])
    assert all(seen[outbox.FEW :])
    assert not crowded.is_burst(1, 6000 * step_s + 2 * outbox.TICK_S)
    assert not outbox.BurstDetector().is_burst(outbox.FEW, 0.0)
    assert outbox.BurstDetector().is_burst(outbox.FEW + 1, 0.0)


async def test_a_single_record_is_appended_immediately() -> None:
    """One after another: none of them waits for a tick."""
    async with running() as (box, log):
        for number in range(outbox.FEW):
            box.put(draft(number))
            assert await box.settled() == number + 1
            assert len(log.appends) == number + 1


@given(st.integers(0, 10**9), st.floats(-1e-6, 1e-6))
def test_a_clock_with_millisecond_resolution_reaches_each_tick(now_ms: int, off: float) -> None:
    wait_s = outbox.to_next_tick_s(now_ms / 1000 + off)
    assert 0 < round(wait_s * 1000) <= outbox.TICK_MS
    assert (now_ms + round(wait_s * 1000)) % outbox.TICK_MS == 0


async def test_a_stream_is_appended_in_order_at_ticks() -> None:
    """A stream of single drafts takes as many appends as there were ticks, not one for each."""
    loop = asyncio.get_running_loop()
    async with running() as (box, log):
        began, put, delayed_s = loop.time(), 0, 0.0
        now = began
        while now - delayed_s < began + 6 * outbox.TICK_S:
            for _ in range(4):  # a turn of a slow loop takes milliseconds: still a burst
                box.put(draft(put))
                put += 1
            await box.room()
            await asyncio.sleep(0)
            before, now = now, loop.time()
            delayed_s += max(now - before - outbox.TICK_S / 10, 0.0)
        await box.settled()
        ticks = (loop.time() - began) / outbox.TICK_S + 1
        # A tick that the loop runs late and the next one may follow each other directly. While
        # other processes delay the loop no drafts arrive, so some of the next ones are no burst.
        assert len(log.appends) <= outbox.FEW + 2 + ticks + delayed_s * outbox.FEW_PER_S
        assert put > 2 * len(log.appends)  # else there was nothing to take together
        seen = [key for append in log.appends for key in append]
        assert seen == [draft(number).key for number in range(put)]


@pytest.mark.parametrize("error", [errors.TooLargeError("append", "x"), OverflowError("an int")])
async def test_a_rejected_snapshot_is_replaced_and_does_not_block_others(
    error: Exception,
) -> None:
    """An object that cannot be recorded is unknown, never absent."""
    node = builders.snapshot_of(builders.make_node("bad"))
    other = builders.snapshot_of(builders.make_node("good"))
    async with running({"bad": error}) as (box, log):
        for draft_ in (other, node, draft(1)):
            box.put(draft_)
        assert await box.settled() == 3
        assert log.messages["good"] == other.message
        found = log.messages["bad"]
        assert isinstance(found, messages.Unreadable)
        assert found.uid
        assert "ns/pod-1" in log.messages


async def test_another_rejected_record_is_dropped() -> None:
    node_reports = draft(1)
    topology = envelope.Draft(
        topic=topics.TOPOLOGY,
        key="n1",
        message=node_topology.TopologyObserved(
            node="n1", at=NOW, topology=node_topology.NodeTopology()
        ),
        time=NOW,
    )
    async with running({"n1": OverflowError("an int")}) as (box, log):
        box.put(topology)
        box.put(node_reports)
        assert await box.settled() == 1
        assert log.appends == [(node_reports.key,)]


def report(node: str, digest: str) -> envelope.Draft:
    topology = node_topology.NodeTopology(offline_cpus=digest)
    message = node_topology.TopologyObserved(node=node, at=NOW, topology=topology)
    return envelope.Draft(topic=topics.TOPOLOGY, key=node, message=message, time=NOW)


async def test_a_node_has_one_queued_report_however_often_it_reports() -> None:
    """While the log is unavailable, an agent could fill the monitor's memory otherwise."""
    log = Log()
    box = outbox.Outbox(log, runtime.Health("monitor"), 0, keeps_newest=True)
    for number in range(100):
        for node in ("n1", "n2"):
            box.put(report(node, str(number)))
    task = asyncio.create_task(box.run())
    assert await box.settled() == 2
    assert log.appends == [("n1", "n2")]
    assert log.messages == {node: report(node, "99").message for node in ("n1", "n2")}
    box.put(report("n1", "100"))
    assert await box.settled() == 3
    task.cancel()
    await asyncio.wait([task])
