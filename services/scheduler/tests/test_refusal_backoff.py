"""Back-off of gangs whose decisions the API server refuses repeatedly."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import DENIED, Gang, Loop, Queue
from stromboli.scheduler.core import policy
from stromboli.scheduler.core.cache import refusal_backoff
from stromboli.scheduler.core.replay import session_replay
from stromboli.shared import envelope, topics
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

TIER = [sessions.plugin(name) for name in ("priority", "predicates", "nodeorder")]
TIER.append(sessions.plugin("gang", enablePreemptable=False))
CONFIGURED = sessions.configured(TIER, run="enqueue, allocate, preempt, backfill")
LIMIT = refusal_backoff.MAX_WAIT
FIRST = Gang("first", "default", priority=0, minimum=1, cpu=1, waiting=1)
OTHER = Gang("other", "default", priority=0, minimum=2, cpu=1, waiting=2)


def refusing() -> Loop:
    """The API server denies to bind the only pod of ``first``."""
    loop = Loop(CONFIGURED, {"n1": 4}, [Queue("default")])
    loop.refused_pods.add("default/first-0")
    loop.add(FIRST)
    return loop


def run_for(loop: Loop, duration: timedelta) -> None:
    """Run all sessions that are due until then."""
    end = loop.now + duration
    while loop.is_due_before(end):
        loop.step()
    loop.now = max(loop.now, end)


def seconds_of_decisions(loop: Loop, gang: str) -> list[float]:
    """Times of the gang's decisions, in seconds since the first one."""
    found = [
        each.time
        for each in loop.records(topics.DECISIONS)
        if isinstance(envelope.decode(each), messages.StatementDecided)
        and each.key == f"default/{gang}"
    ]
    return [(each - found[0]).total_seconds() for each in found]


def test_a_gang_that_is_refused_repeatedly_is_decided_at_growing_intervals() -> None:
    loop = refusing()
    run_for(loop, timedelta(minutes=10))
    times = seconds_of_decisions(loop, "first")
    # An outcome is read by the next session, which is 1 s later.
    waits = [later - earlier - 1 for earlier, later in pairwise(times)]
    assert waits[:7] == [0, 1, 2, 4, 8, 16, 32]
    assert set(waits[7:]) == {LIMIT.total_seconds()}


def test_the_explanation_names_the_refusal_and_the_next_attempt() -> None:
    loop = refusing()
    run_for(loop, timedelta(seconds=20))
    explained = loop.explained["default/first"]
    assert explained.tier == "refused"
    assert f"default/first-0 was not bound (Forbidden: {DENIED})" in explained.message
    assert explained.message.endswith(
        " Refused 5 times in a row; the next attempt is at 2026-01-01T13:00:21+00:00."
    )


@pytest.mark.parametrize("minutes", [0, 1, 30])
def test_a_gang_binds_within_the_longest_wait_after_the_refusal_ends(minutes: int) -> None:
    """Liveness: a back-off without a cap would delay it by as long as it was refused."""
    loop = refusing()
    run_for(loop, timedelta(minutes=minutes))
    loop.refused_pods.clear()
    run_for(loop, LIMIT + timedelta(seconds=2))
    assert loop.places("first") == ["n1"]
    assert "default/first" not in loop.explained


def test_other_gangs_are_not_delayed_by_one_that_is_refused() -> None:
    loop = refusing()
    run_for(loop, timedelta(minutes=5))
    loop.add(OTHER)
    run_for(loop, timedelta(seconds=2))
    assert loop.places("other") == ["n1", "n1"]


def test_other_gangs_use_the_room_of_one_that_backs_off() -> None:
    loop = refusing()
    run_for(loop, timedelta(minutes=5))
    loop.add(Gang("large", "default", priority=0, minimum=4, cpu=1, waiting=4))
    run_for(loop, timedelta(seconds=2))
    assert loop.places("large") == ["n1"] * 4


def test_a_refusal_that_does_not_repeat_delays_nothing() -> None:
    """The pod may have changed since the session: the next session decides by the
    present objects.
    """
    loop = refusing()
    loop.step()
    loop.refused_pods.clear()
    loop.step()
    assert loop.places("first") == ["n1"]


def test_a_gang_that_started_is_forgotten() -> None:
    loop = refusing()
    run_for(loop, timedelta(seconds=20))
    assert loop.memory[refusal_backoff.NAME]
    loop.refused_pods.clear()
    run_for(loop, LIMIT)
    assert loop.places("first") == ["n1"]
    loop.add(OTHER)
    run_for(loop, timedelta(seconds=2))
    assert loop.memory[refusal_backoff.NAME] == ""


