"""The assume cache: decisions published and not confirmed, whatever the order of the records."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.tests.support.harness import (
    SchedulerHarness,
    answer,
    answer_to_undecodable,
    draft,
    fold,
)
from stromboli.scheduler.core.cache.in_flight import (
    assume_cache,
    assumption_states,
    assumptions,
    observations,
    republication,
)
from stromboli.scheduler.core.cache.in_flight.assumption_states import (
    Event,
    IllegalTransitionError,
    State,
)
from stromboli.shared import envelope, snapshot, topics
from stromboli.shared.api import core
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log
from stromboli.testkit.strategies import depth

NODE = builders.make_node("n1", cpu="64", pods=30_000)
QUEUE = builders.make_queue()
LIMIT = republication.FIRST_WAIT


def pods(group: str, count: int, node: str = "", version: int = 1) -> list[core.Pod]:
    return [
        builders.make_pod(f"{group}-w-{at}", group, cpu="1m", node=node, version=version)
        for at in range(count)
    ]


def statement(group: str, count: int, **more: object) -> messages.StatementDecided:
    binds = tuple(
        messages.Bind(namespace="default", pod=it.metadata.name, uid=it.metadata.uid, node="n1")
        for it in pods(group, count)
    )
    made = messages.StatementDecided(
        pod_group=f"default/{group}",
        pod_group_uid=builders.make_pod_group(group).metadata.uid,
        session=1,
        binds=binds,
    )
    return msgspec.structs.replace(made, **more)


def decide(harness: SchedulerHarness, made: messages.StatementDecided) -> envelope.Record:
    record = harness.log.append(draft(topics.DECISIONS, made.pod_group, made))
    harness.apply(record)
    return record


def gang(harness: SchedulerHarness, group: str, count: int) -> envelope.Record:
    """A gang with observed pods, and its decision."""
    harness.see(builders.make_pod_group(group, count), *pods(group, count))
    return decide(harness, statement(group, count))


@pytest.fixture
def harness() -> SchedulerHarness:
    made = SchedulerHarness()
    made.see(QUEUE, NODE)
    return made


# The table


def test_the_documented_diagram_is_the_table() -> None:
    documented = assumption_states.__doc__ or ""
    lines = [line.strip() for line in documented.splitlines() if "-->" in line or "->" in line]
    drawn = [line.split() for line in assumption_states.diagram().splitlines()]
    assert [line.split() for line in lines] == drawn


def test_a_transition_that_is_not_in_the_table_names_key_event_and_history() -> None:
    history = (Event.ANSWERED_EXECUTED,)
    with pytest.raises(IllegalTransitionError) as raised:
        assumption_states.after("bind a/b", State.EXECUTED, Event.ANSWERED_REFUSED, history)
    error = raised.value
    assert (error.key, error.event, error.history) == (
        "bind a/b",
        Event.ANSWERED_REFUSED,
        history,
    )
    for text in ("bind a/b", "answered_refused", "executed", "answered_executed"):
        assert text in str(error)


# Cost


def test_folding_a_decision_asks_a_constant_number_of_questions_per_pod() -> None:
    """Counted, not timed: a gang of 10,000 costs as much per pod as single pods."""
    count, requested = 400, 0
    seen, log = snapshot.Snapshot(), topic_log.TopicLog()

    def observe(assumption: assumptions.Assumption) -> observations.Observation:
        nonlocal requested
        requested += 1
        return observations.observe(seen, assumption)

    cache = assume_cache.AssumeCache(observe)
    for record in log.see(*pods("g1", count)):
        seen.apply(record)
    record = log.append(draft(topics.DECISIONS, "default/g1", statement("g1", count)))
    cache.put(record.id, record.offset, statement("g1", count))
    outcome = envelope.decode(log.append(answer(record, "executed")))
    assert isinstance(outcome, messages.DecisionAnswered)
    cache.answer(outcome, 0)
    for record in log.see(*pods("g1", count, node="n1", version=2)):
        seen.apply(record)
        cache.observe_pod(record.key)
    assert len(cache) == 0
    assert requested == 3 * count


# One by one


def test_tasks_of_a_decision_close_one_by_one(harness: SchedulerHarness) -> None:
    gang(harness, "g1", 3)
    assert harness.cache.unanswered() == 3
    one, two, three = pods("g1", 3, node="n1", version=2)
    harness.see(one)
    assert harness.cache.unanswered() == 2, "the snapshot says so before the outcome"
    harness.see(three)
    assert harness.cache.unanswered() == 1
    harness.apply(*harness.log.lose(two))
    assert harness.cache.unanswered() == 0


DECISIONS = 20_000


def stuck_behind(harness: SchedulerHarness, closed: int) -> None:
    """One decision without an outcome, then this many that are closed by a refusal."""
    gang(harness, "stuck", 1)
    for at in range(closed):
        record = decide(harness, statement(f"g{at}", 1))
        harness.apply(harness.log.append(answer(record, "refused", f"g{at}-w-0")))


def test_a_decision_without_an_outcome_holds_up_no_other_one(harness: SchedulerHarness) -> None:
    """Neither the memory of 20,000 later decisions, nor, once it is published again, the offset
    from which a restart reads."""
    stuck_behind(harness, DECISIONS)
    assert len(harness.cache.assumed) == 1
    assert harness.cache.restart_from() == (0, 0)
    assert harness.cache.assumed.overdue(builders.NOON) == []
    (again,) = harness.cache.assumed.overdue(builders.NOON + LIMIT)
    decide(harness, again)
    assert harness.cache.restart_from() == (DECISIONS + 1, DECISIONS)


def test_a_restart_from_the_advanced_offset_knows_what_is_open(harness: SchedulerHarness) -> None:
    stuck_behind(harness, 50)
    harness.cache.assumed.overdue(builders.NOON)
    (again,) = harness.cache.assumed.overdue(builders.NOON + LIMIT)
    decide(harness, again)
    offsets = harness.cache.restart_from()
    restarted = fold([it for it in harness.log.records if not _is_read_before(it, *offsets)])
    assert restarted.unanswered() == harness.cache.unanswered() == 1


def _is_read_before(record: envelope.Record, decisions: int, outcomes: int) -> bool:
    ends = {topics.DECISIONS.name: decisions, topics.OUTCOMES.name: outcomes}
    return record.offset < ends.get(record.topic.name, 0)


# Refusals


def refused_in_part(*, is_outcome_first: bool) -> SchedulerHarness:
    """Of a started gang of two, one pod is bound; the other one was deleted before its bind."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE, builders.make_pod_group("g1", 2), *pods("g1", 2))
    record = decide(harness, statement("g1", 2, starts_gang=True))
    outcome = harness.log.append(answer(record, "refused", "g1-w-1"))
    if is_outcome_first:
        harness.apply(outcome)
    harness.see(pods("g1", 2, node="n1", version=2)[0])
    harness.lose(pods("g1", 2)[1])
    harness.cache.assumed.settle()
    if not is_outcome_first:
        harness.apply(outcome)
    return harness


