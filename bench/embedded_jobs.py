"""``python -m bench.embedded_jobs``: CPU time and disk space of a job in embedded mode.

One-pod jobs on simulated nodes, a few at a time until each is Completed, in one process: all
services, the log, the cluster and the client. CPU time is that of the whole process, the client
included, after its start. Bytes are the size of the state directory after the system is closed,
less that of one in which no job ran.

The raw numbers go to ``bench/embedded_jobs.json``; the last line of stdout is the result as one
JSON object. ``--profile FILE`` writes a profile of the event loop's thread for
``python -m pstats``.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import platform
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.latency import job
from stromboli.client.asynchronous import AsyncClient
from stromboli.embedded import system
from stromboli.embedded.nodes import rules, simulated

RAW = Path(__file__).with_name("embedded_jobs.json")
NODES = 10
AT_ONCE = 16
WARMUP = 20
LOG = "log.db"


async def run(state: Path, count: int, profile: Path | None) -> float:
    """CPU seconds of ``count`` jobs, after some warm-up jobs."""
    nodes = simulated.node_documents(NODES, cpu="64", memory="256Gi")
    options = system.Options(state=state, nodes=tuple(nodes), rules=rules.Rules(), port=0)
    async with system.run_system(options) as running:
        await running.ready()
        async with AsyncClient(running.url) as client:
            await submit(client, "warm", WARMUP if count else 0)
            profiler = cProfile.Profile() if profile else None
            if profiler:
                profiler.enable()
            began = time.process_time()
            await submit(client, "job", count)
            used = time.process_time() - began
            if profiler:
                profiler.disable()
                profiler.dump_stats(str(profile))
    return used


async def submit(client: AsyncClient, prefix: str, count: int) -> None:
    """Submit jobs and wait until each is Completed."""
    permits = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with permits:
            name = f"{prefix}-{number}"
            document = job(name)
            document["spec"]["tasks"][0]["template"]["metadata"] = {
                "annotations": {"stromboli.sh/run-seconds": "0.1"}
            }
            await client.submit(document)
            await client.wait(name)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))


def sizes(state: Path) -> dict[str, int]:
    """Bytes of each file of the state directory."""
    return {file.name: file.stat().st_size for file in state.iterdir() if file.is_file()}


def topic_bytes(state: Path) -> dict[str, tuple[int, int]]:
    """Topic -> number of its records, and the bytes of their keys, values and headers."""
    query = (
        "SELECT name, count(*), sum(length(key) + coalesce(length(value), 0) + length(headers))"
        " FROM records JOIN topics ON topics.id = records.topic GROUP BY name"
    )
    with sqlite3.connect(state / LOG) as database:
        return {name: (records, size) for name, records, size in database.execute(query)}


def measure(count: int, profile: Path | None) -> dict[str, Any]:
    """CPU time and bytes per job, and the bytes by file and by topic."""
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        asyncio.run(run(empty, 0, None))
        used_s = asyncio.run(run(full, count, profile))
        before, after = sizes(empty), sizes(full)
        jobs = count + WARMUP
        growth = {name: round((after[name] - before.get(name, 0)) / jobs) for name in after}
        none, every = topic_bytes(empty), topic_bytes(full)
        by_topic = {
            name: {
                "records_per_job": round((records - none.get(name, (0, 0))[0]) / jobs, 1),
                "bytes_per_job": round((size - none.get(name, (0, 0))[1]) / jobs),
            }
            for name, (records, size) in every.items()
        }
    return {
        "jobs": count,
        "cpu_ms_per_job": round(1000 * used_s / count, 2),
        "bytes_per_job": sum(growth.values()),
        "bytes_per_job_by_file": growth,
        "by_topic": dict(sorted(by_topic.items(), key=lambda it: -it[1]["bytes_per_job"])),
        "python": platform.python_version(),
    }


def main() -> None:
    """Measure, record the raw numbers, print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--raw", type=Path, default=RAW)
    given = parser.parse_args()
    found = {"date": time.strftime("%Y-%m-%d"), **measure(given.jobs, given.profile)}
    given.raw.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
