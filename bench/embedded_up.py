"""``python -m bench.embedded_up``: an idle ``strom up``, before and after jobs.

Starts ``strom up`` with its default options (four simulated nodes, the console) on a new state
folder, and reads what the process and its child processes use while nothing happens: CPU time in
per cent of a core, and memory (PSS, so that pages of several processes count once; RSS of the main
process). Then one-pod jobs run to their end, a few at a time; they stay in the cluster, as finished
jobs without a time to live do. After a pause the same is read again.

The second reading begins once nothing waits to be written: ``Scheduled`` Events of pods come after
everything else, at most 50 a second, so those of 3,000 jobs take a minute.

Goals: less than 1 % of a core and less than 250 MiB when idle; after 3,000 jobs at most 100 MiB
more. The raw numbers go to ``bench/embedded_up.json``; the last line of stdout is the result as one
JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import agent, embedded_jobs
from stromboli.client.asynchronous import AsyncClient

RAW = Path(__file__).with_name("embedded_up.json")
SETTLED_AFTER_S, WRITTEN_AFTER_S = 30.0, 90.0
"""The pause before the first reading, and before the second one."""
START_WITHIN_S = 120.0
STROM = Path(sys.executable).with_name("strom")


@contextlib.contextmanager
def up(folder: Path) -> Iterator[tuple[int, str]]:
    """Run ``strom up``; yield its process id and the address of REST."""
    log = folder / "up.log"
    ports = ["--port", "0", "--console-port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [STROM, "up", "--state", str(folder / "state"), *ports],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process.pid, _address(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if line.startswith("REST"):
                return line.split()[1]
        time.sleep(0.1)
    raise SystemExit(f"strom up did not start:\n{log.read_text()}")


def _tree(process: int) -> list[int]:
    """The process and all of its descendants."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [process, *(each for child in children for each in _tree(child))]


def idle(process: int, seconds: float, pause_s: float) -> dict[str, float]:
    """CPU and memory of the process and its descendants during these seconds, after a pause."""
    time.sleep(pause_s)
    pids, begun = _tree(process), time.monotonic()
    used_s = sum(map(agent.cpu_s, pids))
    time.sleep(seconds)
    percent = 100 * (sum(map(agent.cpu_s, pids)) - used_s) / (time.monotonic() - begun)
    return {
        "cpu_percent": round(percent, 2),
        "pss_mib": round(sum(map(agent.pss_mib, pids)), 1),
        "rss_mib": round(agent.rss_mib(process), 1),
        "processes": len(pids),
    }


async def _run_jobs(url: str, count: int) -> None:
    async with AsyncClient(url) as client:
        await embedded_jobs.submit(client, "job", count)


def measured(jobs: int, seconds: float) -> dict[str, Any]:
    """Usage before and after this number of jobs."""
    with tempfile.TemporaryDirectory() as folder, up(Path(folder)) as (process, url):
        before = idle(process, seconds, SETTLED_AFTER_S)
        cpu_s, begun = agent.cpu_s(process), time.monotonic()
        asyncio.run(_run_jobs(url, jobs))
        spent = {
            "cpu_ms_per_job": round(1000 * (agent.cpu_s(process) - cpu_s) / max(1, jobs), 1),
            "run_s": round(time.monotonic() - begun, 1),
        }
        after = idle(process, seconds, WRITTEN_AFTER_S)
        return {"idle": before, "jobs": jobs, **spent, "after": after}


def main() -> None:
    """Measure, record the raw numbers, print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=3_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each idle time")
    parser.add_argument("--raw", type=Path, default=RAW)
    given = parser.parse_args()
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        **measured(given.jobs, given.seconds),
    }
    given.raw.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
