"""One search finds room for a whole gang: idle, terminating and reclaimed room together."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from services.scheduler.tests import test_eviction as eviction
from stromboli.scheduler.core import simulate
from stromboli.shared.api import core, scheduling
from stromboli.testkit import builders

ACTIONS = ("preempt", "preempt aware", "reclaim", "gangpreempt", "gangreclaim")
"""The evicting actions; the second is topology-aware preemption."""
CHART = {"gang": {"enablePreemptable": False}}
"""As the chart configures it: preempt may break a gang of lower priority."""


def decide(
    action: str,
    nodes: Sequence[core.Node],
    groups: Sequence[scheduling.PodGroup],
    pods: Sequence[core.Pod],
    options: Mapping[str, Any] | None = None,
) -> simulate.Outcome:
    """What an action decides; groups named ``low`` are in another queue where it reclaims."""
    given: dict[str, Any] = {"options": dict(options or {})}
    if "reclaim" in action:
        given |= {"names": (*eviction.NAMES, "proportion"), "queues": eviction.QUEUES}
    if action == "preempt aware":
        given["options"]["preempt"] = {"enableTopologyAwarePreemption": True}
    return eviction.decide(action.split(" ")[0], nodes, groups, pods, **given)


def victims(action: str, least: int = 0) -> scheduling.PodGroup:
    """The job whose pods may go: of lower priority, or of a queue beyond its share."""
    if "reclaim" in action:
        return eviction.low(least=least, queue="other")
    return eviction.low(least=least)


@pytest.mark.parametrize("action", ACTIONS)
def test_idle_and_reclaimed_room_count_together(action: str) -> None:
    """Two of four fit on a node without victims: so two victims go elsewhere."""
    nodes = [builders.make_node("n1", cpu="6"), builders.make_node("n2", cpu="2")]
    pods = [
        *(eviction.runs(f"old-{at}", cpu="1") for at in range(6)),
        *(eviction.waits(f"new-{at}", cpu="1") for at in range(4)),
    ]
    outcome = decide(action, nodes, [victims(action), eviction.high(4)], pods)
    assert len(outcome.evictions) == 2
    assert sorted(outcome.pipelined["default/high"].values()) == ["n1", "n1", "n2", "n2"]


@pytest.mark.parametrize("action", ACTIONS)
def test_room_that_the_statement_made_serves_the_next_task_of_the_gang(action: str) -> None:
    """The victim of the first task leaves more than that needs."""
    pods = [
        eviction.runs("old", cpu="3"),
        eviction.runs("kept", cpu="3", annotations={"volcano.sh/preemptable": "false"}),
        eviction.waits("new-1", cpu="2"),
        eviction.waits("new-2", cpu="1"),
    ]
    groups = [victims(action), eviction.high(2)]
    outcome = decide(action, [builders.make_node("n1", cpu="6")], groups, pods)
    assert outcome.evictions == ("default/old",)
    assert len(outcome.pipelined["default/high"]) == 2


@pytest.mark.parametrize("action", ACTIONS)
def test_terminating_room_counts_and_nothing_is_evicted_for_it(action: str) -> None:
    """What an earlier session evicted for the gang is waited for."""
    pods = [
        *(eviction.runs(f"old-{at}", cpu="1") for at in range(4)),
        *(eviction.runs(f"going-{at}", cpu="1", deleting=builders.NOON) for at in range(4)),
        *(eviction.waits(f"new-{at}", cpu="1") for at in range(4)),
    ]
    groups = [victims(action), eviction.high(4)]
    outcome = decide(action, [builders.make_node("n1", cpu="8")], groups, pods)
    assert outcome.evictions == ()
    assert len(outcome.pipelined["default/high"]) == 4


@pytest.mark.parametrize("action", ACTIONS)
def test_a_gang_for_which_all_is_idle_is_left_to_allocate(action: str) -> None:
    """An evicting action that comes first must not keep it from being bound."""
    nodes = [builders.make_node("n1", cpu="8")]
    pods = [eviction.runs("old", cpu="4"), eviction.waits("new", cpu="2")]
    given: dict[str, Any] = {"options": {}}
    if "reclaim" in action:
        given = {"names": (*eviction.NAMES, "proportion"), "queues": eviction.QUEUES}
    name = f"{action.split(' ')[0]}, allocate"
    outcome = eviction.decide(name, nodes, [victims(action), eviction.high()], pods, **given)
    assert outcome.binds == {"default/new": "n1"}
    assert outcome.evictions == ()


@pytest.mark.parametrize("action", ACTIONS)
def test_roles_that_lack_their_minimum_are_served_first(action: str) -> None:
    """Room for three workers does not make a gang that needs its launcher stand."""
    group = eviction.high(3, min_task_member={"worker": 1, "launcher": 1})
    pods = [
        *(eviction.runs(f"old-{at}", cpu="1") for at in range(6)),
        *(eviction.waits(f"a-{at}", cpu="1", task="worker") for at in range(3)),
        eviction.waits("b", cpu="1", task="launcher"),
    ]
    outcome = decide(action, [builders.make_node("n1", cpu="6")], [victims(action), group], pods)
    assert len(outcome.evictions) == 3
    assert "default/b" in outcome.pipelined["default/high"]


def full_gang(size: int, name: str = "old") -> list[core.Pod]:
    """A gang that runs with exactly its minimum, a pod on each node."""
    return [eviction.runs(f"{name}-{at}", f"n{at}", cpu="4") for at in range(size)]


@pytest.mark.parametrize("action", ["preempt", "preempt aware"])
def test_preempt_takes_pods_of_a_full_gang_of_lower_priority(action: str) -> None:
    """The usual training job: its minimum is its size, and no node holds all of it."""
    nodes = [builders.make_node(f"n{at}", cpu="4") for at in range(3)]
    pods = [*full_gang(3), eviction.waits(cpu="4")]
    outcome = decide(action, nodes, [eviction.low(least=3), eviction.high()], pods, CHART)
    assert len(outcome.evictions) == 1
    assert len(outcome.pipelined["default/high"]) == 1


def test_a_gang_that_was_broken_for_a_higher_one_does_not_take_the_room_back() -> None:
    """The victim's job holds places and lacks its minimum; the higher priority still goes first."""
    nodes = [builders.make_node(f"n{at}", cpu="4") for at in range(2)]
    pods = [
        eviction.runs("old-0", "n0", cpu="4"),
        builders.make_pod("old-1", "low", cpu="4"),
        eviction.waits(cpu="4"),
    ]
    groups = [eviction.low(least=2), eviction.high()]
    outcome = eviction.decide("allocate, preempt", nodes, groups, pods, options=CHART)
    assert set(outcome.binds) == {"default/new"}


def test_a_broken_gang_of_lower_priority_can_be_preempted() -> None:
    pods = [
        eviction.runs("old-0", "n0", cpu="4"),
        builders.make_pod("old-1", "low", cpu="4"),
        eviction.waits(cpu="4"),
    ]
    groups = [eviction.low(least=2), eviction.high()]
    outcome = eviction.decide(
        "preempt", [builders.make_node("n0", cpu="4")], groups, pods, options=CHART
    )
    assert outcome.evictions == ("default/old-0",)
