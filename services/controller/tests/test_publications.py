"""Publications of decisions: each is answered, and no decision is executed twice."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from services.controller.tests.support import service_harness
from services.controller.tests.support.service_harness import Harness
from stromboli.controller.execution import publications
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import kinds
from stromboli.shared.messages import scheduling
from stromboli.testkit import builders
from stromboli.testkit.builders import make_job, make_node, make_task

J = "default/j1"


@pytest.fixture(
    params=[None, service_harness.SEED, service_harness.SEED + 1],
    ids=["in order", "disorder 1", "disorder 2"],
)
async def harness(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with service_harness.set_up(tmp_path, request.param) as made:
        await made.submit(make_node())
        yield made


async def enqueued(harness: Harness) -> None:
    await harness.submit(make_job(tasks=[make_task(replicas=2)]))
    await harness.answer(await harness.enqueue(await harness.group(J)))


async def test_a_decision_with_an_outcome_is_not_executed_again_after_a_restart(
    harness: Harness,
) -> None:
    """The scheduler has acted on the first outcome: a second one might be another."""
    async with harness.controller():
        await enqueued(harness)
        one, two = await harness.pods(2)
        group = await harness.group(J)
        first = await harness.evict(group, one, notice_s=86_400)
        absent = msgspec.structs.replace(
            two, metadata=msgspec.structs.replace(two.metadata, name="later", uid="u-later")
        )
        refused = await harness.place(group, [absent])
        assert [it.result for it in (await harness.answer(refused)).tasks] == ["refused"]
        assert not harness.answers(first)
    before = {it.decision_offset for it in harness.answers(refused)}
    number = len(harness.answers(refused))
    async with harness.controller():
        await harness.answer(await harness.place(group, [two]))
    assert {it.decision_offset for it in harness.answers(refused)} == before
    if harness.faults is None:
        assert len(harness.answers(refused)) == number


async def test_a_publication_is_not_executed_once_a_later_one_of_its_decision_has_an_outcome(
    tmp_path: Path,
) -> None:
    """A restart reads it again while an earlier decision is open. It could bind what the outcome
    refused, on a node whose room is taken meanwhile."""
    outcome = scheduling.DecisionAnswered(
        decision="scheduler/0/5", decision_offset=7, pod_group="default/g", unanswered_from=3
    )
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        assert await publications.outcomes_since(bus, 3) == {}
        await publish(bus, outcome)
        answered = publications.AnsweredPublications(await publications.outcomes_since(bus, 3))
    assert answered.has(outcome.decision, 5)
    assert answered.has(outcome.decision, 7)
    assert not answered.has(outcome.decision, 8), "published again since"
    assert not answered.has("scheduler/0/6", 5)


async def publish(bus: EmbeddedBus, *outcomes: scheduling.DecisionAnswered) -> None:
    writer = await bus.open_writer("controller", "test")
    for at in range(0, len(outcomes), 500):
        await writer.append(
            *(
                envelope.Draft(
                    topic=topics.OUTCOMES, key=each.decision, message=each, time=builders.NOON
                )
                for each in outcomes[at : at + 500]
            )
        )


@pytest.mark.parametrize("committed", [0, 1, 700, 1990, 2000])
async def test_all_outcomes_since_the_committed_position_are_known(
    tmp_path: Path, committed: int
) -> None:
    """A commit may lag behind thousands of outcomes. Earlier ones need no memory."""
    count = 2000
    outcomes = [
        answer_at(offset, unanswered_from=offset, outcomes_from=offset + 1)
        for offset in range(count)
    ]
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        await publish(bus, *outcomes)
        found = await publications.outcomes_since(bus, committed)
    assert [answer.decision_offset for answer in found.values()] == list(range(committed, count))


async def test_outcomes_of_two_terms_ago_are_known_while_an_earlier_decision_is_open(
    harness: Harness,
) -> None:
    """The second term has published outcomes, but not that one."""
    async with harness.controller():
        await enqueued(harness)
        one, _ = await harness.pods(2)
        group = await harness.group(J)
        await harness.evict(group, one, notice_s=86_400)
        first = await harness.answer(await harness.enqueue(group))
    async with harness.controller():
        last = await harness.answer(await harness.enqueue(group))
    offsets = {record.key: record.offset for record in harness.read[topics.OUTCOMES.name]}
    assert last.outcomes_from <= offsets[first.decision], "a third term reads it, too"


def test_outcomes_of_a_connection_are_kept_for_records_that_the_log_repeats() -> None:
    answered = publications.AnsweredPublications({1: answer_at(0, unanswered_from=0)})
    for offset in range(1, publications.KEPT + 2):
        answered.note(answer_at(offset, unanswered_from=0))
    assert answered.has("scheduler/0/0", 0)
    assert not answered.has("scheduler/0/1", 1)
    assert answered.has("scheduler/0/2", 2)


def answer_at(
    offset: int, unanswered_from: int, outcomes_from: int = 0
) -> scheduling.DecisionAnswered:
    return scheduling.DecisionAnswered(
        decision=f"scheduler/0/{offset}",
        decision_offset=offset,
        pod_group="default/g",
        unanswered_from=unanswered_from,
        outcomes_from=outcomes_from,
    )


async def test_a_decision_published_again_is_answered_again_and_executed_once(
    harness: Harness,
) -> None:
    async with harness.controller():
        await enqueued(harness)
        pods = await harness.pods(2)
        decision = await harness.place(await harness.group(J), pods)
        first = await harness.answer(decision)
        second = await harness.answer_at(await harness.republish(decision))
        assert [it.result for it in first.tasks] == ["executed", "executed"]
        assert second.decision == decision
        assert [it.result for it in second.tasks] == ["executed", "executed"]
        for pod in await harness.pods(2):
            assert pod.metadata.annotation(keys.DECISION) == decision


async def test_a_decision_published_again_while_it_is_executed_keeps_no_restart_back(
    harness: Harness,
) -> None:
    """It is executed once, and a restart reads from its last publication on; decisions in between
    are not read again.
    """
    async with harness.controller():
        await enqueued(harness)
        one, two = await harness.pods(2)
        group = await harness.group(J)
        stuck = await harness.evict(group, one, notice_s=3600)
        await harness.answer(await harness.place(group, [two]))
        offset = await harness.republish(stuck)
        while (await harness.answer(await harness.enqueue(group))).unanswered_from < offset:
            pass
        assert not harness.answers(stuck)


async def test_every_decision_has_an_outcome_though_its_job_is_deleted(harness: Harness) -> None:
    async with harness.controller():
        await enqueued(harness)
        one, two = await harness.pods(2)
        group = await harness.group(J)
        await harness.cluster.delete(kinds.JOBS, "default", "j1")
        await harness.pods(0)
        await harness.no_groups()  # until it is deleted, it can be enqueued
        entry = await harness.enqueue(group)
        place = await harness.place(group, [two])
        evict = await harness.evict(group, one)
        assert (await harness.answer(entry)).enqueue == "refused"
        assert [it.result for it in (await harness.answer(place)).tasks] == ["refused"]
        assert [it.result for it in (await harness.answer(evict)).tasks] == ["executed"]
