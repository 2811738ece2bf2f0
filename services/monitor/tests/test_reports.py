"""What is published of agents' reports: changes, silence, and the end of nodes."""

from datetime import datetime, timedelta

import msgspec
import pytest

from stromboli.monitor.core import reports
from stromboli.shared import envelope
from stromboli.shared.messages import node_topology
from stromboli.testkit import builders

SILENCE = timedelta(seconds=90)
ONE = node_topology.NodeTopology(numa_nodes=(node_topology.NumaNode(id=0, cpus="0-3"),))
OTHER = node_topology.NodeTopology(numa_nodes=(node_topology.NumaNode(id=0, cpus="0-2"),))


def at(seconds: float) -> datetime:
    return builders.NOON + timedelta(seconds=seconds)


def begun(*drafts: envelope.Draft) -> reports.NodeReports:
    """A monitor that finds these on its topic, and opens at second 0."""
    node_reports = reports.NodeReports(SILENCE)
    for offset, draft in enumerate(drafts):
        node_reports.apply(builders.make_record(draft, offset))
    node_reports.open(at(0))
    return node_reports


def seen(draft: envelope.Draft | None) -> node_topology.TopologyObserved:
    assert draft is not None
    assert isinstance(draft.message, node_topology.TopologyObserved)
    return draft.message


def everywhere(_: str) -> bool:
    return True


def test_only_changes_are_published() -> None:
    known = begun()
    first = known.report("n1", ONE, "a", at(1))
    assert seen(first) == node_topology.TopologyObserved(node="n1", at=at(1), topology=ONE)
    assert known.report("n1", ONE, "a", at(2)) is None
    assert seen(known.report("n1", OTHER, "b", at(3))).at == at(3)


@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        ({"cores": [{"cpus": "0-65535"}]}, "65536 CPUs of cores, at most 8192"),
        ({"cores": [{"cpus": "0-4095"}] * 3}, "12288 CPUs of cores"),
        ({"numaNodes": [{"id": 0, "cpus": "0-9999999999"}]}, "10000000000 CPUs of NUMA nodes"),
        ({"exclusiveAllocations": [{"cpus": "0-8191"}, {"cpus": "1"}]}, "8193 exclusive CPUs"),
        ({"exclusiveAllocations": [{}] * 5000}, "5000 exclusive allocations"),
        ({"numaNodes": [{"id": 0}] * 1025}, "1025 NUMA nodes"),
        ({"gpus": [{"index": 0, "uuid": "u"}] * 257}, "257 GPUs"),
        ({"gpuConnections": [["SYS"]]}, "1 connections of GPUs, at most 0"),
        ({"offlineCpus": "0," * 10_000}, "offline CPUs"),
    ],
)
def test_a_report_of_more_hardware_than_a_machine_has_is_rejected(
    topology: dict[str, object], reason: str
) -> None:
    """A compromised agent could stop readers for minutes with a few bytes."""
    with pytest.raises(msgspec.DecodeError, match=reason):
        reports.read(msgspec.json.encode(topology))


@pytest.mark.parametrize(
    "topology",
    [
        {"cores": [{"cpus": f"{core},{core + 4096}"} for core in range(4096)]},
        {"numaNodes": [{"id": 0, "cpus": "0-8191"}], "exclusiveAllocations": [{"cpus": "0-8191"}]},
        {"numaNodes": [{"id": 0, "cpus": "odd"}], "offlineCpus": "3-1"},
        {"gpus": [{"index": 0, "uuid": "u"}], "gpuConnections": [["INTERNAL"]], "nvlinks": [[0]]},
    ],
)
def test_a_report_of_the_largest_machine_is_read(topology: dict[str, object]) -> None:
    """And one with an invalid list, which readers leave out."""
    read = reports.read(msgspec.json.encode(topology))
    assert read != node_topology.NodeTopology()


def test_a_heartbeat_counts_only_for_the_published_report() -> None:
    known = begun()
    assert not known.heartbeat("n1", "a", at(0))
    known.report("n1", ONE, "a", at(1))
    assert known.heartbeat("n1", "a", at(2))
    assert not known.heartbeat("n1", "b", at(3))


def test_the_report_of_a_silent_agent_is_kept_with_its_age() -> None:
    known = begun()
    known.report("n1", ONE, "a", at(1))
    known.heartbeat("n1", "a", at(20))
    assert known.tick(at(110), everywhere) == []
    (draft,) = known.tick(at(111), everywhere)
    assert seen(draft) == node_topology.TopologyObserved(
        node="n1", at=at(1), topology=ONE, silent_since=at(20)
    )
    assert known.tick(at(200), everywhere) == []
    assert known.silent() == {"n1": at(20)}


def test_the_report_of_a_returning_agent_is_published() -> None:
    """Also with an unchanged report."""
    known = begun()
    known.report("n1", ONE, "a", at(1))
    known.tick(at(100), everywhere)
    assert not known.heartbeat("n1", "a", at(101))
    assert seen(known.report("n1", ONE, "a", at(101))).silent_since is None
    assert known.silent() == {}


def test_a_restarted_monitor_repeats_nothing_and_waits_for_agents() -> None:
    before = reports.NodeReports(SILENCE)
    draft = before.report("n1", ONE, "a", at(-1000))
    assert draft is not None
    known = begun(draft)
    assert known.report("n1", ONE, "a", at(1)) is None
    assert begun(draft).tick(at(90), everywhere) == []
    assert seen(begun(draft).tick(at(91), everywhere)[0]).silent_since == at(0)


def test_a_silent_agent_remains_silent_after_a_restart() -> None:
    before = reports.NodeReports(SILENCE)
    before.report("n1", ONE, "a", at(-1000))
    (draft,) = before.tick(at(-500), everywhere)
    known = begun(draft)
    assert known.silent() == {"n1": at(-1000)}
    assert known.tick(at(1000), everywhere) == []


def test_the_report_of_a_deleted_node_is_deleted() -> None:
    known = begun()
    known.report("n1", ONE, "a", at(1))
    (draft,) = known.tick(at(2), lambda node: node != "n1")
    assert (draft.key, draft.message) == ("n1", None)
    assert known.tick(at(3), everywhere) == []


@pytest.mark.parametrize("is_known", [True, False])
def test_records_hidden_by_a_replaced_monitor_are_published_again(is_known: bool) -> None:
    known = begun()
    if is_known:
        known.report("n1", ONE, "a", at(1))
    known.mark_overwritten("n1")
    (draft,) = known.tick(at(2), everywhere)
    assert draft.key == "n1"
    assert (draft.message is None) is not is_known
    assert known.tick(at(3), everywhere) == []


def test_a_record_that_cannot_be_read_is_replaced() -> None:
    known = reports.NodeReports(SILENCE)
    known.apply(builders.undecodable_record(reports.NodeReports.topic, "n1"))
    known.open(at(0))
    assert seen(known.report("n1", ONE, "a", at(1))).topology == ONE
    assert known.tick(at(2), everywhere) == []
