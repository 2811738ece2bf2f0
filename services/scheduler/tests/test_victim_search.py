"""One search finds room for a whole gang: idle, terminating and reclaimed room together."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
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
    """The job whose pods may be evicted: of lower priority, or of a queue above its share."""
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
def test_the_place_of_a_terminating_pod_counts_among_a_nodes_pods(action: str) -> None:
    """Of a node that may have three pods one terminates: two newcomers need one victim."""
    pods = [
        *(eviction.runs(f"old-{at}", cpu="1") for at in range(2)),
        eviction.runs("going", cpu="1", deleting=builders.NOON),
        *(eviction.waits(f"new-{at}", cpu="1") for at in range(2)),
    ]
    nodes = [builders.make_node("n1", cpu="8", pods=3), builders.make_node("n2", pods=0, cpu="9")]
    outcome = decide(action, nodes, [victims(action), eviction.high(2)], pods)
    assert len(outcome.evictions) == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_a_gang_for_which_all_is_idle_is_left_to_allocate(action: str) -> None:
    """An evicting action that comes first must not prevent its bind."""
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
    """Room for three workers does not start a gang that needs its launcher."""
    group = eviction.high(3, min_task_member={"worker": 1, "launcher": 1})
    pods = [
        *(eviction.runs(f"old-{at}", cpu="1") for at in range(6)),
        *(eviction.waits(f"a-{at}", cpu="1", task="worker") for at in range(3)),
        eviction.waits("b", cpu="1", task="launcher"),
    ]
    outcome = decide(action, [builders.make_node("n1", cpu="6")], [victims(action), group], pods)
    assert "default/b" in outcome.pipelined["default/high"]
    assert len(outcome.evictions) == len(outcome.pipelined["default/high"])


def test_gangreclaim_makes_room_for_the_minimum_if_the_queue_deserves_no_more() -> None:
    """An elastic job of six in a queue that deserves three."""
    pods = [
        *(eviction.runs(f"old-{at}", cpu="1") for at in range(6)),
        *(eviction.waits(f"new-{at}", cpu="1") for at in range(6)),
    ]
    groups = [victims("gangreclaim"), eviction.high(2)]
    outcome = decide("gangreclaim", [builders.make_node("n1", cpu="6")], groups, pods)
    assert len(outcome.evictions) == 2


def test_gangpreempt_makes_room_for_all_tasks_else_for_the_minimum() -> None:
    """As Volcano plans; a job that could start must not wait for tasks that it can do without."""
    pods = [
        *(eviction.runs(f"old-{at}", cpu="1") for at in range(6)),
        *(eviction.waits(f"new-{at}", cpu="1") for at in range(4)),
    ]
    groups = [victims("gangpreempt"), eviction.high(2)]
    nodes = [builders.make_node("n1", cpu="6")]
    assert len(decide("gangpreempt", nodes, groups, pods).evictions) == 4
    pods += [eviction.waits(f"new-{at}", cpu="1") for at in range(4, 9)]
    assert len(decide("gangpreempt", nodes, groups, pods).evictions) == 2


@pytest.mark.parametrize("action", ["gangpreempt", "gangreclaim"])
def test_role_minimums_bind_only_where_they_sum_to_no_more_than_the_minimum(action: str) -> None:
    """Surplus pods are evicted although their role is at its minimum, and the job continues."""
    names = ["old-a-0", "old-a-1", "old-b-0"]
    pods = [
        *(eviction.runs(name, cpu="2", task=name[4]) for name in names),
        eviction.waits("new", cpu="2"),
    ]
    more = {"queue": "other"} if "reclaim" in action else {}
    group = eviction.low(least=2, min_task_member={"a": 2, "b": 1}, **more)
    outcome = decide(action, [builders.make_node("n1", cpu="6")], [group, eviction.high()], pods)
    assert len(outcome.evictions) == 1


@pytest.mark.parametrize("action", ["gangpreempt", "gangreclaim"])
def test_surplus_pods_are_evicted_on_nodes_that_can_take_the_preemptor(action: str) -> None:
    """Pods on a node that refuses the newcomer are not the surplus: the job need not end."""
    nodes = [
        builders.make_node("n1", cpu="4"),
        builders.make_node("n2", cpu="2", unschedulable=True),
    ]
    pods = [
        *(eviction.runs(f"old-{at}", "n2", cpu="1") for at in range(2)),
        eviction.runs("old-9", cpu="4"),
        eviction.waits("new", cpu="2"),
    ]
    outcome = decide(action, nodes, [victims(action, least=2), eviction.high()], pods)
    assert outcome.evictions == ("default/old-9",)


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_is_evicted_for_pods_that_must_not_preempt(action: str) -> None:
    """Their policy is Never; what is idle they may have."""
    never = eviction.waits("new", cpu="2")
    spec = msgspec.structs.replace(never.spec, preemption_policy="Never")
    pods = [eviction.runs("old", cpu="4"), msgspec.structs.replace(never, spec=spec)]
    nodes = [builders.make_node("n1", cpu="4")]
    assert decide(action, nodes, [victims(action), eviction.high()], pods).evictions == ()


@pytest.mark.parametrize("action", ["preempt", "preempt aware", "reclaim"])
def test_a_pod_that_frees_nothing_is_not_the_one_that_its_gang_can_spare(action: str) -> None:
    """Of a job that can spare one pod, the youngest requests nothing: the other one is evicted."""
    early = builders.NOON - timedelta(hours=1)
    pods = [
        eviction.runs("old-0", cpu="4", created=early),
        eviction.runs("old-1", cpu=None, memory=None),
        eviction.waits("new", cpu="2"),
    ]
    outcome = decide(
        action,
        [builders.make_node("n1", cpu="4")],
        [victims(action, least=1), eviction.high()],
        pods,
    )
    assert outcome.evictions == ("default/old-0",)


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
    """The victim's job holds places and is below its minimum; the higher priority still comes
    first.
    """
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


@pytest.mark.parametrize("action", ["gangpreempt", "gangreclaim"])
def test_pods_of_a_job_below_its_minimum_are_evicted_together(action: str) -> None:
    """They cannot work without the others."""
    nodes = [builders.make_node(f"n{at}", cpu="4") for at in range(2)]
    pods = [
        *(eviction.runs(f"old-{at}", f"n{at}", cpu="4") for at in range(2)),
        builders.make_pod("old-2", "low", cpu="4"),
        eviction.waits(cpu="4"),
    ]
    outcome = decide(action, nodes, [victims(action, least=3), eviction.high()], pods)
    assert outcome.evictions == ("default/old-0", "default/old-1")
