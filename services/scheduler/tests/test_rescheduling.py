"""The plugin ``rescheduling``: which nodes are busy or quiet, which pods move, and when it
stops."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.test_eviction import decide, low, runs
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.shared.api import core
from stromboli.testkit import builders

LOW, HIGH = {"cpu": 20, "memory": 20}, {"cpu": 50, "memory": 50}
Usage = Mapping[str, tuple[float, float]]


def moved(
    usage: Usage,
    pods: list[core.Pod],
    cordoned: str = "",
    ran: bool = True,
    replaced: Mapping[str, cluster_objects.NodeUsage | None] | None = None,
    **arguments: Any,
) -> list[str]:
    """The evicted pods, in order, of a cluster of nodes with 10 cpus and 10 GiB. ``usage``: node ->
    percent of cpu and memory. ``ran``: whether an interval has passed since the last run.
    ``replaced``: other measurements of nodes, None for none."""
    measurements: dict[str, cluster_objects.NodeUsage | None] = {
        name: cluster_objects.NodeUsage(cpu={"10m": cpu}, memory={"10m": memory})
        for name, (cpu, memory) in usage.items()
    }
    measurements |= replaced or {}
    nodes = []
    for name in usage:
        node = builders.make_node(name, cpu="10", memory="10Gi")
        spec = msgspec.structs.replace(node.spec, unschedulable=name == cordoned)
        nodes.append(msgspec.structs.replace(node, spec=spec))
    strategy = {
        "name": "lowNodeUtilization",
        "params": {"thresholds": LOW, "targetThresholds": HIGH},
    }
    options = {"metricsPeriod": "10m", "strategies": [strategy], **arguments}
    decided = decide(
        "shuffle",
        nodes,
        [low()],
        pods,
        names=("rescheduling",),
        options={"rescheduling": {"arguments": options}},
        memory={"rescheduling": builders.NOON.isoformat()} if ran else {},
        usage={name: it for name, it in measurements.items() if it is not None},
    )
    return [key.partition("/")[2] for key in decided.evictions]


def on(node: str, count: int, cpu: str = "1", **more: Any) -> list[core.Pod]:
    return [runs(f"{node}-{at}", node=node, cpu=cpu, memory=None, **more) for at in range(count)]


def test_pods_move_until_no_resource_of_the_node_is_above_its_target() -> None:
    """80 percent of 10 cpus: the fourth pod brings the node below 50."""
    assert len(moved({"busy": (80, 10), "quiet": (0, 0)}, on("busy", 8))) == 4


def test_pods_move_only_while_quiet_nodes_have_room_below_their_target() -> None:
    """The quiet node takes 3.5 cpus before it is at 50 percent: the fourth pod exceeds them."""
    assert len(moved({"busy": (95, 10), "quiet": (15, 0)}, on("busy", 9))) == 4
    assert len(moved({"busy": (95, 10), "quiet": (10, 0)}, on("busy", 9, cpu="2"))) == 2


def test_memory_makes_a_node_busy_as_cpu_does() -> None:
    pods = [runs(f"p{at}", node="busy", cpu=None, memory="1Gi") for at in range(8)]
    assert len(moved({"busy": (0, 80), "quiet": (0, 0)}, pods)) == 4


@pytest.mark.parametrize(
    "usage",
    [
        {"busy": (50, 50), "quiet": (0, 0)},
        {"busy": (80, 10), "middle": (20, 0)},
        {"busy": (80, 10), "middle": (0, 20)},
        {"busy": (80, 10), "other": (80, 10)},
    ],
    ids=["at its target", "not below the cpu threshold", "nor that of memory", "all are busy"],
)
def test_no_pods_move_without_a_busy_and_a_quiet_node(usage: Usage) -> None:
    assert moved(usage, on("busy", 8)) == []


def test_no_pods_move_towards_a_cordoned_node() -> None:
    assert moved({"busy": (80, 10), "quiet": (0, 0)}, on("busy", 8), cordoned="quiet") == []


def test_the_busiest_node_loses_its_pods_first() -> None:
    """By the sum of its percentages."""
    usage = {"a": (70.0, 10.0), "b": (70.0, 45.0), "quiet": (10.0, 10.0)}
    pods = [*on("a", 7, cpu="2"), *on("b", 7, cpu="2")]
    assert [name[0] for name in moved(usage, pods)] == ["b", "b"]


def victim(name: str, priority: int | None, **resources: Any) -> core.Pod:
    parts = [core.Container(name="c", resources=core.ResourceRequirements(**resources))]
    pod = runs(name, node="busy", containers=parts)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))


ONE = {"cpu": "1", "memory": "1Gi"}
BEST_EFFORT: dict[str, Any] = {}
BURSTABLE: dict[str, Any] = {"requests": ONE, "limits": {"cpu": "2", "memory": "1Gi"}}
REQUESTED: dict[str, Any] = {"requests": ONE}
GUARANTEED: dict[str, Any] = {"requests": ONE, "limits": ONE}
LIMITED: dict[str, Any] = {"limits": ONE}
"""Also guaranteed: requests that are absent equal the limits."""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((None, GUARANTEED), (-5, BURSTABLE)),
        ((0, GUARANTEED), (1, BURSTABLE)),
        ((1, BURSTABLE), (1, GUARANTEED)),
        ((1, BURSTABLE), (1, LIMITED)),
        ((1, GUARANTEED), (1, GUARANTEED)),
    ],
)
@pytest.mark.parametrize("is_swapped", [False, True])
def test_pods_without_priority_go_first_then_low_ones_then_those_without_guarantees(
    first: Any, second: Any, *, is_swapped: bool
) -> None:
    """The first pod brings the node below its target. Equal pods go in the order of their names."""
    names = ("b", "a") if is_swapped and first != second else ("a", "b")
    pods = [
        victim(name, priority, **resources)
        for name, (priority, resources) in zip(names, (first, second), strict=True)
    ]
    assert moved({"busy": (55, 10), "quiet": (0, 0)}, pods) == [names[0]]


@pytest.mark.parametrize("other", [BURSTABLE, GUARANTEED, REQUESTED])
def test_pods_without_requests_go_first_and_bring_no_node_below_its_target(other: Any) -> None:
    pods = [victim("a", 1, **other), victim("b", 1, **BEST_EFFORT)]
    assert moved({"busy": (55, 10), "quiet": (0, 0)}, pods) == ["a", "b"]


@pytest.mark.parametrize("measured", [None, {"5m": 0.0}])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_a_node_without_a_measurement_for_the_period_is_left_out(
    resource: str, measured: dict[str, float] | None
) -> None:
    """And the others are balanced as if it did not exist."""
    unmeasured = None
    if measured is not None:
        known = {"cpu": {"10m": 0.0}, "memory": {"10m": 0.0}, resource: measured}
        unmeasured = cluster_objects.NodeUsage(**known)
    usage = {"busy": (80.0, 10.0), "quiet": (10.0, 0.0), "other": (0.0, 0.0)}
    pods = on("busy", 8, cpu="2")
    assert len(moved(usage, pods)) == 2
    assert len(moved(usage, on("busy", 8), replaced={"other": unmeasured})) == 4


def test_nothing_moves_before_the_first_interval_has_passed() -> None:
    pods = on("busy", 8)
    assert moved({"busy": (80, 10), "quiet": (0, 0)}, pods, ran=False) == []
    assert moved({"busy": (80, 10), "quiet": (0, 0)}, pods, interval="2h") == []
    assert moved({"busy": (80, 10), "quiet": (0, 0)}, pods, interval="1h")


def test_without_strategies_the_default_moves_nothing() -> None:
    """Its thresholds of 100 percent make no node busy."""
    assert moved({"busy": (99, 99), "quiet": (0, 0)}, on("busy", 8), strategies=[]) == []
