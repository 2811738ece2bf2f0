"""What the scheduler reads of the report of a node's agent."""

from stromboli.scheduler.core.numa import reports
from stromboli.shared.messages import node_topology
from stromboli.testkit import cpu_time


def test_a_core_is_identified_by_its_lowest_cpu() -> None:
    cores = (node_topology.CpuCore(cpus="4,1", numa_node=1, socket=2),)
    places = reports.places(node_topology.NodeTopology(cores=cores))
    assert {(cpu, it.core, it.numa, it.socket) for cpu, it in places.items()} == {
        (1, 1, 1, 2),
        (4, 1, 1, 2),
    }


def test_a_core_costs_time_in_proportion_to_its_cpus() -> None:
    """An agent may report any number of them; a session waits for the slowest report."""
    topology = node_topology.NodeTopology(cores=(node_topology.CpuCore(cpus="0-19999"),))
    places, took_s = cpu_time.measured(lambda: reports.places(topology), enough_s=2)
    assert len(places) == 20_000
    assert took_s <= 2
