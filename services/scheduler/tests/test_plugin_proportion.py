"""Queues share the cluster by weight, within limits, requests and guarantees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.plugins import proportion
from stromboli.testkit import builders

TIER = [sessions.plugin("proportion")]
BIG = 2**62


def filled(
    weights: list[int],
    total: int,
    *,
    wanted: list[int] | None = None,
    limits: list[int] | None = None,
    guarantees: list[int] | None = None,
) -> list[float]:
    """What queues deserve of cpu, with memory and pods out of the cache."""

    def table(values: list[int] | None, otherwise: int) -> list[list[int]]:
        return [[each, 0, 0] for each in values or [otherwise] * len(weights)]

    deserved = proportion.fair_shares(
        weights, [total, 0, 0], table(limits, BIG), table(wanted, BIG), table(guarantees, 0)
    )
    return [row[0] for row in deserved]


@pytest.mark.parametrize(
    ("deserved", "expected"),
    [
        (filled([1, 3], 8000), [2000, 6000]),
        (filled([1, 1], 8000, wanted=[1000, 9000]), [1000, 7000]),
        (filled([1, 1, 2], 8000, wanted=[500, 9000, 1500]), [500, 6000, 1500]),
        (filled([1, 1], 8000, limits=[3000, 9000]), [3000, 5000]),
        (filled([1, 9], 8000, guarantees=[2000, 0]), [2000, 6000]),
        (filled([1, 1, 1], 9000, guarantees=[6000, 0, 0]), [6000, 1500, 1500]),
        (filled([1, 1], 1000, guarantees=[800, 400]), [800, 400]),
        (filled([0, 1], 8000, guarantees=[500, 0]), [500, 7500]),
        (filled([1, 1, 1], 3000), [1000, 1000, 1000]),
        (filled([1, 10**6], 8000, wanted=[9000, 100]), [7900, 100]),
    ],
    ids=[
        "by weight",
        "what one does not want goes to the other",
        "round by round",
        "nobody beyond its limit",
        "a guarantee goes before weight",
        "and comes out of what the others have",
        "even where more is guaranteed than there is",
        "weight zero has its guarantee only",
        "thirds come out whole",
        "a heavy queue that wants little holds nobody up",
    ],
)
def test_queues_deserve(deserved: list[float], expected: list[float]) -> None:
    assert deserved == expected


@given(
    st.lists(
        st.tuples(st.integers(1, 100), st.integers(0, 10**6), st.integers(0, 10**6)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 10**6),
)
def test_nothing_is_wasted_nor_given_twice(queues: list[tuple[int, int, int]], total: int) -> None:
    """Everything is divided, or every queue has what it requests and may have."""
    deserved = filled(
        [weight for weight, _, _ in queues],
        total,
        wanted=[wanted for _, wanted, _ in queues],
        limits=[limit for _, _, limit in queues],
    )
    ceilings = [min(wanted, limit) for _, wanted, limit in queues]
    assert all(own <= top for own, top in zip(deserved, ceilings, strict=True))
    assert sum(deserved) == pytest.approx(min(total, sum(ceilings)), abs=len(queues))


@given(st.lists(st.integers(1, 2**60), min_size=1, max_size=5), st.integers(0, 2**20))
def test_what_there_is_enough_of_is_given_to_the_last_byte(wanted: list[int], spare: int) -> None:
    """However large: floating point has no 2^53 + 1."""
    assert filled([1] * len(wanted), sum(wanted) + spare, wanted=wanted) == wanted


@given(st.integers(2**53, 2**61), st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_large_amounts_are_divided_without_loss(total: int, weights: list[int]) -> None:
    deserved = filled(weights, total)
    assert abs(sum(deserved) - total) <= len(weights)


def test_a_request_that_floating_point_does_not_have_is_placed() -> None:
    size = 2**53 + 1
    outcome = sessions.decided(
        builders.make_node("n1", memory=str(2 * size)),
        sessions.queue("a"),
        *sessions.gang("g1", "a", 1, memory=str(size)),
        tiers=[TIER],
    )
    assert list(outcome.binds) == ["default/g1-0"]


def test_a_queue_takes_its_share_and_leaves_the_rest() -> None:
    """Two queues of one weight have half of eight cores each."""
    outcome = sessions.decided(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a"),
        sessions.queue("b"),
        *sessions.gang("g1", "a", 8),
        *sessions.gang("g2", "b", 8),
        tiers=[TIER],
    )
    placed = [key.split("/")[1][:2] for key in outcome.binds]
    assert sorted(placed) == ["g1"] * 4 + ["g2"] * 4


def test_a_closed_queue_places_nothing() -> None:
    outcome = sessions.decided(
        builders.make_node("n1"),
        sessions.queue("a", state="Closed"),
        *sessions.gang("g1", "a", 1),
        tiers=[TIER],
    )
    assert outcome.binds == {}


def test_queues_are_ordered_by_priority_then_by_share() -> None:
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a", priority=1),
        sessions.queue("b"),
        sessions.queue("c"),
        *sessions.gang("g1", "a", 3, node="n1"),
        *sessions.gang("g2", "b", 2, node="n1"),
        *sessions.gang("g3", "c", 1, node="n1"),
        *sessions.gang("g4", "c", 1),
        tier=TIER,
    )
    a, b, c = (ssn.queues[name] for name in "abc")
    assert ssn.compare_queues(a, c) < 0
    assert ssn.compare_queues(c, b) < 0


def test_victims_go_until_their_queue_has_no_more_than_it_deserves() -> None:
    """Six of eight cores where four are deserved: two may go."""
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a"),
        sessions.queue("b"),
        *sessions.gang("g1", "a", 6, node="n1"),
        *sessions.gang("g2", "b", 8),
        tier=TIER,
    )
    reclaimer = ssn.jobs["default/g2"].pending[0]
    candidates = list(ssn.jobs["default/g1"].with_status(entities.Status.RUNNING))
    assert len(ssn.reclaimable(reclaimer, candidates)) == 2


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_a_queue_keeps_its_guarantee_whatever_tier_chooses_the_victims(plugin: str) -> None:
    """``gang`` in the first tier gives up all six; the queue is guaranteed five cores."""
    objects = (
        builders.make_node("n1", cpu="8"),
        sessions.queue("a", guarantee={"cpu": "5"}),
        sessions.queue("b"),
        *sessions.gang("g1", "a", 6, node="n1"),
        *sessions.gang("g2", "b", 8),
    )
    tiers = [[sessions.plugin("gang")], [sessions.plugin(plugin)]]
    ssn = sessions.open_given(sessions.configured(*tiers), sessions.given(objects))
    starving = ssn.jobs["default/g2"]
    running = list(ssn.jobs["default/g1"].with_status(entities.Status.RUNNING))
    assert len(ssn.unified_evictable("gangreclaim", starving, running)) == 1
    assert len(ssn.unified_evictable("gangpreempt", starving, running)) == 6


@pytest.mark.parametrize(("cpu", "enters"), [("5", True), ("6", False)])
def test_a_job_enters_while_its_minimum_fits_beside_what_is_held(cpu: str, enters: bool) -> None:
    """Three of eight cores are in use, and needed: five more may be added."""
    group = builders.make_pod_group("g1", 3, queue="a", phase="Running", min_resources={"cpu": "3"})
    pods = [builders.make_pod(f"g1-{at}", "g1", node="n1", phase="Running") for at in range(3)]
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a"),
        group,
        *pods,
        builders.make_pod_group("g2", queue="a", phase="Pending", min_resources={"cpu": cpu}),
        tier=TIER,
    )
    assert ssn.job_enqueueable(ssn.jobs["default/g2"]) is enters
    refusals = ssn.events.get("default/g2", [])
    assert refusals == ([] if enters else ["queue resource quota insufficient: insufficient cpu"])


def test_usage_above_a_jobs_minimum_keeps_no_job_out() -> None:
    """Seven cores are in use, of which one is the minimum: a job of seven may enter."""
    group = builders.make_pod_group("g1", queue="a", phase="Running", min_resources={"cpu": "1"})
    pods = [builders.make_pod(f"g1-{at}", "g1", node="n1", phase="Running") for at in range(7)]
    ssn = sessions.opened(
        builders.make_node("n1", cpu="8"),
        sessions.queue("a"),
        group,
        *pods,
        builders.make_pod_group("g2", queue="a", phase="Pending", min_resources={"cpu": "7"}),
        tier=TIER,
    )
    assert ssn.job_enqueueable(ssn.jobs["default/g2"])
