"""``python -m bench.embedded_backlog``: pending jobs and free cores of embedded mode under load.

One-pod jobs of a few seconds are submitted in one request to simulated nodes with more cores than
the jobs need. Each second the objects are counted: jobs by phase, pods without a node, running
pods, free cores. If jobs are pending although cores are free, the limit is the CPU time that the
process uses per job: there are at most (jobs per second) x (seconds per job) running pods.

The samples go to ``bench/embedded_backlog.json``; the last line of stdout is the result as one
JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import logging
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.latency import job
from stromboli.client.asynchronous import AsyncClient
from stromboli.embedded import system
from stromboli.embedded.nodes import rules, simulated
from stromboli.shared.api import batch, kinds
from stromboli.shared.cluster import port
from stromboli.shared.runtime import telemetry

RAW = Path(__file__).with_name("embedded_backlog.json")
NODES, CORES = 10, 64
SAMPLE_EVERY_S = 1.0


async def run(state: Path, count: int, run_s: float) -> list[dict[str, Any]]:
    """Run the jobs; return samples until every job is Completed."""
    nodes = simulated.node_documents(NODES, cpu=str(CORES), memory="256Gi")
    options = system.Options(state=state, nodes=tuple(nodes), rules=rules.Rules(), port=0)
    samples: list[dict[str, Any]] = []
    async with system.run_system(options) as running, AsyncClient(running.url) as client:
        await running.ready()
        began, cpu = time.monotonic(), time.process_time()
        async with asyncio.TaskGroup() as group:
            group.create_task(client.submit_many([timed_job(at, run_s) for at in range(count)]))
            while not samples or samples[-1]["jobs"].get("Completed", 0) < count:
                await asyncio.sleep(SAMPLE_EVERY_S)
                spent = {"at_s": time.monotonic() - began, "cpu_s": time.process_time() - cpu}
                rounded = {name: round(seconds, 1) for name, seconds in spent.items()}
                samples.append({**rounded, **await sample(running.cluster)})
    return samples


def timed_job(number: int, run_s: float) -> batch.Job:
    """A job of one pod that runs for this time."""
    document = job(f"job-{number}")
    annotations = {"stromboli.sh/run-seconds": str(run_s)}
    document["spec"]["tasks"][0]["template"]["metadata"] = {"annotations": annotations}
    return kinds.JOBS.decode(json.dumps(document).encode())


async def sample(cluster: port.Cluster) -> dict[str, Any]:
    """Count jobs by phase, pods without a node, running pods and free cores."""
    jobs = [kinds.JOBS.decode(raw) for raw in (await cluster.list(kinds.JOBS)).items]
    pods = [kinds.PODS.decode(raw) for raw in (await cluster.list(kinds.PODS)).items]
    active = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
    placed = [pod for pod in active if pod.spec.node_name]
    return {
        "jobs": dict(collections.Counter(it.status.state.phase or "new" for it in jobs)),
        "pods_without_node": len(active) - len(placed),
        "running_pods": sum(pod.status.phase == "Running" for pod in placed),
        "free_cores": NODES * CORES - len(placed),
    }


def main() -> None:
    """Measure, record the samples, print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--run-seconds", type=float, default=5.0)
    parser.add_argument("--raw", type=Path, default=RAW)
    given = parser.parse_args()
    telemetry.configure_logs(logging.WARNING)  # as ``strom up``
    with tempfile.TemporaryDirectory() as folder:
        samples = asyncio.run(run(Path(folder) / "state", given.jobs, given.run_seconds))
    last = samples[-1]
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "jobs": given.jobs,
        "run_seconds": given.run_seconds,
        "jobs_per_s": round(given.jobs / last["at_s"], 1),
        "cpu_ms_per_job": round(1000 * last["cpu_s"] / given.jobs, 1),
        "most_running_pods": max(it["running_pods"] for it in samples),
        "fewest_free_cores": min(it["free_cores"] for it in samples),
        "most_pods_without_node": max(it["pods_without_node"] for it in samples),
        "python": platform.python_version(),
    }
    given.raw.write_text(json.dumps({**result, "samples": samples}, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
