"""The log of decisions may be away for a while: what waits for a time holds nobody up then."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.controller.tests import stage as stages
from services.controller.tests.stage import Stage
from stromboli.controller.core import decisions
from stromboli.shared.api import kinds
from stromboli.shared.messages import scheduling
from stromboli.testkit import breaking
from stromboli.testkit.builders import make_job, make_node, make_task

J = "default/j1"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stages.set_up(tmp_path, None) as made:
        await made.submit(make_node())
        yield made


async def troubled(stage: Stage) -> None:
    """The controller says that it reads no decisions."""
    while "decisions" not in stage.health.problems:  # noqa: ASYNC110 - a fact of its health
        await asyncio.sleep(0.001)


async def test_decisions_go_on_behind_an_eviction_with_a_long_notice(stage: Stage) -> None:
    stage.bus = bus = breaking.BreakingBus(stage.bus)
    async with stage.controller():
        await stage.submit(make_job(tasks=[make_task(replicas=2)]))
        await stage.answer(await stage.enqueue(await stage.group(J)))
        group, (one, two) = await stage.group(J), await stage.pods(2)
        await stage.answer(await stage.place(group, [one]))
        slow = scheduling.Eviction(
            namespace="default",
            pod=one.metadata.name,
            uid=one.metadata.uid,
            reason="preempt",
            notice_s=86_400,
        )
        await stage.decide(pod_group=group.metadata.key, pod_group_uid="u", evictions=(slow,))
        await stage.until(
            kinds.PODS, one.metadata.key, lambda pod: decisions.evicted_at(pod) is not None
        )
        bus.works_cut.set()
        await troubled(stage)
        bus.works_cut.clear()
        answer = await stage.answer(await stage.place(group, [two]))
        assert [it.result for it in answer.tasks] == ["executed"]
        assert stage.health.is_ready, "what is over is not held against it"


async def test_a_controller_that_waits_for_its_decisions_can_be_stopped(stage: Stage) -> None:
    stage.bus = bus = breaking.BreakingBus(stage.bus)
    async with stage.controller():
        bus.works_cut.set()
        await troubled(stage)
