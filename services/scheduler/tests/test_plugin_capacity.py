"""Queues by capability, guarantee and desert, flat and as a tree."""

import pytest

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.shared.api import meta
from stromboli.testkit import builders

FLAT = [sessions.plugin("capacity")]
TREE = [sessions.plugin("capacity", enableHierarchy=True)]
TWO_CORES = {"cpu": "2"}


def levels(number: int) -> list[dict[str, object]]:
    return [sessions.plugin("capacity", {"ancestorReclaimLevel": number}, enableHierarchy=True)]


def reclaimed(ssn: session.Session, reclaimer: str, *victims: str) -> list[str]:
    """Which running tasks of these groups may go for a pending one of the reclaimer's."""
    task = ssn.jobs[f"default/{reclaimer}"].pending[0]
    candidates = [
        each
        for victim in victims
        for each in ssn.jobs[f"default/{victim}"].with_status(entities.Status.RUNNING)
    ]
    return sorted(each.name for each in ssn.reclaimable(task, candidates))


def allocates(ssn: session.Session, group: str) -> bool:
    job = ssn.jobs[f"default/{group}"]
    return ssn.allocatable(ssn.queue_of(job), job.pending[0])


def test_a_queue_reaches_what_is_guaranteed_to_no_other() -> None:
    """Six of eight cores, although the queue with the guarantee has no job at all."""
    outcome = sessions.decided(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a"),
        sessions.queue("b", guarantee=TWO_CORES),
        *sessions.gang("g1", "a", 8),
        tiers=[FLAT],
    )
    assert len(outcome.binds) == 6


def test_a_queue_stays_within_its_own_capability() -> None:
    outcome = sessions.decided(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a", capability=TWO_CORES),
        *sessions.gang("g1", "a", 8),
        tiers=[FLAT],
    )
    assert len(outcome.binds) == 2


def test_leaves_together_stay_within_the_queue_above() -> None:
    outcome = sessions.decided(
        builders.make_node("n1", cpu="8"),
        sessions.queue("root"),
        sessions.queue("team", parent="root", capability={"cpu": "4"}),
        sessions.queue("a", parent="team", capability={"cpu": "3"}),
        sessions.queue("b", parent="team"),
        *sessions.gang("g1", "a", 8),
        *sessions.gang("g2", "b", 8),
        tiers=[TREE],
    )
    assert len(outcome.binds) == 4
    assert sum(key.startswith("default/g1") for key in outcome.binds) <= 3


def test_branches_take_turns_as_their_queues_fill() -> None:
    """Shares of inner queues follow what is placed below them."""
    outcome = sessions.decided(
        builders.make_node("n1", cpu="8"),
        sessions.queue("root"),
        sessions.queue("x", parent="root", deserved={"cpu": "4"}),
        sessions.queue("y", parent="root", deserved={"cpu": "4"}),
        sessions.queue("x1", parent="x", deserved={"cpu": "4"}),
        sessions.queue("y1", parent="y", deserved={"cpu": "4"}),
        *sessions.gang("g1", "x1", 8),
        *sessions.gang("g2", "y1", 8),
        tiers=[TREE],
    )
    assert sum(key.startswith("default/g1") for key in outcome.binds) == 4


BROKEN: dict[str, list[meta.Object]] = {
    "a parent that is not there": [
        sessions.queue("root"),
        sessions.queue("bad", parent="nobody"),
    ],
    "a cycle": [
        sessions.queue("root"),
        sessions.queue("bad", parent="worse"),
        sessions.queue("worse", parent="bad"),
    ],
    "jobs in a queue that has queues below it": [
        sessions.queue("root"),
        sessions.queue("bad", parent="root"),
        sessions.queue("child", parent="bad"),
    ],
    "no root, and a parent that is not there": [sessions.queue("bad", parent="nobody")],
}


@pytest.mark.parametrize("queues", BROKEN.values(), ids=list(BROKEN))
def test_a_queue_in_no_tree_stops_only_itself(queues: list[meta.Object]) -> None:
    objects = [
        *queues,
        builders.make_node("n1"),
        sessions.queue("good"),
        *sessions.gang("g1", "good", 1),
        *sessions.gang("g2", "bad", 1),
    ]
    outcome = sessions.decided(*objects, tiers=[TREE])
    assert list(outcome.binds) == ["default/g1-0"]
    ssn = sessions.opened(*objects, tier=TREE)
    assert [text for text in ssn.complaints if text.startswith("plugin capacity: ")]


def test_a_queue_that_deserves_something_comes_before_best_effort_queues_of_its_share() -> None:
    ssn = sessions.opened(
        builders.make_node("n1"),
        sessions.queue("a"),
        sessions.queue("b", deserved=TWO_CORES),
        *sessions.gang("g1", "a", 1),
        *sessions.gang("g2", "b", 2, node="n1"),
        tier=FLAT,
    )
    assert ssn.compare_queues(ssn.queues["b"], ssn.queues["a"]) < 0


def test_a_queue_that_deserves_nothing_gives_all_and_one_within_its_desert_gives_nothing() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a", deserved={"cpu": "4"}),
        sessions.queue("b", deserved=TWO_CORES),
        sessions.queue("c"),
        *sessions.gang("g1", "a", 1),
        *sessions.gang("g2", "b", 2, node="n1"),
        *sessions.gang("g3", "c", 2, node="n1"),
        tier=FLAT,
    )
    assert reclaimed(ssn, "g1", "g2", "g3") == ["g3-0", "g3-1"]


