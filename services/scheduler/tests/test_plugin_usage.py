"""The plugin ``usage`` and the loads that nodes' agents measure: scores of disk and network."""

import numpy as np
import pytest

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.harness import SchedulerHarness
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import envelope, topics
from stromboli.shared.messages import node_usage
from stromboli.testkit import builders

NODES = [builders.make_node(f"n{at}") for at in (1, 2, 3)]


def load(percent: int | None) -> node_usage.DeviceLoad | None:
    return None if percent is None else node_usage.DeviceLoad(busiest="x", percent=percent)


def observed(
    node: str, disk: int | None = None, network: int | None = None, *, is_silent: bool = False
) -> node_usage.UsageObserved:
    usage = node_usage.NodeLoad(window_s=60, disk=load(disk), network=load(network))
    return node_usage.UsageObserved(
        node=node,
        observed_at=builders.NOON,
        usage=usage,
        silent_since=builders.NOON if is_silent else None,
    )


def opened(*found: node_usage.UsageObserved, **weights: int) -> session.Session:
    arguments = {"usage.weight": 1} | {f"{name}.weight": of for name, of in weights.items()}
    return sessions.opened(
        *NODES,
        *found,
        sessions.queue("a"),
        *sessions.gang("g1", "a", 1),
        tier=[sessions.plugin("usage", arguments)],
    )


def scored(ssn: session.Session) -> list[float]:
    task = ssn.jobs["default/g1"].pending[0]
    rows = np.arange(len(ssn.nodes))
    found: list[float] = (ssn.finder.scores(task, rows) / extension_points.SCORE_UNIT).tolist()
    return found


def test_a_node_with_a_loaded_disk_scores_lower() -> None:
    found = [observed("n1", disk=95), observed("n2", disk=0), observed("n3", disk=40)]
    assert scored(opened(*found, disk=1)) == pytest.approx([5, 100, 60])


def test_disk_and_network_add_up_by_their_weights() -> None:
    found = [observed("n1", 100, 0), observed("n2", 0, 100), observed("n3", 100, 100)]
    assert scored(opened(*found, disk=2, network=1)) == pytest.approx([100, 200, 0])


@pytest.mark.parametrize("is_silent", [False, True])
def test_an_unknown_load_is_neither_preferred_nor_avoided(is_silent: bool) -> None:
    """A node without an agent, or whose agent stopped reporting, counts as the mean of the known
    ones."""
    found = [observed("n1", disk=80), observed("n2", disk=20)]
    found += [observed("n3", disk=100, is_silent=True)] if is_silent else []
    assert scored(opened(*found, disk=1)) == pytest.approx([20, 80, 50])


def test_without_measurements_or_weights_all_nodes_are_equal() -> None:
    assert scored(opened(disk=1, network=1)) == [0, 0, 0]
    assert scored(opened(observed("n1", 90, 90), cpu=0, memory=0)) == [0, 0, 0]


def test_the_scores_of_disks_need_no_measurement_of_cpu_and_none_of_their_weights() -> None:
    found = [observed("n1", disk=50), observed("n2", disk=0), observed("n3", disk=0)]
    assert scored(opened(*found, disk=1, cpu=0, memory=0)) == pytest.approx([50, 100, 100])


def test_a_load_never_keeps_a_pod_off_a_node() -> None:
    found = [observed(f"n{at}", 100, 100) for at in (1, 2, 3)]
    ssn = opened(*found, disk=1, network=1)
    filtered = ssn.finder.filter_result(ssn.jobs["default/g1"].pending[0])
    assert not sum(count for _, count in filtered.refusals(np.ones(3, np.bool_)))


def test_a_record_that_is_deleted_or_cannot_be_read_is_unknown_and_not_the_previous_one() -> None:
    of = SchedulerHarness()
    of.see(NODES[0])
    for gone in (True, False):
        message = observed("n1", disk=50)
        of.apply(of.log.append(draft(message)))
        assert of.cache.model.auxiliary.node_usage == {"n1": message.usage}
        of.apply(of.log.append(draft(None)) if gone else of.log.garble(topics.USAGE, "n1"))
        assert of.cache.model.auxiliary.node_usage == {}


def draft(message: node_usage.UsageObserved | None) -> envelope.Draft:
    return envelope.Draft(topic=topics.USAGE, key="n1", message=message, time=builders.NOON)
