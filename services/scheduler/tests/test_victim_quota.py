"""Victims that reduce what a queue holds: the preemptor's queue has reached its limit."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from services.scheduler.tests import test_eviction as eviction
from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import simulate
from stromboli.shared.api import core, scheduling
from stromboli.testkit import builders

ACTIONS = ("preempt aware", "gangpreempt")
"""The first is topology-aware preemption. Without it, preempt counts the victims of one node, as
Volcano does."""


def decide(
    action: str,
    nodes: Sequence[core.Node],
    groups: Sequence[scheduling.PodGroup],
    pods: Sequence[core.Pod],
    capability: Mapping[str, core.Quantity],
) -> simulate.Outcome:
    options: dict[str, Any] = {"gang": {"enablePreemptable": False}}
    if action == "preempt aware":
        options["preempt"] = {"enableTopologyAwarePreemption": True}
    return eviction.decide(
        action.split(" ")[0],
        nodes,
        groups,
        pods,
        names=(*eviction.NAMES, "proportion"),
        queues=(sessions.queue("default", capability=capability),),
        options=options,
    )


def one_on_each(count: int, cpu: str) -> list[core.Pod]:
    return [eviction.runs(f"old-{at}", f"n{at}", cpu=cpu) for at in range(count)]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_queue_at_its_limit_gives_up_pods_of_several_nodes(action: str) -> None:
    """The victims of one node make room on it, and the queue still holds too much."""
    nodes = [builders.make_node(f"n{at}", cpu="4") for at in range(2)]
    pods = [*one_on_each(2, "3"), eviction.waits(cpu="3")]
    outcome = decide(action, nodes, [eviction.low(), eviction.high()], pods, {"cpu": "4"})
    assert outcome.evictions == ("default/old-0", "default/old-1")
    assert len(outcome.pipelined["default/high"]) == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_a_queue_at_its_limit_gives_up_no_more_pods_than_needed(action: str) -> None:
    nodes = [builders.make_node(f"n{at}", cpu="4") for at in range(4)]
    pods = [*one_on_each(4, "1"), eviction.waits(cpu="3")]
    outcome = decide(action, nodes, [eviction.low(), eviction.high()], pods, {"cpu": "5"})
    assert len(outcome.evictions) == 2


@pytest.mark.parametrize("action", ACTIONS)
def test_a_node_without_victims_takes_a_task_whose_queue_is_at_its_limit(action: str) -> None:
    """The pods are on small nodes, and a large one is idle."""
    nodes = [builders.make_node(f"n{at}", cpu="1") for at in range(4)]
    nodes.append(builders.make_node("large", cpu="4"))
    pods = [*one_on_each(4, "1"), eviction.waits(cpu="4")]
    outcome = decide(action, nodes, [eviction.low(), eviction.high()], pods, {"cpu": "4"})
    assert len(outcome.evictions) == 4
    assert outcome.pipelined["default/high"] == {"default/new": "large"}


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_is_evicted_for_a_task_beyond_the_limit_of_its_queue(action: str) -> None:
    nodes = [builders.make_node(f"n{at}", cpu="4") for at in range(2)]
    pods = [*one_on_each(2, "3"), eviction.waits(cpu="4")]
    outcome = decide(action, nodes, [eviction.low(), eviction.high()], pods, {"cpu": "3"})
    assert outcome.evictions == ()


@pytest.mark.parametrize("action", ACTIONS)
def test_pods_of_equal_priority_stay_though_the_queue_is_at_its_limit(action: str) -> None:
    nodes = [builders.make_node(f"n{at}", cpu="4") for at in range(2)]
    pods = [*one_on_each(2, "3"), eviction.waits(cpu="3")]
    equal = builders.make_pod_group("low", 0, priority_class="high", phase="Running")
    outcome = decide(action, nodes, [equal, eviction.high()], pods, {"cpu": "4"})
    assert outcome.evictions == ()


def test_many_victims_for_one_quota_take_a_number_of_trials_that_is_linear() -> None:
    """A gang of large pods, and small pods on other nodes: equal victims are not tried one by
    one."""
    small, large = 64, 8
    nodes = [builders.make_node(f"n{at}", cpu="1") for at in range(small)]
    nodes += [builders.make_node(f"large-{at}", cpu=str(large)) for at in range(small // large)]
    pods = [
        *one_on_each(small, "1"),
        *(eviction.waits(f"new-{at}", cpu=str(large)) for at in range(small // large)),
    ]
    groups = [eviction.low(), eviction.high(small // large)]
    outcome = decide("preempt aware", nodes, groups, pods, {"cpu": str(small)})
    assert len(outcome.evictions) == small
