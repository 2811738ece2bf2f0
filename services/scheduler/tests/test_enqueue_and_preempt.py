"""Which urgent gangs get as far as preempt: those that the action enqueue has let in.

As in Volcano, proportion adds a gang's minimum to the minimums that its queue holds, without regard
to priorities. A queue that is full of minimums admits no gang that would preempt them, unless the
plugin leaves enqueueing alone (docs/queues.md).
"""

import pytest

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue

URGENT = Gang("urgent", "a", 1, 2, 2, waiting=2, is_inside=False)
MOST_SESSIONS = 20


def loop_with(gang: Gang, **flags: bool) -> Loop:
    """Two nodes of 4 cpus, all held by a gang of priority 0, in a configuration that preempts;
    ``flags``: of proportion."""
    tiers = (
        [sessions.plugin("priority"), sessions.plugin("gang", enablePreemptable=False)],
        [
            sessions.plugin("predicates"),
            sessions.plugin("proportion", None, **flags),
            sessions.plugin("nodeorder"),
        ],
    )
    configured = sessions.configured(*tiers, run="enqueue, allocate, preempt, backfill")
    loop = Loop(configured, {"n0": 4, "n1": 4}, [Queue("a")])
    loop.add(gang)
    loop.add(URGENT)
    assert loop.settle(MOST_SESSIONS) is not None
    return loop


def test_a_queue_full_of_minimums_admits_no_urgent_gang() -> None:
    loop = loop_with(Gang("held", "a", 0, 4, 2, ("n0", "n0", "n1", "n1")))
    assert loop.phase("urgent") == "Pending"
    message = loop.explained["default/urgent"].message
    assert "queue resource quota insufficient: insufficient cpu" in message


@pytest.mark.parametrize(
    ("minimum", "flags"),
    [(1, {}), (4, {"enableJobEnqueued": False})],
    ids=["pods above the minimum count as free", "proportion does not vote on enqueueing"],
)
def test_an_urgent_gang_that_was_admitted_preempts(minimum: int, flags: dict[str, bool]) -> None:
    loop = loop_with(Gang("held", "a", 0, minimum, 2, ("n0", "n0", "n1", "n1")), **flags)
    assert len(loop.places("urgent")) == URGENT.minimum
