"""From a machine's files to pods on it: what the agent reads decides what they get."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.cli.render.nodes import node_layout
from stromboli.client import blocking, server
from stromboli.client.operations import calls
from stromboli.embedded import system
from stromboli.embedded.nodes import simulated
from stromboli.monitor.agent import __main__ as agent
from stromboli.monitor.agent import machine, reporting
from stromboli.monitor.agent.kubelet import Kubelet
from stromboli.monitor.agent.settings import AgentSettings
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.formats import cpu_lists
from stromboli.testkit.doubles import fake_kubelet, recorded_machines

NODE = "node-00"
WITHIN_S, POLL_EVERY_S = 120.0, 0.05
CONFIGURATION = """
actions: enqueue, allocate
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: numa-aware, arguments: {weight: 10}}, {name: nodeorder}]
"""
KUBELET = """
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0,32"
"""
GPU = "nvidia.com/gpu"


class Node:
    """A system of one node, with an agent that reads a recorded machine and a fake kubelet."""

    def __init__(
        self, made: system.System, of: agent.Agent, fake: fake_kubelet.FakeKubelet
    ) -> None:
        self.system, self.kubelet = made, fake
        self._agent = of
        self._now_s = 0.0

    async def look(self) -> None:
        """The agent looks, a while later."""
        self._now_s += 100.0
        await asyncio.to_thread(self._agent.step, self._now_s)

    async def submit(self, name: str, cpu: int, gpus: int) -> None:
        amounts = {"cpu": str(cpu), "memory": "1Gi", GPU: str(gpus)}
        resources = {"requests": amounts, "limits": amounts}
        container = {"name": "c", "image": "busybox", "resources": resources}
        template = {
            "metadata": {"annotations": {keys.RUN_SECONDS: "600"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        task = {
            "name": "t",
            "replicas": 1,
            "template": template,
            "topologyPolicy": "single-numa-node",
        }
        spec = {"minAvailable": 1, "queue": "default", "tasks": [task]}
        async with httpx.AsyncClient(**server.httpx_options(self.system.url, 30)) as http:
            path = "/v1/namespaces/default/jobs"
            answer = await http.post(path, json={"metadata": {"name": name}, "spec": spec})
        answer.raise_for_status()

    async def numa(self, allocatable: str) -> dict[str, Any]:
        """The node's Numatopology, when this number of CPUs are free in it."""
        return await self._until(
            kinds.NUMA_TOPOLOGIES,
            "",
            NODE,
            lambda it: it["spec"]["numares"]["cpu"]["allocatable"] == allocatable,
        )

    async def pod(self, name: str) -> dict[str, Any]:
        """A pod, once it has a node."""
        return await self._until(
            kinds.PODS, "default", name, lambda it: bool(it["spec"].get("nodeName"))
        )

    async def _until(self, kind: Any, namespace: str, name: str, is_so: Any) -> dict[str, Any]:
        async with asyncio.timeout(WITHIN_S):
            while True:
                for raw in (await self.system.cluster.list(kind, namespace)).items:
                    found: dict[str, Any] = json.loads(raw)
                    if found["metadata"]["name"] == name and is_so(found):
                        return found
                await asyncio.sleep(POLL_EVERY_S)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    sys, nvml = recorded_machines.write(recorded_machines.eight_gpus_switched(), tmp_path)
    folder = tmp_path / "kubelet"
    recorded_machines.put(folder / "config.yaml", KUBELET)
    recorded_machines.put(folder / "cpu_manager_state", '{"policyName": "static"}')
    scheduler = tmp_path / "scheduler.yaml"
    scheduler.write_text(CONFIGURATION)
    options = system.Options(
        state=tmp_path / "state",
        nodes=tuple(simulated.node_documents(1, cpu="64", memory="128Gi", gpus=8)),
        scheduler=SchedulerSettings(configuration=str(scheduler)),
    )
    fake = fake_kubelet.FakeKubelet()
    fake.allocatable = [cpu for cpu in range(64) if cpu not in (0, 32)]
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(fake_kubelet.serve(fake, folder))
        made = await stack.enter_async_context(system.run_system(options))
        await made.ready()
        read = machine.Machine(sys, machine.recorded(nvml), Kubelet(folder))
        token = tmp_path / "token"
        token.write_text(made.token)
        monitor = reporting.MonitorClient(made.agents_url, NODE, str(token))
        yield Node(made, agent.Agent(read, monitor, AgentSettings()), fake)


async def test_a_recorded_machine_gives_a_pod_cpus_and_gpus_of_one_numa_node(
    node: Node,
) -> None:
    """They travel with the bind; what the kubelet then gives is free no more, and drawn."""
    await node.look()
    topology = await node.numa("0-63")
    assert topology["spec"]["policies"]["TopologyManagerPolicy"] == "single-numa-node"

    await node.submit("train", cpu=12, gpus=4)
    pod = await node.pod("train-t-0")
    notes = pod["metadata"]["annotations"]
    cpus = cpu_lists.parsed(json.loads(notes[keys.CPUS])["c"])
    gpus = json.loads(notes[keys.DEVICES])["c"][GPU]
    cells = {cpu % 32 // 16 for cpu in cpus} | {
        int(uuid.removeprefix("GPU-")) // 4 for uuid in gpus
    }
    assert (len(cpus), len(gpus), len(cells)) == (12, 4, 1)
    assert not cpus & {0, 32}, "reserved"
    assert {(cpu + 32) % 64 for cpu in cpus} == cpus, "whole cores"

    devices = {GPU: tuple(gpus)}
    container_allocation = fake_kubelet.ContainerAllocation(
        pod="train-t-0", cpus=tuple(sorted(cpus)), devices=devices
    )
    node.kubelet.given = (container_allocation,)
    await node.look()
    await node.numa(cpu_lists.written(frozenset(range(64)) - cpus))

    def drawn() -> node_layout.NodeLayout:
        with blocking.Client(node.system.url) as client:
            seen = client.send(calls.node_topology(NODE))
        return node_layout.node_layout(seen, datetime.now(UTC))

    layout = await asyncio.to_thread(drawn)
    assert [holder.name for holder in layout.holders] == ["default/train-t-0"]
    assert "".join(place.letters for place in layout.gpus) == "AAAA"
