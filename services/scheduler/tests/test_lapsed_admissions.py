"""The room of an admitted gang that cannot use it is not kept indefinitely: others are admitted.

Its PodGroup stays Inqueue, and its room counts again once it has pods, or may fit.
"""

from datetime import timedelta

import msgspec
import pytest

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.closed_loop import Gang, Loop, Queue
from services.scheduler.tests.test_partial_gangs import run_for
from stromboli.scheduler.core.cache import lapsed_admissions
from stromboli.scheduler.core.model.queue_usage import PODS_EXPECTED_WITHIN

SUSPENDED = Gang("suspended", "default", priority=1, minimum=2, cpu=1, cpus=(1, 1))
NEXT = Gang("next", "default", priority=0, minimum=2, cpu=1, waiting=2, is_inside=False)
MARGIN = timedelta(seconds=5)
pytestmark = pytest.mark.parametrize("limited_by", ["overcommit", "proportion", "capacity"])


def loop_of(limited_by: str, nodes: dict[str, int], *gangs: Gang) -> Loop:
    names = ("priority", "gang", limited_by, "predicates", "nodeorder")
    configured = sessions.configured(
        [sessions.plugin(name) for name in names], run="enqueue, allocate, backfill"
    )
    loop = Loop(configured, nodes, [Queue("default", deserved=sum(nodes.values()))])
    for gang in gangs:
        loop.add(gang)
    return loop


class TestWithoutPods:
    """Two CPUs, and an admitted gang without pods needs both."""

    def test_room_is_kept_while_the_pods_are_expected(self, limited_by: str) -> None:
        loop = loop_of(limited_by, {"n1": 2}, SUSPENDED, NEXT)
        run_for(loop, PODS_EXPECTED_WITHIN - MARGIN)
        assert loop.places("next") == []

    def test_others_are_admitted_afterwards(self, limited_by: str) -> None:
        loop = loop_of(limited_by, {"n1": 2}, SUSPENDED, NEXT)
        run_for(loop, PODS_EXPECTED_WITHIN + MARGIN)
        assert loop.places("next") == ["n1", "n1"]
        assert loop.phase("suspended") == "Inqueue"

    def test_pods_that_appear_later_are_scheduled(self, limited_by: str) -> None:
        loop = loop_of(limited_by, {"n1": 2}, SUSPENDED, NEXT)
        run_for(loop, PODS_EXPECTED_WITHIN + MARGIN)
        loop.create_pods("suspended")
        loop.add_node("n2", 2)
        run_for(loop, MARGIN)
        assert loop.places("suspended") == ["n2", "n2"]
        assert not loop.memory[lapsed_admissions.NAME]

    def test_a_restart_does_not_keep_the_room_again(self, limited_by: str) -> None:
        loop = loop_of(limited_by, {"n1": 2}, SUSPENDED, NEXT)
        run_for(loop, PODS_EXPECTED_WITHIN + MARGIN)
        loop.restart()
        loop.end("next")
        loop.add(msgspec.structs.replace(NEXT, name="later"))
        run_for(loop, MARGIN)
        assert loop.places("later") == ["n1", "n1"]


class TestTooLarge:
    """Its pod is larger than each node, and its queue is large enough to admit it."""

    HUGE = Gang("huge", "default", priority=1, minimum=1, cpu=3, waiting=1, is_inside=False)

    def test_others_are_admitted(self, limited_by: str) -> None:
        loop = loop_of(limited_by, {"n1": 2, "n2": 2}, self.HUGE)
        run_for(loop, MARGIN)
        loop.add(NEXT)
        run_for(loop, MARGIN)
        assert loop.phase("huge") == "Inqueue"
        assert len(loop.places("next")) == 2

    def test_its_room_counts_again_once_a_node_is_large_enough(self, limited_by: str) -> None:
        loop = loop_of(limited_by, {"n1": 2, "n2": 2}, self.HUGE)
        run_for(loop, MARGIN)
        assert loop.memory[lapsed_admissions.NAME]
        loop.add_node("n3", 4)
        run_for(loop, MARGIN)
        assert loop.places("huge") == ["n3"]
        assert not loop.memory[lapsed_admissions.NAME]
