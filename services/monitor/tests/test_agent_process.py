"""The agent as a process: what it prints of a recording, and what it does not import."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import agent as bench
from stromboli.shared import decoding
from stromboli.shared.messages import node_topology
from stromboli.testkit.doubles import recorded_machines

AGENT = [sys.executable, "-m", "stromboli.monitor.agent"]


def test_a_recording_is_read_once_and_printed(tmp_path: Path) -> None:
    sys_, nvml = recorded_machines.write(recorded_machines.eight_gpus_switched(), tmp_path)
    called = [*AGENT, "--once", "--print", "--sysfs", str(sys_), "--nvml", str(nvml)]
    done = subprocess.run(called, capture_output=True, check=True)
    topology = decoding.from_json(done.stdout, node_topology.NodeTopology)
    assert len(topology.gpus) == 8
    assert len(topology.cores) == 32


def test_this_machine_is_read_whatever_it_is() -> None:
    done = subprocess.run([*AGENT, "--once", "--print"], capture_output=True, check=True)
    topology = decoding.from_json(done.stdout, node_topology.NodeTopology)
    assert topology.cores
    assert topology.numa_nodes


def test_without_a_node_name_the_agent_reports_the_setting() -> None:
    done = subprocess.run([*AGENT, "--once"], capture_output=True, check=False, env={})
    assert done.returncode == 2
    assert b"STROM_AGENT_NODE is not set" in done.stderr


@pytest.mark.parametrize("extra", ["", "stromboli.monitor.agent.podresources, pynvml"])
def test_it_has_no_kubernetes_client_no_kafka_and_no_event_loop(extra: str) -> None:
    heavy = "kubernetes_asyncio aiokafka aiohttp httpx litestar uvloop structlog opentelemetry"
    code = f"import sys, stromboli.monitor.agent.__main__{', ' + extra if extra else ''}\n"
    code += f"print([it for it in '{heavy}'.split() if it in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_the_agent_stays_within_its_memory_limit() -> None:
    """All of its pages, on a large node with NVML's library loaded."""
    found = bench.measured(2.0)
    assert found["pss_mib"] <= found["rss_mib"] <= bench.MOST_MIB
