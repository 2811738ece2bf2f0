"""Gangs that ask for nearness on the network: where they go, and what they are told if nowhere."""

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
def test_a_gang_stays_inside_the_tier_it_names(tier: sessions.Tier) -> None:
    """It goes where all of it fits, though other nodes are emptier, whatever plugins there are."""
    objects = [*two_racks(), filler("n1", cpu=1)]
    decided = closed(*objects, *gang("g", 4, hard(1), cpu=1), tier=tier)
    assert placed(decided) == ["n3", "n3", "n4", "n4"]


def test_what_no_domain_holds_waits_with_the_numbers() -> None:
    """Room in sum is no room: the roomiest domain is named."""
    decided = closed(*two_racks(), filler("n1"), *gang("g", 5, hard(1), cpu=1))
    assert placed(decided) == []
    assert job(decided).topology_error == (
        "no part of the network that is near enough has room for the gang: 5 of its tasks must lie "
        "in one, and r2 of tier 1, the roomiest, could hold 4"
    )


def test_the_lowest_tier_that_will_do_is_taken() -> None:
    """A gang that may span the spine stays in a rack if one holds it."""
    assert placed(closed(*two_racks(), *gang("g", 4, hard(2), cpu=1))) in (
        ["n1", "n1", "n2", "n2"],
        ["n3", "n3", "n4", "n4"],
    )
    assert len(placed(closed(*two_racks(), *gang("g", 6, hard(2), cpu=1)))) == 6


def test_of_racks_that_will_do_the_fullest_is_taken() -> None:
    """So that large gangs find empty ones."""
    decided = closed(*two_racks(), filler("n3", cpu=1), *gang("g", 2, hard(1), cpu=1))
    assert set(placed(decided)) <= {"n3", "n4"}