@pytest.mark.parametrize("is_outcome_first", [True, False])
def test_a_bind_of_a_pod_that_vanished_is_refused_also_if_the_outcome_is_read_last(
    *, is_outcome_first: bool
) -> None:
    """Otherwise a gang of which only a part was started is not known as partial."""
    harness = refused_in_part(is_outcome_first=is_outcome_first)
    (refusal,) = harness.cache.assumed.refusals.values()
    assert refusal.is_start
    assert refusal.text == "default/g1-w-1 was not bound"
    assert len(harness.cache.assumed) == 0
    assert harness.cache.restart_from() == (1, 1)


def test_a_restart_reads_the_outcome_of_a_decision_that_snapshots_closed() -> None:
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE, builders.make_pod_group("g1", 2), *pods("g1", 2))
    decide(harness, statement("g1", 2))
    harness.see(*pods("g1", 2, node="n1", version=2))
    assert len(harness.cache.assumed) == 0
    assert harness.cache.restart_from() == (0, 0)


def test_a_closed_decision_whose_outcome_is_lost_is_forgotten(harness: SchedulerHarness) -> None:
    """The controller has answered a later decision and passed this one."""
    gang(harness, "g1", 1)
    harness.see(*pods("g1", 1, node="n1", version=2))
    later = gang(harness, "g2", 1)
    passed = answer(later, "executed")
    assert passed.message is not None
    message = msgspec.structs.replace(passed.message, unanswered_from=later.offset)
    harness.apply(harness.log.append(msgspec.structs.replace(passed, message=message)))
    harness.see(*pods("g2", 1, node="n1", version=2))
    assert harness.cache.restart_from()[0] == later.offset + 1


