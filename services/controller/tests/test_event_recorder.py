"""Kubernetes Events: a repeated Event is one object with an increasing count."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from services.controller.tests.support import service_harness
from services.controller.tests.support.core_harness import CoreHarness
from stromboli.controller.core import commands
from stromboli.controller.execution import event_recorder
from stromboli.controller.execution.event_recorder import EventRecorder
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import batch, kinds
from stromboli.testkit import records
from stromboli.testkit.builders import NOON, make_job, make_task


def event(
    minutes: int = 0, reason: str = "ExecuteAction", name: str = "j1", *, recurs: bool = True
) -> commands.RecordEvent:
    return commands.event_about(
        kinds.JOBS,
        make_job(name),
        "Normal",
        reason,
        "text",
        NOON + timedelta(minutes=minutes),
        recurs=recurs,
    )


async def found(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    return [msgspec.json.decode(raw) for raw in (await cluster.list(kinds.EVENTS)).items]


@contextlib.asynccontextmanager
async def recording(
    cluster: EmbeddedCluster, scheduled_per_s: float = 1000
) -> AsyncIterator[EventRecorder]:
    """A recorder that has written all that it was given when the block ends."""
    recorder = EventRecorder(cluster, RequestLimiter(4), scheduled_per_s)
    async with asyncio.timeout(records.DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(recorder.run())
        yield recorder
        recorder.stop()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(tmp_path / "c.db") as embedded_cluster:
        yield embedded_cluster


async def test_an_event_that_occurs_again_is_counted(cluster: EmbeddedCluster) -> None:
    async with recording(cluster) as recorder:
        for minutes in range(3):
            recorder.record(event(minutes))
    (written,) = await found(cluster)
    assert written["count"] == 3
    assert written["firstTimestamp"] == "2026-01-01T12:00:00Z"
    assert written["lastTimestamp"] == "2026-01-01T12:02:00Z"


async def test_an_event_of_a_controller_before_this_one_continues_to_be_counted(
    cluster: EmbeddedCluster,
) -> None:
    """The same occurrence is counted once even if it is reported again after a restart."""
    for minutes in (0, 1, 1, 2):
        async with recording(cluster) as recorder:
            recorder.record(event(minutes))
    (written,) = await found(cluster)
    assert written["count"] == 3


async def test_an_event_that_has_expired_begins_again(cluster: EmbeddedCluster) -> None:
    async with recording(cluster) as recorder:
        recorder.record(event())
        while not await found(cluster):  # noqa: ASYNC110 - the recorder says nothing else
            await asyncio.sleep(0)
        await cluster.delete(kinds.EVENTS, "default", event().event_name)
        recorder.record(event(1))
    (written,) = await found(cluster)
    assert (written["count"], written["firstTimestamp"]) == (1, "2026-01-01T12:01:00Z")


async def test_pods_that_were_scheduled_come_behind_everything_else(
    cluster: EmbeddedCluster,
) -> None:
    """The remaining ones are dropped at shutdown: nothing depends on Events."""
    async with recording(cluster, scheduled_per_s=0.001) as recorder:
        for number in range(5):
            recorder.record_scheduled(event(name=f"pod-{number}", reason="Scheduled"))
        recorder.record(event())
    reasons = [it["reason"] for it in await found(cluster)]
    assert reasons.count("ExecuteAction") == 1
    assert reasons.count("Scheduled") <= 1


async def test_a_bound_pod_has_an_event_with_its_node(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(records.DEADLINE_S),
        service_harness.set_up(tmp_path, faults=None) as harness,
        harness.controller(),
    ):
        await harness.submit(make_job(tasks=[make_task(replicas=2)]))
        await harness.answer(await harness.enqueue(await harness.group("default/j1")))
        await harness.answer(
            await harness.place(await harness.group("default/j1"), await harness.pods(2))
        )
        said: list[str] = []
        while len(said) < 2:
            events = await found(harness.cluster)  # type: ignore[arg-type]
            said = [it["message"] for it in events if it["reason"] == "Scheduled"]
            await asyncio.sleep(0)
    assert sorted(said) == [
        f"Successfully assigned default/j1-worker-{number} to n1" for number in range(2)
    ]


def test_each_action_of_a_policy_has_an_event() -> None:
    """Alerts are keyed on the reason."""
    here = CoreHarness()
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartJob")
    here.submit(make_job(tasks=[make_task(replicas=1)], policies=[policy]))
    events = []
    for _ in range(2):
        here.settle()
        here.enqueue(here.group_key())
        here.settle()
        here.run(phase="Failed")
        here.settle()
        here.reap("default/j1-worker-0")
        here.settle()
        events = [
            it
            for it in here.done
            if isinstance(it, commands.RecordEvent) and it.reason == "ExecuteAction"
        ]
        here.wait(60)
    assert [(it.type, it.message.split(":")[0]) for it in events] == [
        ("Normal", "Start to execute action RestartJob")
    ] * 2


def test_what_still_holds_is_reported_again_only_after_a_while() -> None:
    here = CoreHarness()
    lasting = event(recurs=False)
    here.cache.mark_recorded(lasting)
    assert here.cache.is_recorded(event(9, recurs=False))
    assert not here.cache.is_recorded(event(10, recurs=False))
    here.cache.mark_recorded(event())
    assert here.cache.is_recorded(event())
    assert not here.cache.is_recorded(event(1))


async def test_a_burst_of_dropped_events_is_logged_twice(cluster: EmbeddedCluster) -> None:
    """At its begin and, with their number, at its end: a line for each of thousands hides all
    others on a terminal."""
    recorder = event_recorder.EventRecorder(cluster, RequestLimiter(4), 0)
    with structlog.testing.capture_logs() as logged:
        for number in range(event_recorder.MOST_EVENTS + 250):
            recorder.record(event(number, recurs=False))
        recorder.stop()
        await recorder.run()
    assert [(it["event"], it.get("count")) for it in logged] == [
        ("events dropped: they occur faster than they can be written", None),
        ("events dropped", 250),
    ]
