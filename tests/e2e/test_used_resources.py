"""What a job has used: the launcher measures it, the monitor publishes it, the history keeps it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.client.operations import accounting_calls
from stromboli.embedded import system
from stromboli.embedded.nodes import simulated
from stromboli.embedded.processes import machine
from stromboli.monitor.agent import reporting
from stromboli.monitor.agent.pod_usage import PodUsageReporter
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.api.views import accounting
from stromboli.testkit import records
from stromboli.testkit.doubles.recorded_machines import put

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")

POLL_S = 0.05
MIB = 2**20
BURN = """
import time
held = bytearray(50 << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
while time.process_time() < 1.0:
    pass
"""


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[system.System]:
    nodes = machine.node_documents(1, machine.resources(), cpu="2", memory="1Gi")
    options = system.Options(
        state=tmp_path / "state", process_nodes=tuple(nodes), nodes=tuple(SIMULATED)
    )
    async with system.run_system(options) as made:
        async with asyncio.timeout(records.DEADLINE_S):
            await made.ready()
        yield made


SIMULATED_NODES = {keys.RUNNER: simulated.RUNNER}
SIMULATED = simulated.node_documents(2, cpu="4", memory="8Gi")
PROCESS_NODE = {keys.RUNNER: machine.RUNNER}


async def submit(running: system.System, name: str, *command: str, **fields: Any) -> None:
    container = {
        "name": "c",
        "image": "none",
        "command": list(command),
        "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container], "nodeSelector": PROCESS_NODE}
    pod |= fields
    template = {"metadata": {"annotations": {keys.RUN_SECONDS: "3600"}}, "spec": pod}
    task = {"name": "t", "replicas": 1, "template": template}
    async with running.client() as http:
        answer = await http.post(
            "/v1/namespaces/default/jobs",
            json={"metadata": {"name": name}, "spec": {"minAvailable": 1, "tasks": [task]}},
        )
        assert answer.is_success, answer.text


async def attempt(
    running: system.System, job: str, is_wanted: Callable[[accounting.Attempt], bool]
) -> accounting.Attempt:
    """The only attempt of a job, once it is as wanted."""
    call = accounting_calls.attempts(accounting.AttemptQuery(namespace="default", job=job))
    async with running.client() as http, asyncio.timeout(records.DEADLINE_S):
        while True:
            answer = await http.request(call.method, call.path, params=call.query)
            if answer.is_success:
                attempts = call.read(answer.content).attempts
                if len(attempts) == 1 and is_wanted(attempts[0]):
                    return attempts[0]
            await asyncio.sleep(POLL_S)


def is_measured(attempt: accounting.Attempt) -> bool:
    return attempt.ended_at is not None and attempt.used_cpu_seconds is not None


async def test_an_attempt_has_the_cpu_time_and_the_memory_that_it_used(
    running: system.System,
) -> None:
    """The launcher reads both from the kernel after the last process has ended, so they are exact
    but for the start of the interpreter."""
    await submit(running, "burn", sys.executable, "-c", BURN)
    found = await attempt(running, "burn", is_measured)
    assert found.used_cpu_seconds is not None
    assert found.max_memory_bytes is not None
    assert 1.0 <= found.used_cpu_seconds <= 1.5
    assert 50 * MIB <= found.max_memory_bytes <= 80 * MIB
    assert found.used_gpu_seconds is None
    now = datetime.now(UTC)
    query = accounting.UsageQuery(
        since=now - timedelta(hours=1), until=now + timedelta(hours=1), namespace="default"
    )
    call = accounting_calls.usage(query)
    async with running.client() as http:
        answer = await http.request(call.method, call.path, params=call.query)
    (used,) = call.read(answer.raise_for_status().content).usage
    assert used.used_cpu_seconds == pytest.approx(found.used_cpu_seconds)
    assert used.measured_cpu_seconds == pytest.approx(found.cpu_seconds)


async def test_a_pod_that_is_shorter_than_any_interval_is_measured(running: system.System) -> None:
    await submit(running, "short", "true")
    found = await attempt(running, "short", is_measured)
    assert found.used_cpu_seconds is not None
    assert found.used_cpu_seconds < 1
    assert found.max_memory_bytes


async def test_containers_and_their_restarts_add_up(running: system.System) -> None:
    """The first run fails after half a second of CPU, the second one succeeds after as much."""
    script = (
        "import os, time\n"
        "while time.process_time() < 0.5: pass\n"
        "again = os.path.exists('/tmp/work/again')\n"
        "open('/tmp/work/again', 'w').close()\n"
        "raise SystemExit(0 if again else 1)"
    )
    container = {
        "name": "c",
        "image": "none",
        "command": [sys.executable, "-c", script],
        "volumeMounts": [{"name": "work", "mountPath": "/tmp/work"}],
    }
    more = {"restartPolicy": "OnFailure", "volumes": [{"name": "work", "emptyDir": {}}]}
    await submit(running, "again", "true", containers=[container], **more)
    found = await attempt(running, "again", is_measured)
    assert found.used_cpu_seconds is not None
    assert 1.0 <= found.used_cpu_seconds <= 1.6


def report(running: system.System, node: str, uid: str, folder: Path, cpu_s: int) -> None:
    """The agent of a node reads a pod's cgroup, and stops."""
    (folder / "token").write_text(running.token)
    root = folder / node
    pod = root / f"kubepods/burstable/pod{uid}"
    put(root / "cgroup.controllers", "cpu memory")
    put(pod / "cpu.stat", f"usage_usec {cpu_s * 1_000_000}")
    put(pod / "memory.current", 70 * MIB)
    put(pod / "memory.stat", f"inactive_file {10 * MIB}")
    monitor = reporting.MonitorClient(running.agents_url, node, str(folder / "token"))
    reporter = PodUsageReporter(root, monitor, lambda: (), lambda _: {})
    reporter.step(0.0)
    reporter.close(1.0)


async def test_the_agent_of_its_node_measures_a_pod_and_no_other_one(
    running: system.System, tmp_path: Path
) -> None:
    """A simulated node with a recorded cgroup of the pod. The agent of the other node claims to
    have it, too."""
    await submit(running, "placed", "true", nodeSelector=SIMULATED_NODES)
    placed = await attempt(running, "placed", lambda it: it.state == "Running")
    for node in (kinds.metadata_of(msgspec.json.encode(it)).name for it in SIMULATED):
        is_own = node == placed.node
        await asyncio.to_thread(
            report, running, node, placed.pod_uid, tmp_path, 5 if is_own else 10**6
        )
    found = await attempt(running, "placed", lambda it: it.used_cpu_seconds is not None)
    assert (found.used_cpu_seconds, found.max_memory_bytes) == (5.0, 60 * MIB)
