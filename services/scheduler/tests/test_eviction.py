"""Who is evicted for whom: preempt, reclaim, their gang forms and shuffle."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core import actions, plugins, simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader
from stromboli.shared.api import core, scheduling
from stromboli.testkit import builders

LOW, HIGH = builders.make_priority_class("low", 10), builders.make_priority_class("high", 1000)
NAMES = ("priority", "gang", "conformance", "predicates", "nodeorder")


def decide(
    action: str,
    nodes: Sequence[core.Node],
    groups: Sequence[scheduling.PodGroup],
    pods: Sequence[core.Pod],
    *,
    names: Sequence[str] = NAMES,
    queues: Sequence[scheduling.Queue] = (builders.make_queue(),),
    options: Mapping[str, Any] | None = None,
    **given: Any,
) -> simulate.Outcome:
    document = {
        "actions": action,
        "tiers": [{"plugins": [{"name": name, **(options or {}).get(name, {})} for name in names]}],
        "configurations": [
            {"name": each, "arguments": (options or {}).get(each, {})}
            for each in action.split(", ")
        ],
    }
    configured = config_reader.read_configuration(document, actions.NAMES, plugins.NAMES)
    session = simulate.run(
        configured,
        cluster_objects.Cluster(
            now=builders.NOON + timedelta(hours=1),
            nodes=tuple(nodes),
            pods=tuple(pods),
            pod_groups=tuple(groups),
            queues=tuple(queues),
            priority_classes=(LOW, HIGH),
            **given,
        ),
    )
    return simulate.summarize("case", session)


def low(name: str = "low", least: int = 0, **more: Any) -> scheduling.PodGroup:
    return builders.make_pod_group(name, least, priority_class="low", phase="Running", **more)


def high(least: int = 1, **more: Any) -> scheduling.PodGroup:
    return builders.make_pod_group("high", least, priority_class="high", **more)


def runs(name: str, node: str = "n1", group: str = "low", **more: Any) -> core.Pod:
    return builders.make_pod(name, group, node=node, phase="Running", **more)


def waits(name: str = "new", **more: Any) -> core.Pod:
    return builders.make_pod(name, "high", **more)


NODE = builders.make_node("n1", cpu="4")
EVERY = ("preempt", "gangpreempt")


@pytest.mark.parametrize("action", EVERY)
def test_no_more_go_than_the_newcomer_needs(action: str) -> None:
    pods = [*(runs(f"old-{at}") for at in range(4)), waits(cpu="2")]
    outcome = decide(action, [NODE], [low(), high()], pods)
    assert len(outcome.evictions) == 2
    assert outcome.pipelined == {"default/high": {"default/new": "n1"}}


def test_a_small_victim_is_spared_if_a_large_one_is_evicted() -> None:
    pods = [runs("a", cpu="3"), runs("b", cpu="1"), waits(cpu="3")]
    assert decide("preempt", [NODE], [low(), high()], pods).evictions == ("default/a",)


def test_what_a_later_member_evicts_spares_what_went_for_an_earlier_one() -> None:
    pods = [
        runs("a", cpu="3"),
        runs("b", cpu="1"),
        waits("new-1", cpu="1"),
        waits("new-2", cpu="2"),
    ]
    outcome = decide("preempt", [NODE], [low(), high(2)], pods)
    assert outcome.evictions == ("default/a",)
    assert len(outcome.pipelined["default/high"]) == 2


@pytest.mark.parametrize("action", EVERY)
def test_nothing_is_evicted_for_a_gang_that_cannot_start(action: str) -> None:
    pods = [runs("old", cpu="4"), waits("new-1", cpu="3"), waits("new-2", cpu="3")]
    outcome = decide(action, [NODE], [low(), high(2)], pods)
    assert (outcome.evictions, outcome.pipelined) == ((), {})


@pytest.mark.parametrize("action", EVERY)
def test_no_node_is_robbed_while_another_has_room(action: str) -> None:
    nodes = [NODE, builders.make_node("n2", cpu="4")]
    outcome = decide(action, nodes, [low(), high()], [runs("old", cpu="4"), waits(cpu="4")])
    assert outcome.evictions == ()
    assert outcome.pipelined == {"default/high": {"default/new": "n2"}}


@pytest.mark.parametrize("action", EVERY)
def test_a_gang_is_not_broken_for_one_of_equal_priority(action: str) -> None:
    equal = builders.make_pod_group("low", 0, priority_class="high", phase="Running")
    outcome = decide(action, [NODE], [equal, high()], [runs("old", cpu="4"), waits(cpu="4")])
    assert outcome.evictions == ()


def test_the_surplus_of_a_gang_may_go_but_not_its_minimum() -> None:
    pods = [*(runs(f"old-{at}") for at in range(4)), waits("new", cpu="3")]
    assert decide("preempt", [NODE], [low(least=2), high()], pods).evictions == ()


def test_a_whole_job_is_evicted_only_if_the_gang_action_may_end_it() -> None:
    pods = [*(runs(f"old-{at}") for at in range(4)), waits("new", cpu="3")]
    groups = [low(least=2), high()]
    outcome = decide("gangpreempt", [NODE], groups, pods)
    assert len(outcome.evictions) == 4, "one that stayed of two would hold its place in vain"
    kept = {"gangpreempt": {"allowWholeBundle": False}}
    assert decide("gangpreempt", [NODE], groups, pods, options=kept).evictions == ()


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_job_that_a_session_starts_is_not_ended_in_it(*, has_begun: bool) -> None:
    """What it binds cannot be evicted yet, and would be left alone."""
    nodes = [NODE, builders.make_node("n2", cpu="1")]
    pods = [runs("old-0", cpu="4"), waits("new", cpu="4")]
    pods.append(builders.make_pod("old-1", "low") if has_begun else runs("old-1", "n2"))
    outcome = decide("allocate, gangpreempt", nodes, [low(least=2), high()], pods)
    assert (set(outcome.binds), len(outcome.evictions)) == (
        ({"default/old-1"}, 0) if has_begun else (set(), 2)
    )


def test_the_youngest_of_equal_victims_is_evicted_first() -> None:
    early = builders.NOON - timedelta(hours=1)
    pods = [runs("a", cpu="2"), runs("b", cpu="2", created=early), waits(cpu="2")]
    assert decide("preempt", [NODE], [low(), high()], pods).evictions == ("default/a",)


def test_topology_aware_preemption_takes_the_cheapest_of_nodes() -> None:
    nodes = [NODE, builders.make_node("n2", cpu="4")]
    pods = [runs("a", cpu="4", priority=50), runs("b", "n2", cpu="4", priority=5), waits(cpu="4")]
    options = {
        "preempt": {"enableTopologyAwarePreemption": True, "minCandidateNodesPercentage": 100}
    }
    outcome = decide("preempt", nodes, [low(), high()], pods, options=options)
    assert outcome.evictions == ("default/b",)


QUEUES = (builders.make_queue("default"), builders.make_queue("other"))


@pytest.mark.parametrize("action", ["reclaim", "gangreclaim"])
def test_a_queue_takes_its_share_back_and_no_more(action: str) -> None:
    groups = [low(queue="other"), high(2)]
    pods = [*(runs(f"old-{at}") for at in range(4)), waits("new-1"), waits("new-2")]
    names = (*NAMES, "proportion")
    outcome = decide(action, [NODE], groups, pods, names=names, queues=QUEUES)
    assert len(outcome.evictions) == 2
    assert len(outcome.pipelined["default/high"]) == 2


@pytest.mark.parametrize("kind", ["guarantee", "deserved"])
@pytest.mark.parametrize("groups_of_victims", [1, 2])
def test_bundles_of_victims_together_leave_a_queue_its_quota(
    kind: str, groups_of_victims: int
) -> None:
    """Four of four pods run, two may go: two of one job, which ends with the others, or a whole job
    of two. The gang needs all four."""
    due = {"cpu": "2", "memory": "2Gi"}
    deserves = {"cpu": "4", "memory": "4Gi"}
    queues = (
        sessions.queue("default", deserved=deserves),
        sessions.queue("other", deserved=due, guarantee=due if kind == "guarantee" else None),
    )
    size = 4 // groups_of_victims
    victims = [f"low-{at}" for at in range(groups_of_victims)]
    groups = [*(low(name, 2, queue="other") for name in victims), high(4)]
    running = [runs(f"{name}-{at}", group=name) for name in victims for at in range(size)]
    # The gang's queue may use all that is not guaranteed to others: ten cores of twelve.
    node = builders.make_node("n1", cpu="12")
    running.append(
        builders.make_pod("foreign", cpu="8", node="n1", phase="Running", scheduler="another")
    )
    pods = [*running, *(waits(f"new-{at}") for at in range(4))]
    outcome = decide("gangreclaim", [node], groups, pods, names=(*NAMES, "capacity"), queues=queues)
    assert outcome.evictions == ()
    groups[-1] = high(2)
    two = [*running, *(waits(f"new-{at}") for at in range(2))]
    outcome = decide("gangreclaim", [node], groups, two, names=(*NAMES, "capacity"), queues=queues)
    assert len(outcome.evictions) == 2


def test_a_job_of_which_a_queue_can_lose_only_a_part_does_not_spare_a_smaller_one() -> None:
    """Five pods run and two may go: not the job of three, whose part does not count, but the one of
    two."""
    queues = (
        sessions.queue("default", deserved={"cpu": "2"}),
        sessions.queue("other", deserved={"cpu": "3"}, guarantee={"cpu": "3"}),
    )
    groups = [low("big", 3, queue="other"), low("small", 2, queue="other"), high(2)]
    pods = [
        *(runs(f"big-{at}", group="big") for at in range(3)),
        *(runs(f"small-{at}", group="small") for at in range(2)),
        *(waits(f"new-{at}") for at in range(2)),
    ]
    outcome = decide(
        "gangreclaim",
        [builders.make_node("n1", cpu="5")],
        groups,
        pods,
        names=(*NAMES, "capacity"),
        queues=queues,
    )
    assert outcome.evictions == ("default/small-0", "default/small-1")


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    kept = msgspec.structs.replace(
        QUEUES[1], spec=msgspec.structs.replace(QUEUES[1].spec, reclaimable=False)
    )
    outcome = decide(
        "reclaim",
        [NODE],
        [low(queue="other"), high()],
        [runs("old", cpu="4"), waits()],
        names=(*NAMES, "proportion"),
        queues=(QUEUES[0], kept),
    )
    assert outcome.evictions == ()


def test_a_pod_of_a_used_up_disruption_budget_is_spared() -> None:
    budget = core.PodDisruptionBudget(
        metadata=builders.make_meta("pdb", "b", "default"),
        spec=core.PodDisruptionBudgetSpec(selector=core.LabelSelector(match_labels={"app": "a"})),
        status=core.PodDisruptionBudgetStatus(disruptions_allowed=1),
    )
    pods = [
        *(runs(f"old-{at}", cpu="1", labels={"app": "a"}) for at in range(2)),
        runs("old-9", cpu="1", labels={"app": "b"}),
        runs("bare", cpu="1"),
        waits(cpu="3"),
    ]
    names = (*NAMES, "pdb")
    given: dict[str, Any] = {"names": names, "disruption_budgets": (budget,)}
    assert decide("preempt", [NODE], [low(), high()], pods, **given).evictions == ()
    pods[-1] = waits(cpu="2")
    found = decide("preempt", [NODE], [low(), high()], pods, **given).evictions
    assert "default/old-9" in found
    assert len(found) == 2


@pytest.mark.parametrize(("cooldown", "evicted"), [("2h", 0), ("30m", 1), ("soon", 1)])
def test_a_pod_is_protected_while_it_cools_down(cooldown: str, evicted: int) -> None:
    scheduled = core.Condition(
        type="PodScheduled", status="True", last_transition_time=builders.NOON
    )
    old = runs("old", cpu="4", labels={"volcano.sh/cooldown-time": cooldown})
    old = msgspec.structs.replace(
        old, status=msgspec.structs.replace(old.status, conditions=(scheduled,))
    )
    outcome = decide(
        "preempt", [NODE], [low(), high()], [old, waits(cpu="4")], names=(*NAMES, "cdp")
    )
    assert len(outcome.evictions) == evicted


def test_rescheduling_moves_pods_off_busy_nodes_while_quiet_ones_have_room() -> None:
    nodes = [builders.make_node(name, cpu="10") for name in ("n1", "n2")]
    pods = [runs(f"old-{at}", cpu="1") for at in range(8)]
    limits = {"cpu": 50, "memory": 90}
    params = {"thresholds": {"cpu": 20, "memory": 50}, "targetThresholds": limits}
    options = {
        "rescheduling": {
            "arguments": {
                "metricsPeriod": "10m",
                "strategies": [{"name": "lowNodeUtilization", "params": params}],
            }
        }
    }
    given: dict[str, Any] = {
        "names": ("rescheduling",),
        "options": options,
        "usage": {
            "n1": cluster_objects.NodeUsage(cpu={"10m": 80.0}, memory={"10m": 10.0}),
            "n2": cluster_objects.NodeUsage(cpu={"10m": 10.0}, memory={"10m": 10.0}),
        },
    }
    last = {"rescheduling": builders.NOON.isoformat()}
    moved = decide("shuffle", nodes, [low()], pods, memory=last, **given).evictions
    assert len(moved) == 4
    assert decide("shuffle", nodes, [low()], pods, **given).evictions == ()


def test_rescheduling_moves_no_pods_towards_nodes_without_a_measurement() -> None:
    """They may be full."""
    nodes = [builders.make_node(name, cpu="10") for name in ("n1", "n2")]
    strategy = {
        "name": "lowNodeUtilization",
        "params": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}},
    }
    moved = decide(
        "shuffle",
        nodes,
        [low()],
        [runs(f"old-{at}", cpu="1") for at in range(8)],
        memory={"rescheduling": builders.NOON.isoformat()},
        names=("rescheduling",),
        options={"rescheduling": {"arguments": {"metricsPeriod": "10m", "strategies": [strategy]}}},
        usage={"n1": cluster_objects.NodeUsage(cpu={"10m": 80.0}, memory={"10m": 10.0})},
    )
    assert moved.evictions == ()


def test_usage_refuses_busy_nodes_and_prefers_quiet_ones() -> None:
    nodes = [builders.make_node(name, cpu="10") for name in ("n1", "n2", "n3")]
    usage = {
        name: cluster_objects.NodeUsage(cpu={"10m": percent}, memory={"10m": percent})
        for name, percent in (("n1", 90.0), ("n2", 60.0), ("n3", 20.0))
    }
    outcome = decide("allocate", nodes, [high()], [waits()], names=("gang", "usage"), usage=usage)
    assert outcome.binds == {"default/new": "n3"}
    busy = dict.fromkeys(usage, usage["n1"])
    outcome = decide("allocate", nodes, [high()], [waits()], names=("gang", "usage"), usage=busy)
    assert outcome.binds == {}
