"""Gangs with topology constraints: where they are placed, and why they stay pending."""

from collections.abc import Sequence
from typing import Any

import pytest

from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.support.network_objects import (
    SOFT,
    TIER,
    asking,
    gang,
    hard,
    nodes_of,
    rack,
    running,
    spine,
    two_racks,
)
from stromboli.scheduler.core.framework import session
from stromboli.shared.api import batch, meta, scheduling
from stromboli.testkit import builders

CLASSES = [builders.make_priority_class("low", 1), builders.make_priority_class("high", 9)]
WITHOUT = [each for each in TIER if each["name"] != "network-topology-aware"]


def closed(*objects: meta.Object, run: str = "allocate", tier: sessions.Tier = TIER) -> Any:
    return default_sessions.closed(*objects, tier=tier, run=run)


def placed(decided: session.Session) -> list[str]:
    return nodes_of(default_sessions.binds(decided))


def job(decided: session.Session, name: str = "g") -> Any:
    return decided.jobs[f"default/{name}"]


def filler(node: str, cpu: int = 2) -> meta.Object:
    return running(f"filler-{node}", "", node, cpu=cpu)


@pytest.mark.parametrize("tier", [TIER, WITHOUT], ids=["with the plugin", "without"])
def test_a_gang_stays_within_the_tier_that_it_names(tier: sessions.Tier) -> None:
    """It is placed where all of it fits although other nodes are emptier, with any plugins."""
    objects = [*two_racks(), filler("n1", cpu=1)]
    decided = closed(*objects, *gang("g", 4, hard(1), cpu=1), tier=tier)
    assert placed(decided) == ["n3", "n3", "n4", "n4"]


def test_a_gang_that_fits_in_no_domain_is_explained_with_numbers() -> None:
    """Enough room in sum is not enough; the explanation names the domain with the most room."""
    decided = closed(*two_racks(), filler("n1"), *gang("g", 5, hard(1), cpu=1))
    assert placed(decided) == []
    assert job(decided).topology_error == (
        "no topology domain of an allowed tier has room for the gang: 5 of its tasks need one "
        "domain, and r2 of tier 1, which has the most room, can hold 4"
    )


def test_the_lowest_tier_with_enough_room_is_used() -> None:
    """A gang that may span the spine stays in one rack if the rack has room."""
    assert placed(closed(*two_racks(), *gang("g", 4, hard(2), cpu=1))) in (
        ["n1", "n1", "n2", "n2"],
        ["n3", "n3", "n4", "n4"],
    )
    assert len(placed(closed(*two_racks(), *gang("g", 6, hard(2), cpu=1)))) == 6


def test_of_several_racks_with_enough_room_the_fullest_is_used() -> None:
    """Large gangs then find empty racks."""
    decided = closed(*two_racks(), filler("n3", cpu=1), *gang("g", 2, hard(1), cpu=1))
    assert set(placed(decided)) <= {"n3", "n4"}


def test_a_tier_may_be_given_by_name() -> None:
    """The name stands for the number."""
    objects = [
        *two_racks()[:4],
        rack("r1", "n1", "n2", tier_name="leaf"),
        rack("r2", "n3", "n4", tier_name="leaf"),
        spine("s", "r1", "r2", tier_name="block"),
    ]
    assert placed(closed(*objects, *gang("g", 5, hard(name="leaf"), cpu=1))) == []
    assert len(placed(closed(*objects, *gang("g", 5, hard(name="block"), cpu=1)))) == 5


@pytest.mark.parametrize(
    ("requirement", "said"),
    [
        (
            hard(name="row"),
            "highestTierName row: no HyperNode has this tier name (no HyperNode has a tier name)",
        ),
        (hard(), "hard networkTopology names neither highestTierAllowed nor highestTierName"),
        (hard(0), "highestTierAllowed 0: the lowest tier of the HyperNodes is 1"),
        (
            batch.NetworkTopology(mode="maybe"),
            "networkTopology mode 'maybe' is neither hard nor soft",
        ),
    ],
)
@pytest.mark.parametrize("run", ["allocate", "enqueue, allocate, gangpreempt, backfill"])
def test_an_invalid_hard_constraint_is_refused(
    requirement: batch.NetworkTopology, said: str, run: str
) -> None:
    """The gang stays pending with the reason and is never placed without its constraint."""
    decided = closed(*two_racks(), *gang("g", 2, requirement, cpu=1), run=run)
    assert placed(decided) == []
    assert job(decided).topology_error == said


