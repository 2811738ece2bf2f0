"""Publications of decisions: each is answered, and no decision is executed twice."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from services.controller.tests import stage as stages
from services.controller.tests.stage import Stage
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.messages import scheduling
from stromboli.testkit.builders import make_job, make_node, make_task

J = "default/j1"


@pytest.fixture(
    params=[None, stages.SEED, stages.SEED + 1], ids=["in order", "disorder 1", "disorder 2"]
)
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with stages.set_up(tmp_path, request.param) as made:
        await made.submit(make_node())
        yield made


async def enqueued(stage: Stage) -> None:
    await stage.submit(make_job(tasks=[make_task(replicas=2)]))
    await stage.answer(await stage.enqueue(await stage.group(J)))


async def test_a_decision_with_an_outcome_is_not_executed_again_after_a_restart(
    stage: Stage,
) -> None:
    """The scheduler has acted on the first outcome: a second one might be another."""
    async with stage.controller():
        await enqueued(stage)
        one, two = await stage.pods(2)
        group = await stage.group(J)
        slow = scheduling.Eviction(
            namespace="default",
            pod=one.metadata.name,
            uid=one.metadata.uid,
            reason="preempt",
            notice_s=86_400,
        )
        first = await stage.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, evictions=(slow,)
        )
        absent = msgspec.structs.replace(
            two, metadata=msgspec.structs.replace(two.metadata, name="later", uid="u-later")
        )
        refused = await stage.place(group, [absent])
        assert [it.result for it in (await stage.answer(refused)).tasks] == ["refused"]
        assert not stage.answers(first)
    before = {it.decision_offset for it in stage.answers(refused)}
    number = len(stage.answers(refused))
    async with stage.controller():
        await stage.answer(await stage.place(group, [two]))
    assert {it.decision_offset for it in stage.answers(refused)} == before
    if stage.disorder is None:
        assert len(stage.answers(refused)) == number


async def test_a_decision_published_again_is_answered_again_and_executed_once(
    stage: Stage,
) -> None:
    async with stage.controller():
        await enqueued(stage)
        pods = await stage.pods(2)
        decision = await stage.place(await stage.group(J), pods)
        first = await stage.answer(decision)
        second = await stage.answer_at(await stage.republish(decision))
        assert [it.result for it in first.tasks] == ["executed", "executed"]
        assert second.decision == decision
        assert [it.result for it in second.tasks] == ["executed", "executed"]
        for pod in await stage.pods(2):
            assert pod.metadata.annotation(keys.DECISION) == decision


async def test_a_decision_published_again_while_it_is_executed_keeps_no_restart_back(
    stage: Stage,
) -> None:
    """It is executed once, and counts from its last publication on; what was decided meanwhile is
    not read again."""
    async with stage.controller():
        await enqueued(stage)
        one, two = await stage.pods(2)
        group = await stage.group(J)
        slow = scheduling.Eviction(
            namespace="default",
            pod=one.metadata.name,
            uid=one.metadata.uid,
            reason="preempt",
            notice_s=3600,
        )
        stuck = await stage.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, evictions=(slow,)
        )
        await stage.answer(await stage.place(group, [two]))
        offset = await stage.republish(stuck)
        while (await stage.answer(await stage.enqueue(group))).unanswered_from < offset:
            pass
        assert not stage.answers(stuck)


async def test_every_decision_has_an_outcome_though_its_job_is_gone(stage: Stage) -> None:
    async with stage.controller():
        await enqueued(stage)
        one, two = await stage.pods(2)
        group = await stage.group(J)
        await stage.cluster.delete(kinds.JOBS, "default", "j1")
        await stage.pods(0)
        eviction = scheduling.Eviction(
            namespace="default", pod=one.metadata.name, uid=one.metadata.uid, reason="preempt"
        )
        entry = await stage.enqueue(group)
        place = await stage.place(group, [two])
        evict = await stage.decide(
            pod_group=group.metadata.key, pod_group_uid=group.metadata.uid, evictions=(eviction,)
        )
        assert (await stage.answer(entry)).enqueue == "refused"
        assert [it.result for it in (await stage.answer(place)).tasks] == ["refused"]
        assert [it.result for it in (await stage.answer(evict)).tasks] == ["executed"]
