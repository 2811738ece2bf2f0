"""Memory by NUMA node on a real kubelet with the memory manager, and the agent that reports it.

The NUMA nodes are files that the kubelet finds in the place of the machine's. Containers can use
the first one alone: the kernel knows no other.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from stromboli.client.errors import NotFoundError
from stromboli.shared import keys
from stromboli.shared.messages import node_topology
from stromboli.testkit.doubles import recorded_machines
from stromboli.testkit.parts.kubelets import NODE_CPUS, KubeletOptions
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_agent, kubelet_system
from tests.e2e.support.kubelet_system import FOREVER, KubeletSystem, job, shell
from tests.e2e.support.rest_user import Document

CPUS = os.cpu_count() or 1
pytestmark = [
    pytest.mark.kubelet,
    pytest.mark.usefixtures("kubelet_round"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(CPUS < 2, reason="two NUMA nodes have a CPU each"),
]
NODE = "kubelet-0"
SINGLE_NUMA_NODE = "single-numa-node"
MIB = 2**20
WHOLE_MIB, RESERVED_MIB = 1024, 768
"""Of each NUMA node. The reservations of all NUMA nodes must be that of the node."""
CONFIGURATION = """
actions: enqueue, allocate, backfill
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: numa-aware, arguments: {weight: 10}}, {name: nodeorder}]
"""


class MemoryNode:
    """The node, whose agent runs."""

    def __init__(self, system: KubeletSystem) -> None:
        self.system, self.user = system, system.user
        self._state = system.node(NODE).folder / "memory_manager_state"

    def topology(self) -> node_topology.NodeTopology:
        """The hardware as the agent last reported it."""
        return self.system.topology(NODE).topology

    def is_known(self) -> bool:
        """Whether the agent has reported the memory that the kubelet can assign."""
        with contextlib.suppress(NotFoundError):
            numa_nodes = self.topology().numa_nodes
            return all(each.allocatable_memory_bytes is not None for each in numa_nodes)
        return False

    def reported(self) -> dict[str, list[tuple[int, tuple[int, ...]]]]:
        """Pod -> bytes and NUMA nodes of its memory, as the agent has reported them."""
        return {
            each.pod: [(block.size_bytes, block.numa_nodes) for block in each.memory]
            for each in self.topology().exclusive_allocations
            if each.memory
        }

    def checkpoint(self) -> dict[str, list[tuple[int, tuple[int, ...]]]]:
        """Uid of a pod -> bytes and NUMA nodes, in the kubelet's own file."""
        entries: dict[str, Any] = json.loads(self._state.read_text()).get("entries") or {}
        return {
            uid: [(block["size"], tuple(block["numaAffinity"])) for block in containers["main"]]
            for uid, containers in entries.items()
        }

    def placed(self, name: str) -> list[str]:
        """The nodes of a job's pods that have one."""
        nodes = (pod["spec"].get("nodeName") for pod in self.user.pods(name))
        return [node for node in nodes if node]


@pytest.fixture(scope="module")
def node(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MemoryNode]:
    state = tmp_path_factory.mktemp("kubelets")
    described = recorded_machines.Machine(
        cells_per_socket=2, cores=CPUS // 2, threads=1, memory_mib=WHOLE_MIB
    )
    sysfs, driver = recorded_machines.write(described, state / "machine")
    configuration = state / "scheduler.yaml"
    configuration.write_text(CONFIGURATION)
    limits = {"memory": f"{RESERVED_MIB}Mi"}
    options = KubeletOptions(
        settings={
            "cpuManagerPolicy": "static",
            "memoryManagerPolicy": "Static",
            "topologyManagerPolicy": SINGLE_NUMA_NODE,
            "systemReserved": {"cpu": str(CPUS - NODE_CPUS), "memory": f"{2 * RESERVED_MIB}Mi"},
            "reservedMemory": [{"numaNode": numa_node, "limits": limits} for numa_node in (0, 1)],
        },
        numa_nodes=sysfs / "devices/system/node",
    )
    environment = {
        **kubelet_agent.ENVIRONMENT,
        "STROM_SCHEDULER_CONFIGURATION": str(configuration),
    }
    with contextlib.ExitStack() as stack:
        system = stack.enter_context(
            kubelet_system.running(state, real_tools, environment, options)
        )
        agent = kubelet_agent.agent_of(system, NODE, state, sysfs, driver)
        stack.enter_context(system.part(agent))
        memory_node = MemoryNode(system)
        system.user.until(memory_node.is_known, bool)
        yield memory_node


@pytest.fixture(autouse=True)
def only_jobs_of_the_test(node: MemoryNode) -> Iterator[None]:
    """Afterwards the kubelet has all memory back."""
    yield
    for name in node.user.names():
        node.user.delete(name)
    node.user.until(node.reported, lambda found: not found)


def guaranteed(name: str, memory: str) -> Document:
    """A job of one pod on the node of the agent."""
    amounts = {"cpu": "100m", "memory": memory}
    container = {"resources": {"requests": amounts, "limits": amounts}}
    pod = {"terminationGracePeriodSeconds": 0, "nodeSelector": {"kubernetes.io/hostname": NODE}}
    return job(name, shell(FOREVER), container=container, pod=pod)


def test_the_report_has_the_memory_that_the_kubelet_can_assign(node: MemoryNode) -> None:
    reported = node.topology()
    assert reported.kubelet.memory_policy == "Static"
    assert [(each.memory_bytes, each.allocatable_memory_bytes) for each in reported.numa_nodes] == [
        (WHOLE_MIB * MIB, (WHOLE_MIB - RESERVED_MIB) * MIB)
    ] * 2


def test_decision_container_kubelet_and_report_agree_on_the_numa_node(node: MemoryNode) -> None:
    node.user.submit(guaranteed("fits", "200Mi"))
    (pod,) = node.user.until(lambda: node.system.running("fits"), bool)
    decision = json.loads(pod["metadata"]["annotations"][keys.TOPOLOGY_DECISION])
    assert decision == {"numa": {"0": {"memory": str(200 * MIB)}}}
    status = node.system.kubectl("exec", "fits-work-0", "--", "cat", "/proc/self/status")
    assert "Mems_allowed_list:\t0" in status.splitlines()
    assert node.checkpoint() == {pod["metadata"]["uid"]: [(200 * MIB, (0,))]}
    node.user.until(node.reported, lambda found: found == {"fits-work-0": [(200 * MIB, (0,))]})


def test_memory_that_no_numa_node_has_is_not_sent_to_the_kubelet(node: MemoryNode) -> None:
    """The node has room by number, and each NUMA node is larger, but most of it is reserved: the
    kubelet would reject the pod with TopologyAffinityError, and the job would fail."""
    node.user.submit(guaranteed("larger", "300Mi"))
    node.user.until(
        lambda: node.system.strom("explain", "larger"), lambda text: "topology" in text.lower()
    )
    assert node.placed("larger") == []
    node.user.delete("larger")
    node.user.submit(guaranteed("smaller", "256Mi"))
    node.user.until(lambda: node.system.running("smaller"), bool)
