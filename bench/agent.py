"""The cost of an idle node agent: its memory and its share of a core.

    python -m bench.agent [--seconds 60]

An agent process as on a large node: a recorded machine of 8 GPUs, two sockets and 256 CPUs, NVML's
library loaded, a kubelet's API with 110 pods that hold CPUs and GPUs, a cgroup of each of these, a
monitor that accepts reports. Nothing changes during the measurement. Memory is the maximum of PSS
(shared pages count in part); CPU is user and system time divided by elapsed time, so that it is
valid on a busy machine. The exit status is 1 above 60 MiB or half a per cent.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from stromboli.testkit.doubles import fake_kubelet, recorded_machines

MOST_MIB, MOST_CPU_PERCENT = 60.0, 0.5
PODS = 110
AGENT = (
    "import pynvml, sys; from stromboli.monitor.agent import __main__ as agent; "
    "sys.exit(agent.main(sys.argv[1:]))"
)


class Monitor(BaseHTTPRequestHandler):
    """A monitor that accepts every report."""

    reports = 0

    def do_PUT(self) -> None:
        """Accept a report of the agent."""
        type(self).reports += 1
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_PUT  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Log nothing."""


def pods() -> list[fake_kubelet.ContainerAllocation]:
    """110 pods: eight with exclusive CPUs and a GPU each, the others without exclusive hardware."""
    busy = [
        fake_kubelet.ContainerAllocation(
            pod=f"train-{at}",
            cpus=tuple(range(8 * at, 8 * at + 8)),
            devices={"nvidia.com/gpu": (f"GPU-{at}",)},
            numa_nodes=(at // 4,),
        )
        for at in range(8)
    ]
    return busy + [
        fake_kubelet.ContainerAllocation(pod=f"web-{at}") for at in range(PODS - len(busy))
    ]


def write_cgroups(root: Path) -> None:
    """A cgroup (version 2) of each pod, with as many lines as on Linux 6."""
    recorded_machines.put(root / "cgroup.controllers", "cpu memory")
    for number in range(PODS):
        uid = f"{number:08x}-0000-4000-8000-000000000000"
        folder = root / f"kubepods/burstable/pod{uid}"
        lines = "\n".join(f"counter_{at} {at * 4096}" for at in range(50))
        recorded_machines.put(folder / "cpu.stat", "usage_usec 1000000\nuser_usec 9")
        recorded_machines.put(folder / "memory.current", 2**30)
        recorded_machines.put(folder / "memory.stat", f"{lines}\ninactive_file 4096")


def pss_mib(process: int) -> float:
    """Proportional set size (PSS) of a process in MiB."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1024


def rss_mib(process: int) -> float:
    """Resident set size (RSS) of a process in MiB, shared libraries included."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    match = re.search(r"^Rss:\s+(\d+) kB", text, re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1024


def cpu_s(process: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(seconds: float) -> dict[str, float]:
    """Measure an idle agent for this number of seconds."""
    large = msgspec.structs.replace(recorded_machines.eight_gpus_switched(), cores=64)
    fake = fake_kubelet.FakeKubelet()
    fake.given, fake.allocatable = pods(), range(2, 256)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sys_, nvml = recorded_machines.write(large, folder)
        recorded_machines.put(folder / "kubelet/cpu_manager_state", '{"policyName": "static"}')
        recorded_machines.put(folder / "kubelet/config.yaml", "cpuManagerPolicy: static")
        write_cgroups(sys_ / "fs/cgroup")
        (folder / "token").write_text("token")
        monitor = ThreadingHTTPServer(("127.0.0.1", 0), Monitor)
        threading.Thread(target=monitor.serve_forever, daemon=True).start()
        environment = {
            "STROM_AGENT_NODE": "n1",
            "STROM_AGENT_MONITOR": f"http://127.0.0.1:{monitor.server_port}",
            "STROM_AGENT_TOKEN_FILE": str(folder / "token"),
        }
        called = ["--sysfs", str(sys_), "--nvml", str(nvml), "--kubelet", str(folder / "kubelet")]
        with fake_kubelet.serve(fake, folder / "kubelet"):
            process = subprocess.Popen(
                [sys.executable, "-c", AGENT, *called], env={**os.environ, **environment}
            )
            try:
                return _watched(process, fake, seconds)
            finally:
                process.terminate()
                process.wait()
                monitor.shutdown()
                monitor.server_close()


def _watched(
    process: subprocess.Popen[bytes], fake: fake_kubelet.FakeKubelet, seconds: float
) -> dict[str, float]:
    while not Monitor.reports:
        if process.poll() is not None:
            raise SystemExit(f"the agent ended with {process.returncode}")
        time.sleep(0.1)
    time.sleep(1.0)  # until the agent has started
    begun, used, looks = time.monotonic(), cpu_s(process.pid), fake.calls["List"]
    highest = 0.0
    while time.monotonic() - begun < seconds:
        highest = max(highest, pss_mib(process.pid))
        time.sleep(1.0)
    took_s = time.monotonic() - begun
    return {
        "pss_mib": round(highest, 1),
        "rss_mib": round(rss_mib(process.pid), 1),
        "cpu_percent": round(100 * (cpu_s(process.pid) - used) / took_s, 2),
        "seconds": round(took_s, 1),
        "looks": fake.calls["List"] - looks,
        "reports_and_signs_of_life": Monitor.reports,
    }


def main() -> None:
    """Measure, print the result, and compare it with the limits."""
    parser = argparse.ArgumentParser(description="Memory and CPU of an idle node agent.")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the measurement")
    found = measured(parser.parse_args().seconds)
    print(json.dumps(found))
    if found["pss_mib"] > MOST_MIB or found["cpu_percent"] > MOST_CPU_PERCENT:
        sys.exit(f"the limits are {MOST_MIB} MiB and {MOST_CPU_PERCENT} % of a core")


if __name__ == "__main__":
    main()
