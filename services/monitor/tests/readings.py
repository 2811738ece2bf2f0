"""Recorded machines as the agent reads them."""

from pathlib import Path

from stromboli.monitor.agent import machine
from stromboli.monitor.agent.kubelet import Kubelet
from stromboli.shared.messages import node_topology
from stromboli.testkit.doubles import recorded_machines


def read(
    described: recorded_machines.Machine, folder: Path, kubelet: Path | None = None
) -> node_topology.NodeTopology:
    """A described machine, written down and read."""
    sys, nvml = recorded_machines.write(described, folder)
    return opened(sys, nvml, kubelet).read(0.0)


def opened(sys: Path, nvml: Path, kubelet: Path | None = None) -> machine.Machine:
    """A recording to be read again and again."""
    return machine.Machine(
        sys, machine.recorded(nvml), None if kubelet is None else Kubelet(kubelet)
    )


def lines(topology: node_topology.NodeTopology) -> list[str]:
    """What could not be read."""
    return [f"{each.what}: {each.why}" for each in topology.read_failures]