def test_a_hard_constraint_without_hyper_nodes_is_refused() -> None:
    """No domain can satisfy it."""
    decided = closed(builders.make_node("n1"), *gang("g", 1, hard(1), cpu=1))
    assert placed(decided) == []
    assert job(decided).topology_error == (
        "hard networkTopology, but the cluster has no HyperNodes"
    )


def test_best_effort_pods_of_a_refused_gang_stay_pending() -> None:
    """Backfill respects the constraint."""
    pods = gang("g", 1, hard(name="row"), cpu=None, memory=None)
    assert placed(closed(*two_racks(), *pods, run="allocate, backfill")) == []


def test_a_tier_above_all_others_means_the_whole_cluster() -> None:
    """The cluster counts as the tier above the highest, nodes in no rack included."""
    objects = [builders.make_node("n0", cpu=2), *two_racks()]
    decided = closed(*objects, *gang("g", 10, hard(3), cpu=1))
    assert len(placed(decided)) == 10


def test_a_node_in_no_rack_takes_no_pod_with_a_hard_constraint() -> None:
    """It is in no domain of the tier."""
    objects = [builders.make_node("n0", cpu=9), *two_racks()]
    assert placed(closed(*objects, *gang("g", 5, hard(1), cpu=1))) == []


@pytest.mark.parametrize(
    ("free", "expected"), [("n2", ["n2"]), ("n3", ["n3"])], ids=["its rack", "its spine"]
)
def test_a_failed_pod_is_replaced_in_the_nearest_domain(free: str, expected: Sequence[str]) -> None:
    """In the rack of the other pods if it has room, else within the gang's tier."""
    objects = [*two_racks(cpu=1), running("g-0", "g", "n1", cpu=1)]
    objects += [filler(node, cpu=1) for node in ("n2", "n3", "n4") if node != free]
    pods = gang("g", 2, hard(2), cpu=1)[:1] + gang("g", 2, hard(2), cpu=1)[2:]
    assert placed(closed(*objects, *pods)) == expected


def test_a_failed_pod_is_not_replaced_outside_its_domain() -> None:
    """It stays pending."""
    objects = [*two_racks(cpu=1), running("g-0", "g", "n1", cpu=1), filler("n2", cpu=1)]
    pods = gang("g", 2, hard(1), cpu=1)
    decided = closed(*objects, pods[0], pods[2])
    assert placed(decided) == []
    assert "r1 of tier 1, which has the most room, can hold 0" in job(decided).topology_error


def test_an_elastic_gang_grows_near_its_running_pods() -> None:
    """Tasks beyond the minimum stay in the domain, too."""
    objects = [*two_racks(), filler("n1", cpu=1)]
    decided = closed(*objects, *gang("g", 6, hard(1), min_member=2, cpu=1))
    assert set(placed(decided)) in ({"n1", "n2"}, {"n3", "n4"})


@pytest.mark.parametrize("tier", [TIER, WITHOUT], ids=["with the plugin", "without"])
def test_a_soft_constraint_never_keeps_a_gang_pending(tier: sessions.Tier) -> None:
    """If no rack has room for it, the gang spreads."""
    decided = closed(*two_racks(), *gang("g", 8, SOFT, cpu=1), tier=tier)
    assert len(placed(decided)) == 8


def test_a_soft_constraint_is_satisfied_where_possible() -> None:
    """With the plugin, the lowest tier with room is used."""
    decided = closed(*two_racks(), filler("n1", cpu=1), *gang("g", 4, SOFT, cpu=1))
    assert placed(decided) == ["n3", "n3", "n4", "n4"]


