"""Whatever the cluster: evictions are needed, and what they are for then fits whole."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from stromboli.scheduler.core import actions, plugins, simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader
from stromboli.shared.api import core
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

CAPACITY = 8
CLASSES = (builders.make_priority_class("low", 10), builders.make_priority_class("high", 1000))
SIZES = st.integers(1, CAPACITY)
NODES = st.lists(st.lists(SIZES, max_size=4), min_size=1, max_size=4)
"""Per node the cpus of the pods that run there; what exceeds the node is left out."""
GANG = st.lists(SIZES, min_size=1, max_size=4)
ACTION = st.sampled_from(["preempt", "gangpreempt", "reclaim", "gangreclaim"])


def running(loads: list[list[int]]) -> list[tuple[str, str, int]]:
    """(pod, node, cpus), no node overcommitted."""
    found = []
    for node, sizes in enumerate(loads):
        left = CAPACITY
        for at, size in enumerate(sizes):
            if size <= left:
                left -= size
                found.append((f"old-{node}-{at}", f"n{node}", size))
    return found


def simulated(
    action: str, nodes: int, old: list[tuple[str, str, int]], gang: list[int], least: int
) -> simulate.Outcome:
    names = ["priority", "gang", "predicates", "nodeorder"]
    if "reclaim" in action:
        names.append("proportion")
    tiers = [{"plugins": [{"name": name} for name in names]}]
    configured = config_reader.read_configuration(
        {"actions": action, "tiers": tiers}, actions.NAMES, plugins.NAMES
    )
    pods: list[core.Pod] = [
        builders.make_pod(name, "old", cpu=cpu, memory=None, node=node, phase="Running")
        for name, node, cpu in old
    ]
    pods += [
        builders.make_pod(f"new-{at}", "new", cpu=cpu, memory=None) for at, cpu in enumerate(gang)
    ]
    queue = "other" if "reclaim" in action else "default"
    groups = (
        builders.make_pod_group("old", 0, queue=queue, phase="Running", priority_class="low"),
        builders.make_pod_group("new", least, priority_class="high"),
    )
    given_objects = cluster_objects.Cluster(
        now=builders.NOON + timedelta(hours=1),
        nodes=tuple(builders.make_node(f"n{at}", cpu=CAPACITY) for at in range(nodes)),
        pods=tuple(pods),
        pod_groups=groups,
        queues=(builders.make_queue("default"), builders.make_queue("other")),
        priority_classes=CLASSES,
    )
    return simulate.summarize("case", simulate.run(configured, given_objects))


@depth.examples(100)
@given(ACTION, NODES, GANG, st.data())
def test_evictions_are_needed_and_make_room_for_the_whole_gang(
    action: str, loads: list[list[int]], gang: list[int], data: st.DataObject
) -> None:
    least = data.draw(st.integers(1, len(gang)))
    old = running(loads)
    outcome = simulated(action, len(loads), old, gang, least)
    promised = outcome.pipelined.get("default/new", {})
    if outcome.evictions:
        assert len(promised) >= least

    load = {f"n{node}": 0 for node in range(len(loads))}
    for name, node, cpu in old:
        load[node] += 0 if f"default/{name}" in outcome.evictions else cpu
    for task, node in promised.items():
        load[node] += gang[int(task.rpartition("-")[2])]
    assert all(total <= CAPACITY for total in load.values())

    for name, node, cpu in old:
        if f"default/{name}" in outcome.evictions:
            assert load[node] + cpu > CAPACITY, f"{name} could have been spared"
