"""The room of an admitted gang without pods, such as a suspended one, is not kept for ever.

Its PodGroup stays Inqueue: pods that appear later are scheduled without another admission.
"""

from datetime import timedelta

import pytest

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue
from services.scheduler.tests.test_partial_gangs import run_for
from stromboli.scheduler.core.model.queue_usage import PODS_EXPECTED_WITHIN

SUSPENDED = Gang("suspended", "default", priority=1, minimum=2, cpu=1, cpus=(1, 1))
NEXT = Gang("next", "default", priority=0, minimum=2, cpu=1, waiting=2, is_inside=False)
MARGIN = timedelta(seconds=5)
pytestmark = pytest.mark.parametrize("limited_by", ["overcommit", "proportion", "capacity"])


def loop_with_suspended_gang(limited_by: str) -> Loop:
    """Two CPUs, and a gang in front that needs both."""
    names = ("priority", "gang", limited_by, "predicates", "nodeorder")
    configured = sessions.configured(
        [sessions.plugin(name) for name in names], run="enqueue, allocate, backfill"
    )
    loop = Loop(configured, {"n1": 2}, [Queue("default", deserved=2)])
    loop.add(SUSPENDED)
    loop.add(NEXT)
    return loop


def test_room_is_kept_while_the_pods_are_expected(limited_by: str) -> None:
    loop = loop_with_suspended_gang(limited_by)
    run_for(loop, PODS_EXPECTED_WITHIN - MARGIN)
    assert loop.places("next") == []


def test_others_get_the_room_afterwards(limited_by: str) -> None:
    loop = loop_with_suspended_gang(limited_by)
    run_for(loop, PODS_EXPECTED_WITHIN + MARGIN)
    assert loop.places("next") == ["n1", "n1"]
    assert loop.phase("suspended") == "Inqueue"


def test_pods_that_appear_later_are_scheduled_and_counted(limited_by: str) -> None:
    loop = loop_with_suspended_gang(limited_by)
    run_for(loop, PODS_EXPECTED_WITHIN + MARGIN)
    loop.create_pods("suspended")
    loop.add_node("n2", 2)
    run_for(loop, MARGIN)
    assert loop.places("suspended") == ["n2", "n2"]
