"""Gang atomicity over time: a gang that was started only in part is completed or released whole."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue
from services.scheduler.tests.support.harness import SchedulerHarness
from stromboli.scheduler.core.cache import partial_gangs
from stromboli.shared import envelope, topics
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

TIER = [sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")]
CONFIGURED = sessions.configured(TIER, run="enqueue, allocate, backfill")
LIMIT = partial_gangs.RELEASE_AFTER
FIRST = Gang("first", "default", priority=0, minimum=3, cpu=1, waiting=3)


def partly_started() -> Loop:
    """Two members of ``first`` run on n1; the bind of the third one to n2 was refused, and n2 is
    deleted, so that no session can place it.
    """
    loop = Loop(CONFIGURED, {"n1": 2, "n2": 1}, [Queue("default")])
    loop.refused_nodes.add("n2")
    loop.add(FIRST)
    loop.step()
    loop.remove_node("n2")
    assert loop.places("first") == ["n1", "n1"]
    return loop


def evictions(loop: Loop) -> Sequence[messages.StatementDecided]:
    """Statements that evict, in the order of the log."""
    decoded = [envelope.decode(each) for each in loop.records(topics.DECISIONS)]
    return [
        each for each in decoded if isinstance(each, messages.StatementDecided) and each.evictions
    ]


def run_for(loop: Loop, duration: timedelta) -> None:
    """Run all sessions that are due until then."""
    end = loop.now + duration
    while loop.is_due_before(end):
        loop.step()
    loop.now = max(loop.now, end)


def test_a_gang_that_was_partly_refused_is_evicted_whole_after_the_limit() -> None:
    loop = partly_started()
    run_for(loop, LIMIT - timedelta(seconds=5))
    assert loop.places("first") == ["n1", "n1"], "before the limit it may still become complete"
    run_for(loop, timedelta(seconds=10))
    assert loop.places("first") == []
    (statement,) = evictions(loop)
    assert statement.pod_group == "default/first"
    assert {each.reason for each in statement.evictions} == {partial_gangs.NAME}
    assert not statement.binds


def test_the_room_of_a_released_gang_starts_another_entitled_gang() -> None:
    """Liveness: without the release the second gang waits forever."""
    loop = partly_started()
    loop.add(Gang("second", "default", priority=0, minimum=2, cpu=1, waiting=2))
    assert loop.settle(20) is not None
    assert loop.places("second") == ["n1", "n1"]
    assert loop.places("first") == []


def test_a_partial_gang_that_becomes_complete_in_time_stays() -> None:
    loop = partly_started()
    run_for(loop, timedelta(seconds=5))
    loop.add_node("n3", 1)
    run_for(loop, 4 * LIMIT)
    assert sorted(loop.places("first")) == ["n1", "n1", "n3"]
    assert evictions(loop) == []
    assert loop.memory.get(partial_gangs.NAME, "") == ""


def test_a_gang_that_was_whole_and_lost_a_member_is_not_released() -> None:
    """What happens to it is decided by its job's policies."""
    loop = Loop(CONFIGURED, {"n1": 2, "n2": 1}, [Queue("default")])
    loop.add(FIRST)
    loop.step()
    assert len(loop.places("first")) == 3
    loop.fail_node("n2")
    run_for(loop, 4 * LIMIT)
    assert loop.places("first") == ["n1", "n1"]
    assert evictions(loop) == []


def test_refusals_that_repeat_do_not_extend_the_limit() -> None:
    """Each session binds the third member again, and each bind is refused."""
    loop = Loop(CONFIGURED, {"n1": 2, "n2": 1}, [Queue("default")])
    loop.refused_nodes.add("n2")
    loop.add(FIRST)
    run_for(loop, LIMIT + timedelta(seconds=10))
    assert len(evictions(loop)) == 1
    assert loop.places("first") == []


@pytest.mark.parametrize("seconds", [1, 20])
def test_a_restart_keeps_the_limit(seconds: int) -> None:
    loop = partly_started()
    run_for(loop, timedelta(seconds=seconds))
    start = loop.now
    loop.restart()
    run_for(loop, LIMIT - timedelta(seconds=seconds) + timedelta(seconds=5))
    assert loop.places("first") == []
    assert loop.now - start <= LIMIT + timedelta(seconds=5)


def test_a_refused_eviction_is_tried_again_after_the_limit() -> None:
    loop = partly_started()
    loop.refuses_evictions = True
    run_for(loop, LIMIT + timedelta(seconds=5))
    assert loop.places("first") == ["n1", "n1"]
    assert len(evictions(loop)) == 1
    loop.refuses_evictions = False
    run_for(loop, LIMIT + timedelta(seconds=5))
    assert loop.places("first") == []
    assert len(evictions(loop)) == 2


def test_the_explanation_has_the_time_of_the_eviction_of_started_members() -> None:
    loop = partly_started()
    run_for(loop, timedelta(seconds=2))
    explained = loop.explained["default/first"]
    assert explained.message.endswith(
        " 2 of 3 members started, others were refused: the started members are evicted at "
        "2026-01-01T13:00:32+00:00 unless the gang is complete."
    )


def test_nothing_is_evicted_while_a_member_cannot_be_read() -> None:
    """Unknown never means delete."""
    loop = partly_started()
    loop.make_pod_unreadable("default/first-2")
    run_for(loop, 3 * LIMIT)
    assert evictions(loop) == []


def test_the_refusal_that_makes_a_gang_partial_starts_a_session() -> None:
    """Nothing else would: the pod is gone that was refused, and the others are on nodes. The
    session notes since when the gang is partial."""
    harness = SchedulerHarness()
    pods = [builders.make_pod(f"g-w-{at}", "g", cpu="1") for at in range(2)]
    harness.see(builders.make_queue(), builders.make_node("n1", cpu="4"))
    harness.see(builders.make_pod_group("g", 2), *pods)
    harness.session()
    harness.lose(pods[1])
    harness.session()
    assert not is_session_due(harness)
    harness.answer("refused", "g-w-1")
    assert is_session_due(harness)
    record = harness.session().record
    assert record is not None
    assert partial_gangs.NAME in record.memory


def is_session_due(harness: SchedulerHarness) -> bool:
    return bool(harness.cache.session_cause)
