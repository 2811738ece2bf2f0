"""Jobs avoid a node with a loaded disk: the agent's counters, the monitor, the log, the scheduler.

Process nodes share the disks of this machine, so each agent reads a recorded ``/sys`` of its own.
Everything after that is as on a cluster.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from stromboli.client.operations import node_calls
from stromboli.embedded import system
from stromboli.embedded.processes import machine
from stromboli.monitor.agent import reporting
from stromboli.monitor.agent.usage import UsageReporter
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared.messages import node_usage
from stromboli.testkit import records
from stromboli.testkit.doubles import recorded_machines

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")

CONFIGURATION = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}]
- plugins:
  - name: usage
    arguments: {disk.weight: 1}
"""
POLL_S = 0.05


def write_stat(sys_: Path, busy_ms: int) -> None:
    """A machine whose only disk was busy for this long."""
    recorded_machines.put(sys_ / "block/sda/stat", f"1 0 8 5 1 0 8 5 0 {busy_ms} 10")
    recorded_machines.put(sys_ / "block/sda/device/model", "disk")


def report(url: str, node: str, folder: Path, token: Path, busy_ms: int) -> None:
    """The agent of a node takes two samples, 20 s apart on its clock."""
    reporter = UsageReporter(folder / node, reporting.MonitorClient(url, node, str(token)), 40.0)
    write_stat(folder / node, 0)
    reporter.step(0.0)
    write_stat(folder / node, busy_ms)
    reporter.step(20.0)


async def placed(running: system.System, name: str) -> str:
    """Submit a job of one pod, which stays small; returns its node once it has one."""
    container = {
        "name": "c",
        "image": "none",
        "command": ["true"],
        "resources": {"requests": {"cpu": "100m", "memory": "32Mi"}},
    }
    task: dict[str, Any] = {
        "name": "t",
        "replicas": 1,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    path = "/v1/namespaces/default/jobs"
    async with running.client() as http, asyncio.timeout(records.DEADLINE_S):
        spec = {"minAvailable": 1, "tasks": [task]}
        answer = await http.post(path, json={"metadata": {"name": name}, "spec": spec})
        assert answer.is_success, answer.text
        while True:
            pods = (await http.get(f"{path}/{name}/pods")).raise_for_status().json()["items"]
            if pods and pods[0]["spec"].get("nodeName"):
                return str(pods[0]["spec"]["nodeName"])
            await asyncio.sleep(POLL_S)


async def loads(running: system.System, node: str) -> node_usage.NodeLoad:
    """The loads of a node on REST, once they are there."""
    async with running.client() as http, asyncio.timeout(records.DEADLINE_S):
        while True:
            answer = await http.get(f"/v1/nodes/{node}/usage")
            if answer.is_success:
                return node_calls.usage(node).read(answer.content).usage
            await asyncio.sleep(POLL_S)


async def test_jobs_avoid_a_process_node_whose_disk_is_loaded(tmp_path: Path) -> None:
    configuration, token = tmp_path / "scheduler.conf", tmp_path / "token"
    configuration.write_text(CONFIGURATION)
    options = system.Options(
        state=tmp_path / "state",
        process_nodes=tuple(machine.node_documents(2, machine.resources(), cpu="1", memory="1Gi")),
        scheduler=SchedulerSettings(configuration=str(configuration)),
    )
    async with system.run_system(options) as running:
        async with asyncio.timeout(records.DEADLINE_S):
            await running.ready()
        token.write_text(running.token)
        loaded = await placed(running, "before")
        for node in ("process-00", "process-01"):
            busy_ms = 19_000 if node == loaded else 1_000
            await asyncio.to_thread(
                report, running.agents_url, node, tmp_path / "sys", token, busy_ms
            )
            device_load = (await loads(running, node)).disk
            assert device_load == node_usage.DeviceLoad(busiest="sda", percent=busy_ms // 200)
        for at in range(3):
            assert await placed(running, f"after-{at}") != loaded