def test_a_refusal_counts_until_its_decision_is_published_again(harness: SchedulerHarness) -> None:
    """In another order of topics the later publication is read first, and then the outcome of the
    earlier one changes nothing."""
    record = gang(harness, "g1", 1)
    outcome = harness.log.append(answer(record, "refused", "g1-w-0"))
    again = harness.log.append(
        draft(topics.DECISIONS, "default/g1", statement("g1", 1, decision=record.id))
    )
    other = SchedulerHarness([*harness.log.records[:-2], again, outcome])
    harness.apply(outcome)
    assert harness.cache.assumed.refusals
    harness.apply(again)
    assert not harness.cache.assumed.refusals
    assert not other.cache.assumed.refusals
    harness.apply(harness.log.append(answer(again, "refused", "g1-w-0")))
    assert harness.cache.assumed.refusals


def test_a_recorded_session_drops_the_refusals_that_it_has_read(harness: SchedulerHarness) -> None:
    """Those of later outcomes count, and reading them costs nothing."""
    records = [gang(harness, "g1", 1) for _ in range(3)]
    for record in records:
        harness.apply(harness.log.append(answer(record, "refused", "g1-w-0")))
    assumed = harness.cache.assumed
    assumed.record_session(2)
    assert assumed.refusals["default/g1"].offset == 2
    assert assumed.refusals is assumed.refusals
    assumed.record_session(3)
    assert not assumed.refusals
    harness.apply(harness.log.append(answer(gang(harness, "g2", 1), "refused", "g2-w-0")))
    assert assumed.refusals.keys() == {"default/g2"}


# Early outcomes


def test_an_outcome_of_a_decision_that_a_restart_does_not_read_is_not_kept(
    harness: SchedulerHarness,
) -> None:
    record = gang(harness, "g1", 1)
    later = gang(harness, "g2", 1)
    outcome = harness.log.append(answer(record, "executed"))
    restarted = SchedulerHarness()
    restarted.cache.advance({topics.DECISIONS.name: later.offset})
    restarted.apply(outcome, later)
    assert restarted.cache.restart_from() == (later.offset, outcome.offset + 1)


def test_an_early_outcome_is_dropped_once_its_decision_could_have_come(
    harness: SchedulerHarness,
) -> None:
    """It is one of a replaced writer, which no reader sees."""
    record = gang(harness, "g1", 1)
    harness.apply(harness.log.append(answer(record, "executed")))
    ghost = messages.DecisionAnswered(
        decision="scheduler/0/77", decision_offset=5, pod_group=record.key
    )
    harness.apply(harness.log.append(draft(topics.OUTCOMES, "scheduler/0/77", ghost)))
    harness.see(*pods("g1", 1, node="n1", version=2))
    assert harness.cache.restart_from() == (1, 1)
    harness.cache.advance({topics.DECISIONS.name: 6})
    assert harness.cache.restart_from() == (6, 2)


# Published again


def test_a_refusal_of_an_earlier_publication_frees_nothing(harness: SchedulerHarness) -> None:
    """The controller may still act on the later one."""
    record = gang(harness, "g1", 1)
    again = decide(harness, statement("g1", 1, decision=record.id))
    harness.apply(harness.log.append(answer(record, "refused", "g1-w-0")))
    assert harness.used_cpu() == 1
    harness.apply(harness.log.append(answer(again, "refused", "g1-w-0")))
    assert harness.used_cpu() == 0


def test_what_is_published_again_is_what_is_still_open(harness: SchedulerHarness) -> None:
    record = gang(harness, "g1", 3)
    harness.see(pods("g1", 3, node="n1", version=2)[1])
    harness.cache.assumed.overdue(builders.NOON)
    (again,) = harness.cache.assumed.overdue(builders.NOON + LIMIT)
    assert again.decision == record.id
    assert [bind.pod for bind in again.binds] == ["g1-w-0", "g1-w-2"]


def test_a_decision_is_published_again_less_and_less_often(harness: SchedulerHarness) -> None:
    gang(harness, "g1", 1)
    times = []
    for second in range(0, 3600, 10):
        now = builders.NOON + timedelta(seconds=second)
        times += [second for _ in harness.cache.assumed.overdue(now)]
    assert times == [30, 90, 210, 450, 930, 1530, 2130, 2730, 3330]


def test_a_clock_that_is_set_back_starts_the_wait_again(harness: SchedulerHarness) -> None:
    gang(harness, "g1", 1)
    harness.cache.assumed.overdue(builders.NOON)
    earlier = builders.NOON - timedelta(hours=1)
    assert harness.cache.assumed.overdue(earlier) == []
    assert len(harness.cache.assumed.overdue(earlier + LIMIT)) == 1


