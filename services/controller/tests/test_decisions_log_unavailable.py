"""The log may be unavailable for a while: the controller reports it and recovers, and decisions
that wait for a time delay no others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.controller.tests.support import service_harness
from services.controller.tests.support.service_harness import Harness
from stromboli.controller import service
from stromboli.controller.core.decisions import decisions
from stromboli.controller.core.store import batch_state, controller_cache, event_history
from stromboli.controller.event_history_reader import EventHistoryReader
from stromboli.controller.settings import ControllerSettings
from stromboli.shared.api import kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit.builders import make_job, make_node, make_task
from stromboli.testkit.doubles import interruptible_bus

J = "default/j1"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with service_harness.set_up(tmp_path, None) as made:
        await made.submit(make_node())
        yield made


async def troubled(health: runtime.Health, fact: str = "decisions") -> None:
    """Wait until the controller reports what it cannot read."""
    while fact not in health.problems:  # noqa: ASYNC110 - a fact of its health
        await asyncio.sleep(0.001)


async def test_decisions_continue_behind_an_eviction_with_a_long_notice(harness: Harness) -> None:
    harness.bus = bus = interruptible_bus.InterruptibleBus(harness.bus)
    async with harness.controller():
        await harness.submit(make_job(tasks=[make_task(replicas=2)]))
        await harness.answer(await harness.enqueue(await harness.group(J)))
        group, (one, two) = await harness.group(J), await harness.pods(2)
        await harness.answer(await harness.place(group, [one]))
        await harness.evict(group, one, notice_s=86_400)
        await harness.until(
            kinds.PODS, one.metadata.key, lambda pod: decisions.evicted_at(pod) is not None
        )
        bus.works_cut.set()
        await troubled(harness.health)
        bus.works_cut.clear()
        answer = await harness.answer(await harness.place(group, [two]))
        assert [it.result for it in answer.tasks] == ["executed"]
        await harness.health.ready()


async def test_a_controller_that_waits_for_its_decisions_can_be_stopped(harness: Harness) -> None:
    harness.bus = bus = interruptible_bus.InterruptibleBus(harness.bus)
    async with harness.controller():
        bus.works_cut.set()
        await troubled(harness.health)


async def test_what_came_while_the_cache_could_not_be_read_is_done_afterwards(
    harness: Harness,
) -> None:
    harness.bus = bus = interruptible_bus.InterruptibleBus(harness.bus)
    async with harness.controller():
        async with bus.cut(folds=1):
            await troubled(harness.health, "cache")
            await harness.submit(make_job(tasks=[make_task(replicas=2)]))
        await harness.group(J)
        await harness.health.ready()


async def test_a_standby_that_cannot_read_the_event_history_is_not_ready(harness: Harness) -> None:
    health, bus = runtime.Health("controller"), interruptible_bus.InterruptibleBus(harness.bus)
    cache = controller_cache.ControllerCache(["volcano"], event_history.EventHistory())
    state = batch_state.BatchState(cache.published)
    sent = EventHistoryReader(bus, health, cache, state, runtime.utc_now)
    standing = asyncio.create_task(sent.read(to_the_end=False))
    async with bus.cut(folds=1):
        await troubled(health, "history")
    await health.ready()
    standing.cancel()
    await asyncio.wait([standing])


async def test_a_controller_that_cannot_open_the_log_ends_at_once(harness: Harness) -> None:
    """It has started nothing that it could finish."""
    bus, health = interruptible_bus.InterruptibleBus(harness.bus), runtime.Health("controller")
    bus.writes_cut.set()
    controller_settings = ControllerSettings(stop_within_s=3600.0)
    work = service.serve(controller_settings, bus, harness.cluster, health, harness.clock)
    serving = asyncio.create_task(work)
    await troubled(health, "log")
    serving.cancel()
    await asyncio.wait([serving])
    assert serving.cancelled()


async def test_an_answer_that_the_log_does_not_take_at_the_end_is_given_by_the_next(
    harness: Harness,
) -> None:
    log, bus = harness.bus, interruptible_bus.InterruptibleBus(harness.bus)
    harness.bus = bus
    async with harness.controller(stop_within_s=3600.0):
        harness.bus = log
        await harness.submit(make_job(tasks=[make_task(replicas=2)]))
        await harness.answer(await harness.enqueue(await harness.group(J)))
        group, pods = await harness.group(J), await harness.pods(2)
        bus.writes_cut.set()
        decision = await harness.place(group, pods)
        for pod in pods:
            await harness.until(kinds.PODS, pod.metadata.key, lambda it: bool(it.spec.node_name))
    assert harness.answers(decision) == []
    async with harness.controller():
        answer = await harness.answer(decision)
    assert [it.result for it in answer.tasks] == ["executed", "executed"]