def test_victims_leave_their_queue_what_it_deserves_and_its_guarantee() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="16"),
        sessions.queue("a", deserved={"cpu": "8"}),
        sessions.queue("b", deserved=TWO_CORES),
        sessions.queue("c", guarantee={"cpu": "3"}),
        *sessions.gang("g1", "a", 1),
        *sessions.gang("g2", "b", 4, node="n1"),
        *sessions.gang("g3", "c", 4, node="n1"),
        tier=FLAT,
    )
    assert len(reclaimed(ssn, "g1", "g2")) == 2
    assert len(reclaimed(ssn, "g1", "g3")) == 1


def test_a_guarantee_of_what_a_queue_does_not_have_keeps_nothing_else() -> None:
    """Its victims request no GPU: without them it lacks as many guaranteed GPUs as before."""
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8", extra={"example.com/gpu": "4"}),
        sessions.queue("a", deserved={"cpu": "8"}),
        sessions.queue("b", guarantee={"example.com/gpu": "2"}),
        *sessions.gang("g1", "a", 1),
        *sessions.gang("g2", "b", 2, node="n1"),
        tier=FLAT,
    )
    assert reclaimed(ssn, "g1", "g2") == ["g2-0", "g2-1"]


def test_a_task_without_the_requested_resource_is_not_reclaimed() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", extra={"example.com/gpu": "4"}),
        sessions.queue("a", deserved={"example.com/gpu": "4"}),
        sessions.queue("b"),
        *sessions.gang("g1", "a", 1, cpu=None, memory=None, extra={"example.com/gpu": "1"}),
        *sessions.gang("g2", "b", 2, node="n1"),
        tier=FLAT,
    )
    assert reclaimed(ssn, "g1", "g2") == []


@pytest.mark.parametrize(("level", "victims"), [(0, 2), (1, 0)])
def test_with_a_reclaim_level_the_queue_above_the_victim_keeps_its_desert(
    level: int, victims: int
) -> None:
    """The victim's queue is beyond its desert, the one above it is not."""
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("root"),
        sessions.queue("x", parent="root", deserved={"cpu": "4"}),
        sessions.queue("y", parent="root", deserved={"cpu": "4"}),
        sessions.queue("x1", parent="x", deserved={"cpu": "4"}),
        sessions.queue("y1", parent="y", deserved={"cpu": "1"}),
        *sessions.gang("g1", "x1", 1),
        *sessions.gang("g2", "y1", 3, node="n1"),
        tier=levels(level),
    )
    assert len(reclaimed(ssn, "g1", "g2")) == victims


@pytest.mark.parametrize(("holds", "victims"), [(5, 2), (4, 1), (3, 0)])
def test_a_victim_is_not_in_a_branch_that_would_then_be_served_first(
    holds: int, victims: int
) -> None:
    """Branch x has three quarters of its desert, and y1 is beyond its own. What y1 gives up below
    that part of branch y, its next pod takes back: pods would be evicted without end."""
    ssn = sessions.opened(
        builders.make_node("n1", cpu="16"),
        sessions.queue("root"),
        sessions.queue("x", parent="root", deserved={"cpu": "4"}),
        sessions.queue("y", parent="root", deserved={"cpu": "4"}),
        sessions.queue("x1", parent="x", deserved={"cpu": "2"}),
        sessions.queue("x2", parent="x", deserved={"cpu": "2"}),
        sessions.queue("y1", parent="y", deserved={"cpu": "2"}),
        *sessions.gang("g1", "x1", 1),
        *sessions.gang("g2", "x2", 3, node="n1"),
        *sessions.gang("g3", "y1", holds, node="n1"),
        tier=TREE,
    )
    assert len(reclaimed(ssn, "g1", "g3")) == victims
    assert len(reclaimed(ssn, "g1", "g2")) == 1, "its sibling gives what it holds beyond"


@pytest.mark.parametrize(("level", "may"), [(0, False), (1, True)])
def test_with_a_reclaim_level_a_queue_may_claim_what_the_one_above_deserves(
    level: int, may: bool
) -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("root"),
        sessions.queue("x", parent="root", deserved={"cpu": "4"}),
        sessions.queue("x1", parent="x"),
        *sessions.gang("g1", "x1", 1),
        tier=levels(level),
    )
    job = ssn.jobs["default/g1"]
    assert ssn.preemptive(ssn.queue_of(job), job.pending) is may


def test_relatives_of_the_preemptor_give_first() -> None:
    ssn = sessions.opened(
        builders.make_node("n1"),
        sessions.queue("root"),
        sessions.queue("x", parent="root"),
        sessions.queue("x1", parent="x"),
        sessions.queue("x2", parent="x"),
        sessions.queue("y", parent="root"),
        tier=TREE,
    )
    mine, near, far = (ssn.queues[name] for name in ("x1", "x2", "y"))
    assert ssn.compare_victim_queues(near, far, mine) < 0


def test_a_job_enters_only_if_every_queue_above_has_room_for_its_minimum() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("root"),
        sessions.queue("x", parent="root", capability={"cpu": "4"}),
        sessions.queue("x1", parent="x"),
        sessions.queue("x2", parent="x"),
        builders.make_pod_group("g1", queue="x1", phase="Pending", min_resources={"cpu": "3"}),
        builders.make_pod_group("g2", queue="x2", phase="Pending", min_resources={"cpu": "2"}),
        tier=TREE,
    )
    first, second = ssn.jobs["default/g1"], ssn.jobs["default/g2"]
    assert ssn.job_enqueueable(first)
    ssn.job_enqueued(first)
    assert not ssn.job_enqueueable(second)


def test_what_is_taken_back_is_free_again() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a", capability={"cpu": "1"}),
        *sessions.gang("g1", "a", 2),
        tier=FLAT,
    )
    trial = ssn.statement()
    trial.allocate(ssn.jobs["default/g1"].pending[0], "n1")
    assert not allocates(ssn, "g1")
    trial.discard()
    assert allocates(ssn, "g1")