def test_a_tier_by_its_name() -> None:
    """It stands for its number."""
    objects = [
        *two_racks()[:4],
        rack("r1", "n1", "n2", tier_name="leaf"),
        rack("r2", "n3", "n4", tier_name="leaf"),
        spine("s", "r1", "r2", tier_name="block"),
    ]
    assert placed(closed(*objects, *gang("g", 5, hard(name="leaf"), cpu=1))) == []
    assert len(placed(closed(*objects, *gang("g", 5, hard(name="block"), cpu=1)))) == 5


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (
            hard(name="row"),
            "highestTierName row: no HyperNode has this tier name (none has one)",
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
def test_a_hard_wish_that_nobody_understands_is_refused(
    wish: batch.NetworkTopology, said: str, run: str
) -> None:
    """It waits with the reason, and is never placed as if nothing had been wished."""
    decided = closed(*two_racks(), *gang("g", 2, wish, cpu=1), run=run)
    assert placed(decided) == []
    assert job(decided).topology_error == said


def test_a_hard_wish_without_any_hyper_node_is_refused() -> None:
    """There is nothing that could hold it."""
    decided = closed(builders.make_node("n1"), *gang("g", 1, hard(1), cpu=1))
    assert placed(decided) == []
    assert job(decided).topology_error == (
        "hard networkTopology, but there is no HyperNode that could hold it"
    )


def test_best_effort_pods_of_a_refused_gang_wait_too() -> None:
    """Backfill keeps to the wish."""
    pods = gang("g", 1, hard(name="row"), cpu=None, memory=None)
    assert placed(closed(*two_racks(), *pods, run="allocate, backfill")) == []


def test_a_number_above_all_tiers_means_the_cluster() -> None:
    """The cluster counts as the tier above the highest, nodes in no rack included."""
    objects = [builders.make_node("n0", cpu=2), *two_racks()]
    decided = closed(*objects, *gang("g", 10, hard(3), cpu=1))
    assert len(placed(decided)) == 10


def test_a_node_in_no_rack_is_out_for_a_gang_that_insists() -> None:
    """It is in no domain of the tier."""
    objects = [builders.make_node("n0", cpu=9), *two_racks()]
    assert placed(closed(*objects, *gang("g", 5, hard(1), cpu=1))) == []


@pytest.mark.parametrize(
    ("free", "expected"), [("n2", ["n2"]), ("n3", ["n3"])], ids=["its rack", "its spine"]
)
def test_a_broken_member_is_replaced_as_near_as_will_do(free: str, expected: Sequence[str]) -> None:
    """In the rack of the others if there is room, else in what it may span."""
    objects = [*two_racks(cpu=1), running("g-0", "g", "n1", cpu=1)]
    objects += [filler(node, cpu=1) for node in ("n2", "n3", "n4") if node != free]
    pods = gang("g", 2, hard(2), cpu=1)[:1] + gang("g", 2, hard(2), cpu=1)[2:]
    assert placed(closed(*objects, *pods)) == expected


def test_a_broken_member_does_not_leave_the_former_domain() -> None:
    """It waits rather than go to another rack."""
    objects = [*two_racks(cpu=1), running("g-0", "g", "n1", cpu=1), filler("n2", cpu=1)]
    pods = gang("g", 2, hard(1), cpu=1)
    decided = closed(*objects, pods[0], pods[2])
    assert placed(decided) == []
    assert "r1 of tier 1, the roomiest, could hold 0" in job(decided).topology_error


def test_an_elastic_gang_grows_near_what_it_has() -> None:
    """Tasks beyond the minimum keep to the domain, too."""
    objects = [*two_racks(), filler("n1", cpu=1)]
    decided = closed(*objects, *gang("g", 6, hard(1), min_member=2, cpu=1))
    assert set(placed(decided)) in ({"n1", "n2"}, {"n3", "n4"})


@pytest.mark.parametrize("tier", [TIER, WITHOUT], ids=["with the plugin", "without"])
def test_a_soft_wish_never_keeps_a_gang_from_starting(tier: sessions.Tier) -> None:
    """Where no rack holds it, it spreads."""
    decided = closed(*two_racks(), *gang("g", 8, SOFT, cpu=1), tier=tier)
    assert len(placed(decided)) == 8


def test_a_soft_wish_is_followed_where_it_can_be() -> None:
    """The lowest tier with room, the plugin being there."""
    decided = closed(*two_racks(), filler("n1", cpu=1), *gang("g", 4, SOFT, cpu=1))
    assert placed(decided) == ["n3", "n3", "n4", "n4"]


def test_a_soft_wish_needs_no_hyper_node() -> None:
    """Anywhere is near enough."""
    decided = closed(builders.make_node("n1"), *gang("g", 2, SOFT, cpu=1))
    assert placed(decided) == ["n1", "n1"]


PARTS = scheduling.SubGroupPolicy(
    name="p",
    match_label_keys=("part",),
    sub_group_size=2,
    min_sub_groups=2,
    network_topology=hard(1),
)


def parts(sizes: Sequence[int], wish: batch.NetworkTopology | None, least: int) -> Any:
    made = gang("g", 0, wish, PARTS, min_member=least)
    return [
        *made,
        *(
            builders.make_pod(f"g-{part}-{at}", "g", labels={"part": str(part)}, cpu=1)
            for part, size in enumerate(sizes)
            for at in range(size)
        ),
    ]


def test_each_part_of_a_gang_keeps_to_its_own_domain() -> None:
    """Parts that lie in one rack each, the gang in the spine."""
    decided = closed(*two_racks(cpu=1), *parts([2, 2], hard(2), 4))
    racks = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r2"}
    binds = default_sessions.binds(decided)
    assert len(binds) == 4
    for part in "01":
        of_part = {racks[node] for pod, node in binds.items() if pod.startswith(f"g-{part}-")}
        assert len(of_part) == 1


def test_parts_that_fit_nowhere_whole_keep_the_gang_waiting() -> None:
    """Room for three pods in the racks is room for one part of two."""
    decided = closed(*two_racks(cpu=1), filler("n1", cpu=1), *parts([2, 2], hard(2), 4))
    assert placed(decided) == []


def test_wishes_of_parts_hold_without_one_of_the_whole() -> None:
    """The gang lies anywhere, its parts do not."""
    objects = [*two_racks(cpu=1)[:6], filler("n1", cpu=1), builders.make_node("n0", cpu=1)]
    assert placed(closed(*objects, *parts([2, 2], None, 4))) == []


def test_what_groups_have_beyond_their_size_makes_up_the_gangs_minimum() -> None:
    """Two parts of three pods each, of which two make a part, but five make the gang."""
    decided = closed(*two_racks(), *parts([3, 3], hard(2), 5))
    assert len(placed(decided)) == 6


def test_room_for_a_gang_is_made_in_one_domain() -> None:
    """Victims go in the rack that takes it, and in no other."""
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


def test_pods_that_do_not_care_fill_what_is_used() -> None:
    """The fuller rack first, and before both what is in no rack."""
    objects = [*two_racks(), filler("n3", cpu=1)]
    assert set(placed(closed(*objects, *gang("g", 1, None, cpu=1)))) <= {"n3", "n4"}


def test_a_hard_wish_holds_without_any_plugin() -> None:
    """Also where the configuration names none."""
    decided = default_sessions.closed(*two_racks(), *gang("g", 4, hard(1), cpu=1), tier=[])
    assert len({node in ("n1", "n2") for node in placed(decided)}) == 1
    assert list(decided.registered()) == []


def test_a_contradiction_is_said() -> None:
    """Once a session, for whoever reads its complaints."""
    decided = closed(*two_racks(), rack("r3", "n1"))
    assert "node n1 is a member of r1 and of r3: it counts for none of them" in decided.complaints
