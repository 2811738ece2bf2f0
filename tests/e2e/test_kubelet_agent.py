"""The node agent as its chart installs it: a DaemonSet whose containers read the PodResources API
of real kubelets and report to the monitor.

The DaemonSet's pods are bound by Kubernetes' own scheduler. Each kubelet and the agent in its
container find two NUMA nodes in files that are mounted in place of the machine's.
"""

import contextlib
import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.client.errors import ResponseError
from stromboli.shared import envelope, keys, topics
from stromboli.shared.bus import kafka
from stromboli.shared.messages.node_topology import ExclusiveAllocation, NodeTopology
from stromboli.shared.messages.node_usage import PodUsage, PodUsageMeasured
from stromboli.testkit import records
from stromboli.testkit.doubles import recorded_machines
from stromboli.testkit.parts import monitor_image
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.kubernetes import Scheduler
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.charts.support import helm
from tests.e2e.support import kubelet_system
from tests.e2e.support.kubelet_system import FOREVER, NODES, KubeletSystem, job, shell
from tests.e2e.support.rest_user import Document

CPUS = os.cpu_count() or 1
pytestmark = [
    pytest.mark.kubelet,
    pytest.mark.usefixtures("kubelet_round"),
    pytest.mark.timeout(420),
    pytest.mark.skipif(CPUS < 2, reason="two NUMA nodes have a CPU each"),
]
NODE = "kubelet-0"
NAMESPACE = "batch"
SINGLE_NUMA_NODE = "single-numa-node"
API = "the kubelet's PodResources API"
VALUES = (
    *("--set", "agent.settings.read_every_s=1", "--set", "agent.settings.alive_every_s=1"),
    *("--set", "global.image.registry=registry.example.com/stromboli"),
)
BESIDE_AGENT_MILLICPU = 100
"""A node has this much beside the CPU that jobs get exclusively."""
CONFIGURATION = """
actions: enqueue, allocate, backfill
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: numa-aware, arguments: {weight: 10}}, {name: nodeorder}]
"""


class AgentNodes:
    """The system with the DaemonSet."""

    def __init__(self, system: KubeletSystem, name: str) -> None:
        self.system, self.name = system, name
        self.user = system.user

    def daemon_set(self) -> Document:
        """Its status."""
        text = self.system.kubectl("get", "-n", NAMESPACE, "ds", self.name, "-o", "json")
        status: Document = json.loads(text)["status"]
        return status

    def pods(self) -> dict[str, Document]:
        """Node -> its agent's pod."""
        text = self.system.kubectl("get", "-n", NAMESPACE, "pods", "-o", "json")
        return {pod["spec"]["nodeName"]: pod for pod in json.loads(text)["items"]}

    def topology(self, node: str = NODE) -> NodeTopology:
        """A node as its agent last reported it; nothing before its first report."""
        try:
            return self.system.topology(node).topology
        except ResponseError:
            return NodeTopology()

    def held(self) -> dict[str, ExclusiveAllocation]:
        """Pod -> what it holds on its node, as the agents have reported."""
        return {
            each.pod: each
            for node in range(NODES)
            for each in self.topology(f"kubelet-{node}").exclusive_allocations
        }

    def used(self) -> dict[str, tuple[str, PodUsage]]:
        """Uid of a pod -> the node whose agent reported it last with the most CPU time, and what
        it has used. The agents of all nodes see the cgroups of this machine."""
        return self.system.run(self._used())

    async def _used(self) -> dict[str, tuple[str, PodUsage]]:
        found: dict[str, tuple[str, PodUsage]] = {}
        async with kafka.KafkaBus(kafka.KafkaSettings(bootstrap=(self.system.kafka,))) as bus:
            for record in (await records.read(bus, topics.POD_USAGE))[0]:
                message = envelope.decode(record)
                if isinstance(message, PodUsageMeasured):
                    found |= {it.pod_uid: (message.node, it) for it in message.pods}
        return found

    def failed(self) -> list[str]:
        """What the agent of NODE could not read."""
        return [each.what for each in self.topology().read_failures]

    def allowed_cpus(self, pod: str) -> str:
        """The CPUs on which the kernel lets a container run."""
        status = self.system.kubectl("exec", pod, "--", "cat", "/proc/self/status")
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        return lines["Cpus_allowed_list"]