def test_a_controller_that_is_behind_gets_few_decisions_again(harness: SchedulerHarness) -> None:
    for at in range(republication.MAX_PER_STEP + 50):
        gang(harness, f"g{at}", 1)
    harness.cache.assumed.overdue(builders.NOON)
    again = harness.cache.assumed.overdue(builders.NOON + LIMIT)
    assert len(again) == republication.MAX_PER_STEP


def test_outcomes_that_are_lost_for_certain_are_requested_all_at_once(
    harness: SchedulerHarness,
) -> None:
    """The controller publishes that it has answered everything below its offset."""
    count = republication.MAX_PER_STEP + 50
    for at in range(count):
        gang(harness, f"g{at}", 1)
    last = gang(harness, "last", 1)
    reported = envelope.decode(harness.log.append(answer(last, "executed")))
    assert isinstance(reported, messages.DecisionAnswered)
    behind = msgspec.structs.replace(reported, unanswered_from=last.offset + 1)
    harness.apply(harness.log.append(draft(topics.OUTCOMES, last.id, behind)))
    harness.cache.assumed.overdue(builders.NOON)
    again = harness.cache.assumed.overdue(builders.NOON + LIMIT)
    assert len(again) == count + 1


def test_evictions_under_notice_keep_no_pod_waiting_for_a_place(harness: SchedulerHarness) -> None:
    """The controller waits hours for the end of the notice, at no cost to others."""
    (one,) = pods("g1", 1, node="n1")
    harness.see(builders.make_pod_group("g1", 1), one)
    eviction = messages.Eviction(
        namespace="default",
        pod=one.metadata.name,
        uid=one.metadata.uid,
        reason="preempt",
        notice_s=3600,
    )
    decide(harness, statement("g2", 0, evictions=(eviction,)))
    assert harness.cache.unanswered() == 0


# Any interleaving


@settings(depth.examples(100))
@given(data=st.data())
def test_any_interleaving_of_topics_leads_to_the_same_state(data: st.DataObject) -> None:
    """Decisions, publications, outcomes and snapshots, each topic in its own order."""
    harness = SchedulerHarness()
    harness.see(QUEUE, NODE)
    newest: dict[str, envelope.Record] = {}
    undecodable: list[envelope.Record] = []
    for number in range(data.draw(st.integers(1, 4))):
        group = f"g{number}"
        record = gang(harness, group, data.draw(st.integers(1, 3)))
        newest[record.id] = record
    for _ in range(data.draw(st.integers(0, 8))):
        id_ = data.draw(st.sampled_from(sorted(newest)))
        record = newest[id_]
        made = envelope.decode(record)
        assert isinstance(made, messages.StatementDecided)
        match data.draw(st.sampled_from(("answer", "publish", "see", "lose", "garble", "pass"))):
            case "answer":
                refused = data.draw(st.sets(st.sampled_from([it.pod for it in made.binds])))
                harness.apply(harness.log.append(answer(record, "refused", *refused)))
            case "publish":
                again = msgspec.structs.replace(made, decision=id_)
                newest[id_] = decide(harness, again)
            case "garble":
                bad = harness.log.garble(topics.DECISIONS, made.pod_group)
                harness.apply(bad)
                undecodable.append(bad)
            case "pass" if undecodable:
                harness.apply(harness.log.append(answer_to_undecodable(undecodable.pop())))
            case "see" | "pass":
                group = made.pod_group.removeprefix("default/")
                harness.see(pods(group, len(made.binds), node="n1", version=2)[0])
            case _:
                group = made.pod_group.removeprefix("default/")
                harness.apply(*harness.log.lose(pods(group, len(made.binds))[-1]))
    choices = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    mixed = SchedulerHarness(topic_log.interleave(harness.log.records, choices))
    assert mixed.cache.unanswered() == harness.cache.unanswered()
    assert mixed.used_cpu() == harness.used_cpu()
    assert mixed.cache.model.frozen == harness.cache.model.frozen
    assert len(harness.cache.model.frozen) <= len(undecodable)
    harness.cache.finish_session(is_throttled=False)
    mixed.cache.finish_session(is_throttled=False)
    assert mixed.cache.restart_from()[0] == harness.cache.restart_from()[0]
    assert len(mixed.cache.assumed) == len(harness.cache.assumed)
    assert mixed.cache.assumed.refusals == harness.cache.assumed.refusals