def test_a_gang_that_is_deleted_is_forgotten() -> None:
    loop = refusing()
    run_for(loop, timedelta(seconds=20))
    loop.end("first")
    loop.add(OTHER)
    run_for(loop, timedelta(seconds=2))
    assert loop.memory[refusal_backoff.NAME] == ""


def test_a_restart_keeps_the_back_off() -> None:
    loop = refusing()
    run_for(loop, timedelta(minutes=2))
    before = len(seconds_of_decisions(loop, "first"))
    loop.restart()
    run_for(loop, LIMIT / 2)
    assert len(seconds_of_decisions(loop, "first")) - before <= 1


def test_a_replay_decides_as_the_sessions_that_backed_off() -> None:
    loop = refusing()
    run_for(loop, timedelta(minutes=2))
    by = policy.Policy(configured=CONFIGURED)
    replayed = list(session_replay.replay_sessions(loop.log, [CONFIGURED], by))
    assert len(replayed) > 8
    assert all(each.is_same for each in replayed)


def test_a_gang_at_the_head_of_its_queue_holds_up_no_other_while_it_backs_off() -> None:
    """With ``fifo`` a gang that finds no room holds up the others; a refused one has found it."""
    fifo = sessions.configured([*TIER, sessions.plugin("queue-policy")])
    loop = Loop(fifo, {"n1": 4}, [Queue("default", dequeue_strategy="fifo")])
    loop.refused_pods.add("default/first-0")
    loop.add(FIRST)
    run_for(loop, timedelta(minutes=5))
    loop.add(OTHER)
    run_for(loop, timedelta(seconds=2))
    assert loop.places("other") == ["n1", "n1"]


def test_refused_evictions_delay_the_gang_that_preempts() -> None:
    loop = Loop(CONFIGURED, {"n1": 1}, [Queue("default")])
    loop.refuses_evictions = True
    loop.add(Gang("low", "default", priority=0, minimum=1, cpu=1, running=("n1",)))
    loop.add(Gang("high", "default", priority=2, minimum=1, cpu=1, waiting=1))
    run_for(loop, timedelta(minutes=10, seconds=5))
    assert 8 < len(seconds_of_decisions(loop, "high")) <= 17
    explained = loop.explained["default/high"]
    assert explained.tier == "refused"
    assert f"default/low-0 was not evicted (Forbidden: {DENIED})" in explained.message
    loop.refuses_evictions = False
    run_for(loop, 2 * LIMIT)
    assert loop.places("high") == ["n1"]


def test_a_refused_admission_to_the_queue_delays_the_gang() -> None:
    loop = Loop(CONFIGURED, {"n1": 1}, [Queue("default")])
    loop.refused_entries.add("first")
    loop.add(Gang("first", "default", 0, minimum=1, cpu=1, waiting=1, is_inside=False))
    run_for(loop, timedelta(minutes=10))
    assert 8 < len(seconds_of_decisions(loop, "first")) <= 17
    explained = loop.explained["default/first"]
    assert explained.tier == "refused"
    assert "default/first was not admitted to its queue" in explained.message
    loop.refused_entries.clear()
    run_for(loop, 2 * LIMIT)
    assert loop.places("first") == ["n1"]


def test_the_memory_of_refused_gangs_is_bounded() -> None:
    """A record of a session has a largest size, and tenants choose how many gangs are refused."""
    known = {
        f"default/g{at}": refusal_backoff.RefusedGang(f"u{at}", builders.NOON, 1 + at % 3)
        for at in range(3 * refusal_backoff.MAX_GANGS)
    }
    kept = refusal_backoff.bounded(known)
    assert len(kept) == refusal_backoff.MAX_GANGS
    assert {each.refusals for each in kept.values()} == {3}, "those refused most often are kept"


@depth.examples(20)
@given(
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.integers(0, 300),
    st.integers(1, 3),
)
def test_every_gang_starts_after_refusals_end(
    refused: list[bool], seconds: int, minimum: int
) -> None:
    """Whichever gangs were refused, and for how long; the others start during that time."""
    loop = Loop(CONFIGURED, {"n1": 6, "n2": 6}, [Queue("default")])
    for at, is_refused in enumerate(refused):
        gang = Gang(f"g{at}", "default", 0, minimum=minimum, cpu=1, waiting=minimum)
        loop.add(gang)
        if is_refused:
            loop.refused_pods.update(loop.members(gang.name))
    run_for(loop, timedelta(seconds=5 + seconds))
    for at, is_refused in enumerate(refused):
        assert bool(loop.places(f"g{at}")) is not is_refused
    loop.refused_pods.clear()
    run_for(loop, LIMIT + timedelta(seconds=2))
    assert all(len(loop.places(name)) == minimum for name in loop.gangs)