@pytest.fixture(scope="module")
def chart(real_tools: Tools) -> list[Document]:
    """The objects of the monitor's chart."""
    return helm.rendered("monitor", *helm.BROKERS, *VALUES)


@pytest.fixture(scope="module")
def agents(
    real_tools: Tools,
    kubelet_tools: KubeletTools,
    chart: list[Document],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AgentNodes]:
    """Ready agents on all nodes."""
    state = tmp_path_factory.mktemp("kubelets")
    configuration = state / "scheduler.yaml"
    configuration.write_text(CONFIGURATION)
    layer = state / "monitor.tar"
    monitor_image.write_layer(helm.ROOT, layer)
    daemon_set = helm.the_only(chart, "DaemonSet")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    described = recorded_machines.Machine(cells_per_socket=2, cores=CPUS // 2, threads=1)
    sysfs, _ = recorded_machines.write(described, state / "machine")
    kept = (CPUS - 1) * 1000 - BESIDE_AGENT_MILLICPU
    options = KubeletOptions(
        images={container["image"]: (Path(kubelet_tools.mpi_image), layer)},
        settings={
            "cpuManagerPolicy": "static",
            "topologyManagerPolicy": SINGLE_NUMA_NODE,
            "systemReserved": {"cpu": f"{kept}m"},
        },
        numa_nodes=sysfs / "devices/system/node",
    )
    environment = {
        "STROM_SCHEDULER_CONFIGURATION": str(configuration),
        **helm.agents_account(chart),
    }
    with contextlib.ExitStack() as stack:
        system = stack.enter_context(
            kubelet_system.running(
                state, real_tools, environment, options, ("daemonset-controller",)
            )
        )
        binder = Scheduler(kubelet_tools.scheduler, state / "kube-scheduler", system.server)
        stack.enter_context(system.part(binder))
        # The Service of the chart leads to the monitor's pods; here it is a process of the machine.
        (address,) = (it for it in container["env"] if it["name"] == "STROM_AGENT_MONITOR")
        address["value"] = f"http://{system.network.gateway}:{system.agents_port}"
        account = helm.the_only(chart, "ServiceAccount", "-agent")
        system.kubectl("create", "namespace", NAMESPACE)
        for document in (account, daemon_set):
            file = state / "object.json"
            file.write_text(json.dumps(document))
            system.kubectl("create", f"--filename={file}")
        agent_nodes = AgentNodes(system, daemon_set["metadata"]["name"])
        system.user.until(agent_nodes.daemon_set, lambda it: it.get("numberReady") == NODES)
        yield agent_nodes


@pytest.fixture(autouse=True)
def only_jobs_of_the_test(agents: AgentNodes) -> Iterator[None]:
    """Afterwards the kubelets have all CPUs back."""
    yield
    for name in agents.user.names():
        agents.user.delete(name)
    agents.user.until(agents.held, lambda found: not found)


def whole_cpu(name: str, pods: int = 1) -> Document:
    """A job whose pods have a CPU each exclusively."""
    amounts = {"cpu": "1", "memory": "16Mi"}
    container = {"resources": {"requests": amounts, "limits": amounts}}
    brief = {"terminationGracePeriodSeconds": 0}
    made = job(name, shell(FOREVER), pods=pods, container=container, pod=brief)
    made["spec"]["tasks"][0]["topologyPolicy"] = SINGLE_NUMA_NODE
    return made


def test_each_node_has_an_agent_whose_report_has_its_topology(agents: AgentNodes) -> None:
    """NUMA nodes, the kubelet's policies from its own file, and no failure to read the kubelet."""
    assert set(agents.pods()) == {f"kubelet-{number}" for number in range(NODES)}
    for node in agents.pods():
        found = agents.user.until(
            functools.partial(agents.topology, node), lambda it: it.numa_nodes
        )
        assert [it.id for it in found.numa_nodes] == [0, 1]
        assert found.kubelet.cpu_policy == "static"
        assert found.kubelet.topology_policy == SINGLE_NUMA_NODE
        assert not [it for it in found.read_failures if "kubelet" in it.what]


def test_decision_container_and_report_have_the_same_exclusive_cpus(agents: AgentNodes) -> None:
    """A gang with a CPU on each node: the scheduler's choice from the reports, the kernel's
    affinity of the container, and the kubelet's answer to the agent."""
    agents.user.until(agents.topology, lambda it: it.numa_nodes)
    agents.user.submit(whole_cpu("exclusive", NODES))
    pods = agents.user.until(
        lambda: agents.system.running("exclusive"), lambda found: len(found) == NODES
    )
    assert {pod["spec"]["nodeName"] for pod in pods} == set(agents.pods())
    held = agents.user.until(agents.held, lambda found: len(found) == NODES)
    for pod in pods:
        name = pod["metadata"]["name"]
        decided = json.loads(pod["metadata"]["annotations"][keys.CPUS])["main"]
        assert decided == agents.allowed_cpus(name) == held[name].cpus == str(CPUS - 1)


def test_cpus_of_ended_containers_are_reported_free_and_given_again(agents: AgentNodes) -> None:
    agents.user.until(agents.topology, lambda it: it.numa_nodes)
    for name in ("first", "second"):
        agents.user.submit(whole_cpu(name, NODES))
        running = functools.partial(agents.system.running, name)
        agents.user.until(running, lambda pods: len(pods) == NODES)
        agents.user.until(agents.held, lambda found: len(found) == NODES)
        agents.user.delete(name)
        agents.user.until(agents.held, lambda found: not found)


def test_an_agent_reads_the_new_socket_of_a_restarted_kubelet(agents: AgentNodes) -> None:
    """Its container runs on, with the folder of the socket mounted."""
    before = agents.pods()[NODE]["metadata"]["uid"]
    agents.user.until(agents.topology, lambda it: it.numa_nodes)
    agents.system.kill_kubelet(NODE)
    agents.user.until(agents.failed, lambda found: API in found)
    agents.system.restart_kubelet(NODE)
    agents.user.until(agents.failed, lambda found: API not in found)
    agents.user.submit(whole_cpu("after", NODES))
    agents.user.until(agents.held, lambda found: len(found) == NODES)
    (pod,) = (it for it in agents.pods().values() if it["spec"]["nodeName"] == NODE)
    assert pod["metadata"]["uid"] == before


def test_the_agent_of_a_new_pod_reports_with_its_own_token(agents: AgentNodes) -> None:
    """The token of the deleted pod is void: each is bound to its pod."""
    old = agents.pods()[NODE]["metadata"]
    agents.system.kubectl("delete", "pod", "-n", NAMESPACE, old["name"])
    agents.user.until(
        agents.pods, lambda found: NODE in found and found[NODE]["metadata"]["uid"] != old["uid"]
    )
    agents.user.until(agents.daemon_set, lambda it: it.get("numberReady") == NODES)
    agents.user.submit(whole_cpu("new-token", NODES))
    agents.user.until(agents.held, lambda found: len(found) == NODES)


def test_what_a_container_used_is_measured_in_its_cgroup(agents: AgentNodes) -> None:
    """A young pod is read each second, and a loop of six seconds uses a quarter of a core at least,
    however many other processes there are."""
    script = "x=$(head -c 40000000 /dev/zero | tr '\\0' x); timeout 6 sh -c 'while :; do :; done'"
    agents.user.submit(job("burn", shell(f"{script}; sleep 3; exit 0")))
    (pod,) = agents.user.until(lambda: agents.system.running("burn"), lambda found: len(found) == 1)
    uid = pod["metadata"]["uid"]
    used = agents.user.until(agents.used, lambda found: uid in found)[uid][1]
    assert used.cpu_ms >= 1500
    assert used.max_memory_bytes >= 40_000_000
