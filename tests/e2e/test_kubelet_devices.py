"""GPUs of a device plugin on a real kubelet, and the node agent that reports who holds them.

The devices do not exist; the protocol between plugin and kubelet, the kubelet's choice, its
topology manager and its checkpoint are real. One node has four of them, two on each of two NUMA
nodes. The NUMA nodes are files that the kubelet finds in the place of the machine's.
"""

import contextlib
import functools
import json
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from stromboli.shared import keys
from stromboli.shared.messages import node_topology
from stromboli.testkit.doubles import device_plugin, recorded_machines
from stromboli.testkit.doubles.device_plugin import DevicePlugin
from stromboli.testkit.parts.kubelets import NODE_CPUS, KubeletOptions
from stromboli.testkit.parts.node_agent import NodeAgent
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import kubelet_agent, kubelet_system
from tests.e2e.support.kubelet_system import FOREVER, KubeletSystem, job, shell
from tests.e2e.support.rest_user import Document

pytestmark = [
    pytest.mark.kubelet,
    pytest.mark.usefixtures("kubelet_round"),
    pytest.mark.timeout(300),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two NUMA nodes have a CPU each"),
]
NODE = "kubelet-0"
GPU = "nvidia.com/gpu"
NUMA_NODES = {"GPU-0": 0, "GPU-1": 0, "GPU-2": 1, "GPU-3": 1}
SINGLE_NUMA_NODE = "single-numa-node"
SILENCE_S = 5
NAMES = ("first", "second", "third")
CONFIGURATION = """
actions: enqueue, allocate, backfill
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: numa-aware, arguments: {weight: 10}}, {name: nodeorder}]
"""
ENVIRONMENT = {
    **kubelet_agent.ENVIRONMENT,
    "STROM_MONITOR_AGENTS_SILENCE_S": str(SILENCE_S),
}


class GpuNode:
    """The node with its plugin and its agent."""

    def __init__(self, system: KubeletSystem, plugin: DevicePlugin, agent: NodeAgent) -> None:
        self.system, self.plugin, self.agent = system, plugin, agent
        self.user = system.user
        self.folder = system.node(NODE).folder

    def topology(self) -> node_topology.NodeTopology:
        """The hardware as the agent last reported it."""
        return self.system.topology(NODE).topology

    def reported(self) -> dict[str, list[str]]:
        """Pod -> its GPUs, as the agent has reported them."""
        return {
            each.pod: sorted(devices.ids)
            for each in self.topology().exclusive_allocations
            for devices in each.devices
            if devices.resource == GPU
        }

    def checkpoint(self) -> dict[str, list[str]]:
        """Uid of a pod -> its GPUs, in the kubelet's own file."""
        path = self.folder / "device-plugins" / "kubelet_internal_checkpoint"
        entries = json.loads(path.read_text())["Data"]["PodDeviceEntries"] or []
        return {
            each["PodUID"]: sorted(chain(*each["DeviceIDs"].values()))
            for each in entries
            if each["ResourceName"] == GPU
        }

    def held(self, job_name: str) -> dict[str, list[str]]:
        """Pod -> its GPUs as its container sees them, of a job's running pods."""
        return {
            name: sorted(
                self.system.kubectl("exec", name, "--", "sh", "-c", SHOW).strip().split(",")
            )
            for name in (pod["metadata"]["name"] for pod in self.system.running(job_name))
        }

    def allocatable(self) -> int:
        """GPUs of the node that are allocatable."""
        node = json.loads(self.system.kubectl("get", "node", NODE, "--output=json"))
        return int(node["status"]["allocatable"].get(GPU, "0"))


