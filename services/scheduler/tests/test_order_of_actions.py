"""Actions in an unusual order: what a later action decides may let an earlier one decide more.
Another session follows, although nothing else changes."""

import pytest

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue
from stromboli.scheduler.core import simulate
from stromboli.testkit import builders

TIER = [sessions.plugin(name) for name in ("priority", "gang", "predicates", "nodeorder")]


@pytest.mark.parametrize("run", ["allocate, enqueue", "backfill, allocate, enqueue"])
def test_a_gang_that_is_admitted_after_allocate_starts_in_the_next_session(run: str) -> None:
    """Operators create pods with their PodGroup: no new pod starts a session."""
    loop = Loop(sessions.configured(TIER, run=run), {"n1": 2}, [Queue("a")])
    loop.add(Gang("g", "a", 0, minimum=2, cpu=1, waiting=2, is_inside=False))
    assert loop.settle(most=10) == 2
    assert loop.places("g") == ["n1", "n1"]


def test_a_best_effort_gang_that_allocate_admits_after_backfill_starts_next() -> None:
    loop = Loop(sessions.configured(TIER, run="backfill, allocate"), {"n1": 2}, [Queue("a")])
    loop.add(Gang("g", "a", 0, minimum=1, cpu=0, waiting=1, is_inside=False))
    assert loop.settle(most=10) == 2
    assert loop.places("g") == ["n1"]


@pytest.mark.parametrize("run", ["enqueue, allocate, backfill", "allocate, backfill"])
def test_the_usual_order_needs_no_further_session(run: str) -> None:
    objects = sessions.gang("g", "default", 1)
    group = builders.make_pod_group("new", 1, phase="Pending")
    cluster = sessions.given([builders.make_queue(), builders.make_node(), *objects, group])
    assert simulate.run(sessions.configured(TIER, run=run), cluster).wake_at is None
