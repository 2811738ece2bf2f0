"""The plugin data-locality: pods are placed where their data is, or can be fetched soon."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import data_objects, default_sessions, sessions
from services.scheduler.tests.support.data_objects import GB, copy, notes, report, request
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import keys
from stromboli.shared.api import meta
from stromboli.testkit import builders

NODES = [builders.make_node(name, cpu="4") for name in ("a", "b", "c")]
LACKS = "node(s) lack required data sets: 10.0 GB to fetch, about 100 s"


def tier(**arguments: Any) -> sessions.Tier:
    given_ = {f"data-locality.{name.replace('_', '-')}": it for name, it in arguments.items()}
    return [
        *(sessions.plugin(name) for name in ("priority", "gang", "predicates")),
        sessions.plugin("data-locality", given_),
    ]


def gang(name: str, pods: int, *requests: Any, **more: Any) -> list[meta.Object]:
    return default_sessions.gang(name, pods, annotations=notes(*requests), **more)


def closed(*objects: msgspec.Struct, **arguments: Any) -> session.Session:
    return default_sessions.closed(*NODES, *objects, tier=tier(**arguments))


def points(*objects: msgspec.Struct, **arguments: Any) -> list[float]:
    """Points of the nodes for the first pending pod of the gang g."""
    ssn = default_sessions.opened(*NODES, *objects, tier=tier(**arguments))
    task = ssn.jobs["default/g"].pending[0]
    found = ssn.finder.scores(task, np.arange(len(ssn.nodes))) / extension_points.SCORE_UNIT
    scores: list[float] = found.tolist()
    return scores


def why(decided: session.Session, name: str = "g") -> str:
    return decided.jobs[f"default/{name}"].explain()


def wanted(decided: session.Session) -> dict[str, list[tuple[str, int]]]:
    """Node -> the URIs to prefetch, with their priorities."""
    return {
        node: [(each.uri.rpartition("/")[2], each.priority) for each in copies]
        for node, copies in decided.decisions.prefetches.items()
    }


# Score


def test_a_pod_goes_to_the_node_that_has_its_data() -> None:
    decided = closed(report("b", copy("x")), *gang("g", 1, request("x")))
    assert default_sessions.binds(decided) == {"g-0": "b"}


def test_the_score_is_the_share_of_the_time_to_fetch_that_a_node_saves() -> None:
    """100 s without a copy; half of it is fetched already on a, all of it on b."""
    reports = [
        report("a", copy("x", "Fetching", fetched_bytes=5 * GB)),
        report("b", copy("x")),
        report("c"),
    ]
    assert points(*reports, *gang("g", 1, request("x"))) == [500, 1000, 0]


def test_a_few_seconds_do_not_outweigh_other_scores() -> None:
    """3 s of 60 s."""
    small = gang("g", 1, request("x", 300 * 10**6))
    assert points(report("b", copy("x", bytes=300 * 10**6)), *small) == [0, 50, 0]


def test_the_measured_rate_of_a_node_counts_instead_of_the_configured_one() -> None:
    reports = [report("a", read_bytes_per_s={"s3": 400 * 10**6}), report("b"), report("c")]
    assert points(*reports, *gang("g", 1, request("x"))) == [750, 0, 0]


def test_a_node_that_reads_slower_than_configured_scores_nothing_below_zero() -> None:
    assert points(report("a", read_bytes_per_s={"s3": 1}), *gang("g", 1, request("x")))[0] == 0


def test_a_copy_of_unknown_size_is_compared_as_one_of_a_gibibyte() -> None:
    found = points(report("b", copy("x", bytes=0)), *gang("g", 1, request("x", 0)))
    assert found[0] == found[2] == 0
    assert found[1] > 0


def test_near_copies_count_only_at_a_rate_that_the_operator_states() -> None:
    zones = {"a": "z1", "b": "z1", "c": "z2"}
    nodes = [
        builders.make_node(name, cpu="4", labels={"topology.kubernetes.io/zone": zone})
        for name, zone in zones.items()
    ]
    objects = [*nodes, report("b", copy("x")), *gang("g", 1, request("x"))]
    for arguments, expected in (({}, [0, 1000, 0]), ({"zone_rate": "200M"}, [500, 1000, 0])):
        ssn = default_sessions.opened(*objects, tier=tier(**arguments))
        task = ssn.jobs["default/g"].pending[0]
        found = ssn.finder.scores(task, np.arange(3)) / extension_points.SCORE_UNIT
        assert found.tolist() == expected


def test_an_invalid_rate_is_reported_and_the_default_is_used() -> None:
    objects = [report("b", copy("x")), *gang("g", 1, request("x"))]
    decided = closed(*objects, origin_rate="fast")
    assert any("data-locality.origin-rate: 'fast' is not" in it for it in decided.complaints)
    assert default_sessions.binds(decided) == {"g-0": "b"}


def test_a_pod_says_what_its_node_fetches_before_it_starts() -> None:
    decided = closed(report("a"), *gang("g", 1, request("x", 12 * GB)))
    assert decided.decisions.annotations == {
        "default/g-0": {keys.DATA_TO_FETCH: "12.0 GB to fetch, about 120 s"}
    }


def test_a_pod_whose_data_is_there_says_nothing() -> None:
    decided = closed(report("b", copy("x")), *gang("g", 1, request("x")))
    assert decided.decisions.annotations == {}


def test_a_data_set_of_fluid_is_where_fluid_labels_the_node() -> None:
    nodes = [
        builders.make_node("d", cpu="4"),
        builders.make_node("e", cpu="4", labels={"fluid.io/s-default-x": "true"}),
    ]
    pods = gang("g", 1, request("x", uri="fluid://default/x"))
    decided = default_sessions.closed(*nodes, *pods, tier=tier())
    assert default_sessions.binds(decided) == {"g-0": "e"}
    assert wanted(decided) == {}


# Sharing


def test_share_gathers_pods_where_the_data_is_or_will_be() -> None:
    """One fetch serves both gangs, although the copy is not complete yet."""
    shared = request("x", sharing="Share")
    decided = closed(*gang("f", 1, shared, node="c"), *gang("g", 2, shared))
    assert set(default_sessions.binds(decided).values()) == {"c"}


def test_spread_makes_copies_on_other_nodes() -> None:
    spread = request("x", sharing="Spread")
    decided = closed(report("a", copy("x")), *gang("g", 2, spread))
    assert sorted(default_sessions.binds(decided).values()) == ["b", "c"]


# Required


def test_required_data_keeps_pods_from_nodes_without_it() -> None:
    required = request("x", locality="Required")
    decided = closed(report("b", copy("x")), *gang("g", 2, required))
    assert set(default_sessions.binds(decided).values()) == {"b"}


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [report("a")],
        [report("a", copy("x", "Failed"))],
        [report("a", copy("x", "Fetching"))],
        [report("a", copy("x"), silent_since=builders.NOON)],
    ],
    ids=["no report", "no copy", "failed", "fetching", "silent"],
)
def test_what_is_unknown_or_incomplete_does_not_fulfil_required(reports: list[Any]) -> None:
    decided = closed(*reports, *gang("g", 1, request("x", locality="Required")))
    assert default_sessions.binds(decided) == {}
    assert f"3 {LACKS}" in why(decided)


def test_without_a_report_a_preferred_data_set_keeps_pods_from_no_node() -> None:
    decided = closed(*gang("g", 3, request("x")))
    assert len(default_sessions.binds(decided)) == 3


def test_a_gang_that_waits_for_its_data_blocks_no_other() -> None:
    decided = closed(
        *gang("g", 1, request("x", locality="Required")), *default_sessions.gang("later", 1)
    )
    assert list(default_sessions.binds(decided)) == ["later-0"]


def test_required_data_is_prefetched_to_a_node_that_can_run_the_pod() -> None:
    """Otherwise no node might ever have it. Node a is too small, and c has no cache."""
    nodes = [
        builders.make_node("a", cpu="500m"),
        builders.make_node("b", cpu="4"),
        builders.make_node("c", cpu="4"),
    ]
    decided = default_sessions.closed(
        *nodes,
        report("a"),
        report("b"),
        *gang("g", 2, request("x", locality="Required")),
        tier=tier(),
    )
    assert wanted(decided) == {"b": [("x", 532)]}


def test_a_prefetch_stays_where_it_has_begun() -> None:
    required = request("x", locality="Required")
    begun = report("c", copy("x", "Waiting"))
    decided = closed(report("a"), report("b"), begun, *gang("g", 1, required))
    assert list(wanted(decided)) == ["c"]


def test_as_many_nodes_prefetch_as_the_gang_needs() -> None:
    """Six pods of one core need two nodes of four cores."""
    reports = [report(name) for name in ("a", "b", "c")]
    decided = closed(*reports, *gang("g", 6, request("x", locality="Required")))
    assert list(wanted(decided)) == ["a", "b"]


def test_gangs_that_wait_for_resources_prefetch_at_a_lower_priority() -> None:
    reports = [report(name) for name in ("a", "b", "c")]
    objects = [*reports, *default_sessions.gang("busy", 12, node="a"), *gang("g", 13, request("x"))]
    assert set(wanted(closed(*objects))) == {"a", "b", "c"}
    assert {priority for found in wanted(closed(*objects)).values() for _, priority in found} == {
        132
    }
    assert wanted(closed(*objects, prefetch=False)) == {}


def test_prefetches_fit_the_caches() -> None:
    """The second gang finds no room on any node."""
    reports = [report(name, capacity_bytes=15 * GB) for name in ("a", "b", "c")]
    first = gang("g1", 12, request("x", locality="Required"))
    second = gang("g2", 1, request("y", locality="Required"))
    assert {
        uri for found in wanted(closed(*reports, *first, *second)).values() for uri, _ in found
    } == {"x"}


def test_a_gang_that_can_never_start_keeps_no_other_from_its_data() -> None:
    """Found by random simulations: the first gang took the room of all caches."""
    reports = [report(name, capacity_bytes=15 * GB) for name in ("a", "b", "c")]
    never = gang("g1", 13, request("x"))
    waits = gang("g2", 1, request("y", locality="Required"))
    assert wanted(closed(*reports, *never, *waits))["a"] == [("y", 531)]


# Room


def test_the_data_sets_of_all_pods_on_a_node_fit_its_cache() -> None:
    reports = [report(name, capacity_bytes=15 * GB) for name in ("a", "b", "c")]
    decided = closed(*reports, *gang("f", 1, request("x"), node="a"), *gang("g", 2, request("y")))
    assert set(default_sessions.binds(decided).values()) <= {"b", "c"}


def test_pods_with_the_same_data_set_use_one_copy() -> None:
    reports = [report(name, capacity_bytes=15 * GB) for name in ("a", "b", "c")]
    decided = closed(*reports, *gang("g", 12, request("x")))
    assert len(default_sessions.binds(decided)) == 12


def test_two_gangs_of_one_session_do_not_overfill_a_cache() -> None:
    reports = [report(name, capacity_bytes=15 * GB) for name in ("a", "b", "c")]
    decided = closed(
        *reports, *(each for at in range(4) for each in gang(f"g{at}", 1, request(f"x{at}")))
    )
    placed = default_sessions.binds(decided)
    assert sorted(placed.values()) == ["a", "b", "c"]
    (late,) = {f"g{at}" for at in range(4)} - {pod.partition("-")[0] for pod in placed}
    assert "3 node(s) had no room in their cache for 10.0 GB of data sets" in why(decided, late)


def test_copies_that_no_pod_uses_take_no_room() -> None:
    nodes = [report(name, copy("old"), capacity_bytes=15 * GB) for name in "abc"]
    decided = closed(*nodes, *gang("g", 12, request("x")))
    assert len(default_sessions.binds(decided)) == 12


def test_a_copy_that_other_pods_use_takes_room() -> None:
    nodes = [report(name, copy("old", in_use=True), capacity_bytes=15 * GB) for name in "abc"]
    decided = closed(*nodes, *gang("g", 1, request("x")))
    assert "3 node(s) had no room in their cache for 10.0 GB of data sets" in why(decided)


def test_data_that_fits_no_cache_says_so_and_blocks_no_other_gang() -> None:
    nodes = [report(name, capacity_bytes=5 * GB) for name in "abc"]
    decided = closed(*nodes, *gang("g", 1, request("x")), *default_sessions.gang("later", 1))
    assert "3 node(s) have a cache that is too small for 10.0 GB of data sets" in why(decided)
    assert list(default_sessions.binds(decided)) == ["later-0"]


def test_the_size_of_complete_copies_counts_rather_than_the_stated_one() -> None:
    nodes = [report(name, copy("x", bytes=20 * GB), capacity_bytes=15 * GB) for name in "abc"]
    decided = closed(*nodes, *gang("g", 1, request("x", 1)))
    assert "too small for 20.0 GB" in why(decided)


NAMES = ("u", "v", "w")


@given(
    capacities=st.lists(st.integers(0, 40), min_size=3, max_size=3),
    gangs=st.lists(
        st.tuples(st.integers(1, 3), st.sets(st.sampled_from(NAMES), min_size=1, max_size=2)),
        max_size=6,
    ),
)
def test_no_session_places_more_data_on_a_node_than_its_cache_holds(
    capacities: list[int], gangs: list[tuple[int, set[str]]]
) -> None:
    reports = [
        report(name, capacity_bytes=capacity * GB)
        for name, capacity in zip("abc", capacities, strict=True)
    ]
    pods = [
        each
        for at, (count, names) in enumerate(gangs)
        for each in gang(f"g{at}", count, *map(request, sorted(names)))
    ]
    decided = closed(*reports, *pods)
    for report_ in reports:
        used = {
            requested.key
            for key, node in decided.decisions.binds.items()
            if node == report_.node
            for requested in decided.model.tasks[key].task_class.data_sets
        }
        assert 10 * GB * len(used) <= report_.capacity_bytes


def test_a_pod_with_an_unreadable_annotation_is_reported_and_never_placed() -> None:
    broken = default_sessions.gang("g", 1, annotations={keys.DATA_SETS: "{"})
    decided = closed(*broken, *default_sessions.gang("later", 1))
    assert list(default_sessions.binds(decided)) == ["later-0"]
    assert keys.DATA_SETS in decided.jobs["default/g"].problems["default/g-0"]


def test_a_placed_pod_with_an_unreadable_annotation_blocks_no_node() -> None:
    """Any user could block a node with an annotation."""
    broken = default_sessions.gang("g", 1, node="a", annotations={keys.DATA_SETS: "{"})
    other = default_sessions.gang("h", 3)
    decided = default_sessions.closed(NODES[0], *broken, *other, tier=tier())
    assert set(default_sessions.binds(decided).values()) == {"a"}


def test_keys_of_data_objects_are_content_keys() -> None:
    assert request("x").key == data_objects.key("x")


def test_a_pod_is_evicted_for_the_room_of_its_data_in_the_cache() -> None:
    """The node has idle cores; only its cache is full."""
    low = gang("low", 1, request("x"), node="a", priority=1)
    high = [
        builders.make_pod_group("high", 1, queue="default", phase="Inqueue", priority_class="p9"),
        builders.make_pod("high-0", "high", priority=9, annotations=notes(request("y"))),
    ]
    decided = default_sessions.closed(
        NODES[0],
        report("a", copy("x", in_use=True), capacity_bytes=15 * GB),
        builders.make_priority_class("p9", 9),
        *low,
        *high,
        tier=[
            sessions.plugin("priority"),
            sessions.plugin("gang", enablePreemptable=False),
            sessions.plugin("predicates"),
            sessions.plugin("data-locality"),
        ],
        run="allocate, preempt",
    )
    assert [each.task for each in decided.decisions.evictions] == ["default/low-0"]
    assert default_sessions.binds(decided) == {}