SHOW = f'echo "${device_plugin.VARIABLE}"'


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tree as /sys and the GPU driver's answers: this machine's CPUs on two NUMA nodes."""
    cards = recorded_machines.four_gpus_pcie()
    described = recorded_machines.Machine(
        cells_per_socket=2,
        cores=(os.cpu_count() or 2) // 2,
        threads=1,
        gpus=cards.gpus,
        ancestors=cards.ancestors,
    )
    return recorded_machines.write(described, tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def node(
    real_tools: Tools,
    kubelet_tools: KubeletTools,
    machine: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GpuNode]:
    state = tmp_path_factory.mktemp("kubelets")
    sysfs, driver = machine
    configuration = state / "scheduler.yaml"
    configuration.write_text(CONFIGURATION)
    options = KubeletOptions(
        settings={"cpuManagerPolicy": "static", "topologyManagerPolicy": SINGLE_NUMA_NODE},
        numa_nodes=sysfs / "devices/system/node",
    )
    environment = {**ENVIRONMENT, "STROM_SCHEDULER_CONFIGURATION": str(configuration)}
    with contextlib.ExitStack() as stack:
        system = stack.enter_context(
            kubelet_system.running(state, real_tools, environment, options)
        )
        folder = system.node(NODE).folder
        prefer = functools.partial(decided_first, system)
        plugin = DevicePlugin(folder / "device-plugins", GPU, NUMA_NODES, prefer)
        stack.enter_context(plugin)
        agent = kubelet_agent.agent_of(system, NODE, state, sysfs, driver)
        stack.enter_context(system.part(agent))
        gpu_node = GpuNode(system, plugin, agent)
        system.user.until(gpu_node.allocatable, lambda count: count == len(NUMA_NODES))
        yield gpu_node


def decided_first(system: KubeletSystem, available: frozenset[str], size: int) -> frozenset[str]:
    """The devices that a bind decided for a pod of the node: the kubelet does not say for which pod
    it asks, so that pods of equal sizes that start at the same time may get each other's."""
    listed = system.kubectl("get", "pods", f"--field-selector=spec.nodeName={NODE}", "-o", "json")
    chosen = (decided(pod) for pod in json.loads(listed)["items"])
    fitting = (ids for ids in chosen if len(ids) == size and ids <= available)
    return next(fitting, frozenset(sorted(available)[:size]))


def decided(pod: Document) -> frozenset[str]:
    """The GPUs that the scheduler chose for a pod."""
    notes = pod["metadata"].get("annotations", {})
    return frozenset(json.loads(notes.get(keys.DEVICES, "{}")).get("main", {}).get(GPU, ()))


def gpus(count: int, cpu: str = "100m") -> Document:
    """Fields of a container: class Guaranteed."""
    amounts = {"cpu": cpu, "memory": "16Mi", GPU: str(count)}
    return {"resources": {"requests": amounts, "limits": amounts}}


def gpu_job(name: str, count: int, *, pods: int = 1, cpu: str = "100m", **task: Any) -> Document:
    """A job that holds its GPUs until it is deleted."""
    brief = {"terminationGracePeriodSeconds": 0}
    made = job(name, shell(FOREVER), pods=pods, container=gpus(count, cpu), pod=brief)
    made["spec"]["tasks"][0].update(task)
    return made


@pytest.fixture(autouse=True)
def only_jobs_of_the_test(node: GpuNode) -> Iterator[None]:
    """Afterwards the kubelet has all GPUs back."""
    yield
    for name in node.user.names():
        node.user.delete(name)
    node.user.until(node.reported, lambda found: not found)


def test_container_checkpoint_and_report_show_the_same_devices(node: GpuNode) -> None:
    """The agent reads the kubelet's API, so that its report agrees with the kubelet's own file and
    with what the container got."""
    node.user.submit(gpu_job("each", 1, pods=4))
    reported = node.user.until(node.reported, lambda found: len(found) == 4)
    assert sorted(chain(*reported.values())) == sorted(NUMA_NODES)
    pods = node.user.until(lambda: node.system.running("each"), lambda found: len(found) == 4)
    assert {pod["spec"]["nodeName"] for pod in pods} == {NODE}
    assert node.held("each") == reported
    names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
    assert {names[uid]: ids for uid, ids in node.checkpoint().items()} == reported


def test_cpus_and_devices_of_a_numa_node_are_as_decided(node: GpuNode) -> None:
    """The node keeps all CPUs but the last from pods, so that only its NUMA node has an exclusive
    one: scheduler and kubelet come to the same devices independently."""
    last = (os.cpu_count() or 2) - NODE_CPUS
    wanted = gpu_job("aligned", 2, cpu="1", topologyPolicy=SINGLE_NUMA_NODE)
    node.user.submit(wanted)
    (pod,) = node.user.until(lambda: node.system.running("aligned"), bool)
    notes = pod["metadata"]["annotations"]
    assert json.loads(notes[keys.CPUS]) == {"main": str(last)}
    assert decided(pod) == {"GPU-2", "GPU-3"}
    assert node.held("aligned") == {"aligned-work-0": ["GPU-2", "GPU-3"]}
    status = node.system.kubectl("exec", "aligned-work-0", "--", "cat", "/proc/self/status")
    assert f"Cpus_allowed_list:\t{last}" in status.splitlines()
    (held,) = node.user.until(
        lambda: node.topology().exclusive_allocations, lambda found: len(found) == 1
    )
    assert (held.pod, held.cpus) == ("aligned-work-0", str(last))
    assert held.devices[0].numa_nodes == (1,)


