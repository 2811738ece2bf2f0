"""Calls through reused workers against one pod for each call: ``python -m bench.executor``.

The embedded system with a process node, ``--workers`` workers. It measures the seconds from the
executor's construction to its first result (``first_result_s``), the time of a call when calls are
made one by one (``call_ms``), ``--calls`` trivial calls by ``map`` (``map_s``), and for comparison
``--pods`` jobs of one pod that runs ``true``, from the submission to the end of the last one
(``pods_s``). The last line of stdout is one JSON object.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from stromboli.client import Client, job, phases
from stromboli.client.executor import JobExecutor, WorkerOptions
from stromboli.embedded import system
from stromboli.embedded.processes import machine

SEQUENTIAL = 200


def measured(client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure on a running system."""
    options = WorkerOptions(requests={"cpu": "100m"})
    result: dict[str, Any] = {"workers": arguments.workers, "calls": arguments.calls}
    began = time.perf_counter()
    with JobExecutor(arguments.workers, options=options, client=client) as pool:
        pool.submit(abs, -1).result()
        result["first_result_s"] = round(time.perf_counter() - began, 2)
        each = []
        for _ in range(SEQUENTIAL):
            at = time.perf_counter()
            pool.submit(abs, -1).result()
            each.append(time.perf_counter() - at)
        result["call_ms"] = round(1000 * statistics.median(each), 1)
        at = time.perf_counter()
        assert sum(pool.map(abs, range(-arguments.calls, 0))) == sum(range(arguments.calls + 1))
        result["map_s"] = round(time.perf_counter() - at, 2)
        at = time.perf_counter()
    result["shutdown_s"] = round(time.perf_counter() - at, 2)
    at = time.perf_counter()
    names = [f"one-pod-{number}" for number in range(arguments.pods)]
    requests = {"cpu": "10m"}
    client.submit_many(
        [job(name, image="process-node", command=["true"], requests=requests) for name in names]
    )
    left = set(names)
    while left:
        time.sleep(0.2)
        left -= {
            found.metadata.name
            for found in client.jobs("default")
            if phases.phase_of(found) in phases.ENDS
        }
    result |= {"pods": arguments.pods, "pods_s": round(time.perf_counter() - at, 2)}
    return result


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start the system and measure in a thread."""
    with tempfile.TemporaryDirectory() as state:
        nodes = tuple(machine.node_documents(1, machine.resources(), cpu="8"))
        options = system.Options(state=Path(state), process_nodes=nodes)
        async with system.run_system(options) as running:
            await running.ready()
            with Client(running.url) as client:
                return await asyncio.to_thread(measured, client, arguments)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=200)
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