def test_a_soft_constraint_needs_no_hyper_node() -> None:
    """Any node satisfies it."""
    decided = closed(builders.make_node("n1"), *gang("g", 2, SOFT, cpu=1))
    assert placed(decided) == ["n1", "n1"]


PARTS = scheduling.SubGroupPolicy(
    name="p",
    match_label_keys=("part",),
    sub_group_size=2,
    min_sub_groups=2,
    network_topology=hard(1),
)


def parts(sizes: Sequence[int], requirement: batch.NetworkTopology | None, least: int) -> Any:
    objs = gang("g", 0, requirement, PARTS, min_member=least)
    return [
        *objs,
        *(
            builders.make_pod(f"g-{part}-{at}", "g", labels={"part": str(part)}, cpu=1)
            for part, size in enumerate(sizes)
            for at in range(size)
        ),
    ]


def test_each_subgroup_stays_in_its_own_domain() -> None:
    """Each subgroup is in one rack, the gang in the spine."""
    decided = closed(*two_racks(cpu=1), *parts([2, 2], hard(2), 4))
    racks = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r2"}
    binds = default_sessions.binds(decided)
    assert len(binds) == 4
    for part in "01":
        of_part = {racks[node] for pod, node in binds.items() if pod.startswith(f"g-{part}-")}
        assert len(of_part) == 1


def test_a_subgroup_that_fits_in_no_domain_keeps_the_gang_pending() -> None:
    """Room for three pods in the racks holds one subgroup of two."""
    decided = closed(*two_racks(cpu=1), filler("n1", cpu=1), *parts([2, 2], hard(2), 4))
    assert placed(decided) == []


def test_constraints_of_subgroups_hold_without_one_of_the_gang() -> None:
    """The gang may be anywhere, each of its subgroups may not."""
    objects = [*two_racks(cpu=1)[:6], filler("n1", cpu=1), builders.make_node("n0", cpu=1)]
    assert placed(closed(*objects, *parts([2, 2], None, 4))) == []


def test_surplus_pods_of_subgroups_count_for_the_gangs_minimum() -> None:
    """Two subgroups of three pods: two pods complete a subgroup, five the gang."""
    decided = closed(*two_racks(), *parts([3, 3], hard(2), 5))
    assert len(placed(decided)) == 6


def test_room_for_a_gang_is_created_in_one_domain() -> None:
    """Victims are evicted only in the rack that takes the gang."""
    lower = [
        builders.make_pod_group("low", 1, phase="Running", priority_class="low"),
        *(
            running(f"low-{node}-{at}", "low", node, cpu=1)
            for node in ("n1", "n2", "n3", "n4")
            for at in (0, 1)
        ),
    ]
    group = builders.make_pod_group("g", 4, priority_class="high")
    pods = [builders.make_pod(f"g-{at}", "g", cpu=1) for at in range(4)]
    higher = asking([group, *pods], hard(1))
    decided = closed(*two_racks(), *CLASSES, *lower, *higher, run="allocate, gangpreempt")
    evicted = {each.task.split("-")[1] for each in decided.decisions.evictions}
    assert evicted in ({"n1", "n2"}, {"n3", "n4"})
    assert len(decided.decisions.evictions) == 4
    promised = {task.node for task in job(decided).tasks.values()}
    assert promised == evicted


def test_pods_without_a_constraint_fill_used_domains() -> None:
    """Nodes in no rack first, then the fuller rack."""
    objects = [*two_racks(), filler("n3", cpu=1)]
    assert set(placed(closed(*objects, *gang("g", 1, None, cpu=1)))) <= {"n3", "n4"}


def test_a_hard_constraint_holds_without_any_plugin() -> None:
    """Also if the configuration names no topology plugin."""
    decided = default_sessions.closed(*two_racks(), *gang("g", 4, hard(1), cpu=1), tier=[])
    assert len({node in ("n1", "n2") for node in placed(decided)}) == 1
    assert list(decided.registered()) == []


def test_contradicting_hyper_nodes_are_reported() -> None:
    """Once per session, among its complaints."""
    decided = closed(*two_racks(), rack("r3", "n1"))
    assert "node n1 is a member of r1 and of r3: it belongs to none of them" in decided.complaints