def test_a_plugin_that_prefers_the_decided_devices_makes_the_kubelet_follow(node: GpuNode) -> None:
    """The kubelet leaves the choice within a NUMA node to the plugin's preferred allocation."""
    for name in NAMES:
        node.user.submit(gpu_job(name, 1))
        (pod,) = node.user.until(functools.partial(node.system.running, name), bool)
        assert decided(pod)
        assert node.held(name) == {f"{name}-work-0": sorted(decided(pod))}
    after = node.user.until(node.reported, lambda found: len(found) == 3)
    assert after == {pod: ids for name in NAMES for pod, ids in node.held(name).items()}


def test_devices_that_no_numa_node_has_are_not_sent_to_the_kubelet(node: GpuNode) -> None:
    """The kubelet would reject the pod with TopologyAffinityError, and the job would fail."""
    node.user.submit(gpu_job("three", 3))
    shown = node.user.until(
        lambda: node.system.strom("explain", "three"), lambda text: "topology" in text.lower()
    )
    assert node.user.phase("three") == "Pending", shown
    assert not any(pod["spec"].get("nodeName") for pod in node.user.pods("three"))


def test_a_pod_that_an_unhealthy_device_would_misalign_is_not_sent_to_the_kubelet(
    node: GpuNode,
) -> None:
    """Two GPUs are free and healthy, one on each NUMA node: by number there is room."""
    node.user.submit(gpu_job("single", 1))
    ((used,),) = node.user.until(node.reported, bool).values()
    other = sorted(gpu for gpu, place in NUMA_NODES.items() if place != NUMA_NODES[used])
    node.plugin.report_unhealthy(other[0])
    unhealthy = lambda: [gpu.uuid for gpu in node.topology().gpus if gpu.problems]  # noqa: E731
    node.user.until(unhealthy, lambda found: found == [other[0]])
    node.user.until(node.allocatable, lambda count: count == 3)
    node.user.submit(gpu_job("two", 2))
    shown = lambda: node.system.strom("explain", "two")  # noqa: E731 - read until it is shown
    node.user.until(shown, lambda text: "topology" in text.lower())
    assert not any(pod["spec"].get("nodeName") for pod in node.user.pods("two"))
    node.plugin.report_unhealthy()
    node.user.until(lambda: node.system.running("two"), bool)
    assert node.held("two") == {"two-work-0": other}


def test_a_gang_waits_until_a_device_is_healthy_again(node: GpuNode) -> None:
    node.plugin.report_unhealthy("GPU-3")
    node.user.until(node.allocatable, lambda count: count == 3)
    node.user.submit(gpu_job("all", 1, pods=4))
    node.user.until(lambda: node.system.strom("explain", "all"), lambda text: GPU in text)
    assert node.system.running("all") == []
    node.plugin.report_unhealthy()
    node.user.until(lambda: node.system.running("all"), lambda pods: len(pods) == 4)


def test_devices_stay_allocated_while_the_kubelet_is_away_and_after_its_restart(
    node: GpuNode,
) -> None:
    """Containers run on without a kubelet. Until it answers again, what they hold is what it last
    said, and the report names the failure. Later pods get other devices."""
    node.user.submit(gpu_job("stays", 2))
    before = node.user.until(node.reported, bool)
    (pod,) = node.user.until(lambda: node.system.running("stays"), bool)
    node.system.kill_kubelet(NODE)
    unread = lambda: [  # noqa: E731 - read until it appears
        each.what for each in node.topology().read_failures
    ]
    node.user.until(unread, lambda found: "the kubelet's PodResources API" in found)
    assert node.reported() == before
    node.system.restart_kubelet(NODE)
    node.user.until(unread, lambda found: "the kubelet's PodResources API" not in found)
    node.user.until(node.allocatable, lambda count: count == len(NUMA_NODES))
    assert node.reported() == before
    node.user.submit(gpu_job("later", 2))
    after = node.user.until(node.reported, lambda found: len(found) == 2)
    assert after["stays-work-0"] == before["stays-work-0"]
    assert sorted(chain(*after.values())) == sorted(NUMA_NODES)
    (now,) = node.system.running("stays")
    started = node.system.container(pod)["containerID"]
    assert node.system.container(now)["containerID"] == started


def test_an_agent_that_was_killed_reports_what_was_allocated_meanwhile(node: GpuNode) -> None:
    """Its last report is marked as old; a new process reports everything again."""
    node.system.kill(node.agent)
    node.user.submit(gpu_job("meanwhile", 1))
    node.user.until(lambda: node.system.running("meanwhile"), bool)
    record = lambda: node.system.topology(NODE)  # noqa: E731 - read twice
    silent = node.user.until(record, lambda found: found.silent_since)
    assert silent.topology.exclusive_allocations == ()
    node.system.start(node.agent)
    again = node.user.until(record, lambda found: not found.silent_since)
    assert [each.pod for each in again.topology.exclusive_allocations] == ["meanwhile-work-0"]
    assert node.reported() == node.held("meanwhile")
