"""Numatopologies: their content from an agent's report, and when they are written."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import kinds, numa
from stromboli.shared.messages import node_topology
from stromboli.testkit import builders

CELLS = (node_topology.NumaNode(id=0, cpus="0,1,4,5"), node_topology.NumaNode(id=1, cpus="2,3,6,7"))
CORES = (
    node_topology.CpuCore(cpus="0,4"),
    node_topology.CpuCore(cpus="1,5"),
    node_topology.CpuCore(cpus="2,6", numa_node=1, socket=1),
    node_topology.CpuCore(cpus="3,7", numa_node=1, socket=1),
)
KUBELET = node_topology.KubeletConfiguration(
    cpu_policy="static", topology_policy="restricted", reserved={"cpu": "500m", "memory": "1Gi"}
)


def machine(
    *exclusive_allocations: node_topology.ExclusiveAllocation, **more: Any
) -> node_topology.NodeTopology:
    return node_topology.NodeTopology(
        **{
            "numa_nodes": CELLS,
            "cores": CORES,
            "kubelet": KUBELET,
            "exclusive_allocations": exclusive_allocations,
            **more,
        }
    )


def report(of: node_topology.NodeTopology, silent_since: datetime | None = None) -> envelope.Draft:
    message = node_topology.TopologyObserved(
        node="n1", at=builders.NOON, topology=of, silent_since=silent_since
    )
    return envelope.Draft(topic=topics.TOPOLOGY, key="n1", message=message, time=builders.NOON)


def harness(of: node_topology.NodeTopology | None = None) -> CoreHarness:
    made = CoreHarness()
    made.submit(builders.make_node("n1"))
    made.show(report(of or machine()))
    made.settle()
    return made


def spec(of: CoreHarness) -> numa.NumatopologySpec:
    return of.get(kinds.NUMA_TOPOLOGIES, "n1").spec


def written(of: CoreHarness) -> int:
    return sum(getattr(it, "kind", None) is kinds.NUMA_TOPOLOGIES for it in of.done)


def test_cpus_stand_with_their_places_and_the_kubelets_settings() -> None:
    """A core's number is its lowest CPU: sockets' own numbers repeat."""
    assert spec(harness()) == numa.NumatopologySpec(
        policies={"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"},
        res_reserved={"cpu": "500m"},
        numares={"cpu": numa.NumaResource(allocatable="0-7", capacity=8)},
        cpu_detail={
            str(cpu): numa.CpuPlace(numa=cpu % 4 // 2, socket=cpu % 4 // 2, core=cpu % 4)
            for cpu in range(8)
        },
    )


def test_cpus_that_a_container_holds_are_not_free_and_say_whose_they_are() -> None:
    held = (
        node_topology.ExclusiveAllocation(namespace="default", pod="p1", container="a", cpus="2,6"),
        node_topology.ExclusiveAllocation(namespace="default", pod="p1", container="b", cpus="3"),
        node_topology.ExclusiveAllocation(uid="u2", container="c", cpus="0"),
        node_topology.ExclusiveAllocation(namespace="default", pod="idle", container="d"),
    )
    numatopology_spec = spec(harness(machine(*held)))
    assert numatopology_spec.numares == {
        "cpu": numa.NumaResource(allocatable="1,4,5,7", capacity=8)
    }
    assert [
        (pod.uid, pod.name, len(pod.container_allocations))
        for pod in numatopology_spec.pod_allocations
    ] == [
        ("", "p1", 2),
        ("u2", "", 1),
    ]
    assert numatopology_spec.pod_allocations[0].container_allocations[
        0
    ] == numa.ContainerAllocation(name="a", allocations={"cpu": "2,6"})


def test_it_belongs_to_its_node_and_blocks_nothing() -> None:
    made = harness()
    (owner,) = made.get(kinds.NUMA_TOPOLOGIES, "n1").metadata.owner_references
    uid = made.get(kinds.NODES, "n1").metadata.uid
    assert (owner.kind, owner.name, owner.uid) == ("Node", "n1", uid)
    assert not owner.controller
    assert not owner.block_owner_deletion


def test_it_is_written_on_change_only() -> None:
    """Nor after a restart, nor when what changed has no place in it."""
    made = harness()
    assert written(made) == 1
    made.restart()
    made.settle()
    made.show(report(machine(read_failures=(node_topology.ReadFailure(what="GPUs", why="none"),))))
    made.settle()
    assert written(made) == 1
    exclusive_allocation = node_topology.ExclusiveAllocation(uid="u1", container="c", cpus="0")
    made.show(report(machine(exclusive_allocation)))
    made.settle()
    assert written(made) == 2
    made.show(report(machine()))
    made.settle()
    assert spec(made).pod_allocations == ()
    assert written(made) == 3


def test_content_of_another_client_becomes_what_the_agent_reports_and_keeps_their_marks() -> None:
    made = CoreHarness()
    made.submit(builders.make_node("n1"))
    theirs = builders.make_meta("numatopology", "n1", annotations={"timestamp": "1"})
    made.submit(numa.Numatopology(metadata=theirs))
    made.show(report(machine()))
    made.settle()
    assert spec(made).numares == {"cpu": numa.NumaResource(allocatable="0-7", capacity=8)}
    assert made.get(kinds.NUMA_TOPOLOGIES, "n1").metadata.annotations == {"timestamp": "1"}


def test_one_that_is_deleted_is_created_again() -> None:
    made = harness()
    made.delete(kinds.NUMA_TOPOLOGIES, "n1")
    made.settle()
    assert spec(made) is not None


def test_an_agent_that_is_silent_marks_it_and_one_that_is_back_does_not() -> None:
    made = harness()
    since = builders.NOON - timedelta(seconds=90)
    made.show(report(machine(), silent_since=since))
    made.settle()
    marks = made.get(kinds.NUMA_TOPOLOGIES, "n1").metadata.annotations
    assert marks == {keys.SILENT_SINCE: "2026-01-01T11:58:30+00:00"}
    assert spec(made).cpu_detail
    made.show(report(machine()))
    made.settle()
    assert not made.get(kinds.NUMA_TOPOLOGIES, "n1").metadata.annotations


def test_nothing_is_written_for_an_unknown_node() -> None:
    made = CoreHarness()
    made.show(report(machine()))
    made.settle()
    assert made.names(kinds.NUMA_TOPOLOGIES) == []
    made.submit(builders.make_node("n1"))
    made.settle()
    assert made.names(kinds.NUMA_TOPOLOGIES) == ["n1"]


@pytest.mark.parametrize(
    "odd",
    [
        machine(cores=()),
        machine(cores=(node_topology.CpuCore(cpus="x"),)),
        machine(cores=(node_topology.CpuCore(cpus="0", numa_node=-1),)),
        machine(node_topology.ExclusiveAllocation(uid="u", container="c", cpus="?")),
    ],
)
def test_an_invalid_report_changes_nothing(
    odd: node_topology.NodeTopology,
) -> None:
    made = harness()
    made.show(report(odd))
    made.settle()
    assert spec(made).numares == {"cpu": numa.NumaResource(allocatable="0-7", capacity=8)}


def test_a_record_that_cannot_be_read_writes_nothing() -> None:
    made = harness()
    folded = made.cache.apply(builders.undecodable_record(topics.TOPOLOGY, "n1", 99))
    assert folded.undecodable
    assert folded.items == ()
    assert made.cache.hardware.of("n1") is None
