"""``python -m bench.latency``: the time from submitting a job to the node of its pod.

Real Kafka, etcd with fsync, kube-apiserver with webhooks, the four services as separate processes,
100 KWOK nodes, all on this machine. One-pod jobs, one after another: the next is sent when the
previous one is bound and its deletion is requested. The clock is the client's: from sending the
POST to reading the watch event with ``nodeName``.

After each job a raw client makes the same writes one by one, each as soon as its watch has shown
the previous one: a job (of another scheduler, hence without webhooks), a PodGroup, a pod, a
binding. ``ratio_to_raw_writes`` relates the two medians.

With ``--pending-pods`` the controller creates all pods pending and binds them (its setting
``bound_pods`` is off); the raw client is the same. The hops are those of the path that each job
took (``bench.journeys``).

With ``--arriving 20 --running 5000`` jobs arrive at 20 a second, whether earlier ones are bound or
not, on a cluster on which gangs of 5,000 pods run. The writes of the raw client follow when all
are bound; ``p99_ratio_to_raw_writes`` relates the 99th percentile to their median.

The raw numbers of the other modes go to ``bench/latency.json``; the last line of stdout is the
result as one JSON object. It takes about 20 s to start and, at the goal's speed, 35 s to measure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench import bulk_client, journeys, observer, raw_rounds, same_bodies
from stromboli.testkit import real_system

NODES = 100
GOALS = {"submit_to_bound_p50_s": 0.1, "ratio_to_raw_writes": 1.3}
ARRIVING_GOALS = {"p99_ratio_to_raw_writes": 8}
ARRIVING_WITHIN_S = 300.0
"""Seconds within which a job must be bound that arrives while the machine is overloaded."""
GANG = 100
PODS_PER_NODE = 25  # of 32 cores
RAW = Path(__file__).with_name("latency.json")
SYNCS = 100
SYNC_BYTES = 2048  # approximately what etcd appends to its log for a pod


def job(name: str, pods: int = 1) -> dict[str, Any]:
    """A job of equal pods, as a user writes it."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", "60"],
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": pods,
            "tasks": [{"name": "main", "replicas": pods, "template": pod}],
        },
    }


async def measure(
    state: Path, count: int, warmup: int, *, bound_pods: bool = True
) -> tuple[list[journeys.Journey], list[float]]:
    """The journeys of ``count`` jobs after ``warmup`` jobs, and the seconds that a raw client takes
    for the writes of each."""
    async with _started(state, bound_pods=bound_pods) as (system, client):
        answered, raw_s = {}, []
        for index in range(warmup + count):
            name = f"bench-{index:04d}"
            answered[name] = await client.submit(name, job(name))
            await client.delete(name)
            raw_s.append(await raw_writes(client, f"raw-{index:04d}", index))
        found = await journeys.logged(system.parts.kafka_bootstrap)
    names = list(answered)[warmup:]
    made = [journeys.assembled(name, answered[name], client.sightings, found) for name in names]
    return made, raw_s[warmup:]


@contextlib.asynccontextmanager
async def _started(
    state: Path, *, bound_pods: bool, nodes: int = NODES
) -> AsyncIterator[tuple[real_system.RealSystem, observer.Observer]]:
    environment = {"STROM_CONTROLLER_BOUND_PODS": "true" if bound_pods else "false"}
    async with (
        real_system.RealSystem(
            state, fake_nodes=nodes, fsync=True, environment=environment
        ) as system,
        observer.Observer(system.parts) as client,
        client.watching(),
    ):
        yield system, client


async def measure_arriving(
    state: Path, count: int, warmup: int, per_s: float, running: int
) -> dict[str, Any]:
    """Seconds from submit to bound of ``count`` jobs that arrive at this rate, after ``warmup``."""

    async def submitted(index: int) -> float:
        name = f"bench-{index:04d}"
        await asyncio.sleep(index / per_s)
        sent, _ = await client.submit(name, job(name), ARRIVING_WITHIN_S)
        await client.delete(name)
        return client.sightings.bound[name] - sent

    nodes = max(NODES, running // PODS_PER_NODE)
    async with _started(state, bound_pods=True, nodes=nodes) as (system, client):
        for index in range(running // GANG):
            name = f"load-{index:03d}"
            await client.submit(name, job(name, GANG), ARRIVING_WITHIN_S)
        await client.seen_running(running // GANG * GANG)
        used = bulk_client.cpu_s(system)
        totals = await asyncio.gather(*map(submitted, range(warmup + count)))
        spent = {name: now - used[name] for name, now in bulk_client.cpu_s(system).items()}
        raw_s = [await raw_writes(client, f"raw-{index:04d}", index) for index in range(warmup)]
    p50, p99 = (journeys.percentile(totals[warmup:], share) for share in (0.5, 0.99))
    return {
        "jobs_per_s": per_s,
        "running_pods": running,
        "submit_to_bound_p50_s": round(p50, 6),
        "submit_to_bound_p99_s": round(p99, 6),
        "cpu_ms_per_job": {name: round(s * 1000 / (warmup + count)) for name, s in spent.items()},
        "raw_writes_p50_s": round(statistics.median(raw_s), 6),
        "p99_ratio_to_raw_writes": round(p99 / statistics.median(raw_s), 3),
    }


async def raw_writes(client: observer.Observer, name: str, index: int) -> float:
    """Seconds that a raw client takes for a job, a PodGroup, a pod and a binding, one by one."""
    seen, begun = client.sightings, observer.now()
    served = await raw_rounds.owner(client, name, job(name))
    await client.seen(seen.job, name)
    paused = observer.now()
    bodies = same_bodies.captured(raw_rounds.as_ours(served))
    begun += observer.now() - paused  # preparing objects does not count
    await client.create(observer.POD_GROUPS, bodies.pod_group)
    await client.seen(seen.pod_group, name)
    created = await client.create(observer.PODS, bodies.pods[0])
    await client.seen(seen.pod, name)
    node = raw_rounds.node_name(index)
    await client.create(*raw_rounds.binding("same_bodies", created, node))
    await client.seen(seen.bound, name)
    await client.delete(name)
    return seen.bound[name] - begun


def setup(state: Path, count: int, warmup: int, *, bound_pods: bool) -> dict[str, Any]:
    """The environment that the numbers depend on."""
    return {
        "jobs": count,
        "warmup": warmup,
        "bound_pods": bound_pods,
        "fake_nodes": NODES,
        "etcd_fsync": True,
        "webhooks": True,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "fdatasync_p50_s": round(sync_s(state), 6),
        "load_before": round(os.getloadavg()[0], 2),
    }


def sync_s(folder: Path) -> float:
    """Median seconds of one small append with fsync in etcd's log directory."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(bytes(SYNC_BYTES))
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return statistics.median(times)


def table(hops: list[dict[str, Any]], total: dict[str, float]) -> str:
    """The budget as a Markdown table, in milliseconds: the hops of each path."""
    rows = [f"| {hop['what']} | {_ms(hop['p50_s'])} | {_ms(hop['p99_s'])} |" for hop in hops]
    p50, p99 = total["submit_to_bound_p50_s"], total["submit_to_bound_p99_s"]
    rows.append(f"| **submit to bound** | **{_ms(p50)}** | **{_ms(p99)}** |")
    return "\n".join(("| hop | p50 ms | p99 ms |", "|---|---:|---:|", *rows))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def main() -> None:
    """Measure, write the raw numbers to the file, print the budget and the result."""
    arguments = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    arguments.add_argument("--jobs", type=int, default=200, help="number of measured jobs")
    arguments.add_argument(
        "--warmup", type=int, default=20, help="number of warm-up jobs before them"
    )
    arguments.add_argument(
        "--pending-pods", action="store_true", help="create pods pending and bind them"
    )
    arguments.add_argument("--arriving", type=float, metavar="JOBS_PER_S", help="a steady rate")
    arguments.add_argument(
        "--running", type=int, default=5000, help="pods that run when jobs arrive"
    )
    arguments.add_argument("--out", type=Path, default=RAW, help="file for the raw numbers")
    given = arguments.parse_args()
    bound_pods = not given.pending_pods
    with tempfile.TemporaryDirectory(prefix="stromboli-bench-") as folder:
        state = Path(folder)
        circumstances = setup(state, given.jobs, given.warmup, bound_pods=bound_pods)
        if given.arriving:
            arriving = measure_arriving(
                state, given.jobs, given.warmup, given.arriving, given.running
            )
            found = asyncio.run(arriving)
            print(json.dumps({**found, "goals": ARRIVING_GOALS, **circumstances}))
            return
        measured = measure(state, given.jobs, given.warmup, bound_pods=bound_pods)
        made, raw_s = asyncio.run(measured)
    totals = [journey.total_s for journey in made]
    result = {
        "submit_to_bound_p50_s": round(statistics.median(totals), 6),
        "submit_to_bound_p99_s": round(journeys.percentile(totals, 0.99), 6),
        "raw_writes_p50_s": round(statistics.median(raw_s), 6),
        "ratio_to_raw_writes": round(statistics.median(totals) / statistics.median(raw_s), 3),
    }
    paths = Counter(journey.path for journey in made)
    hops = [hop for path in sorted(paths) for hop in journeys.budget(path, made)]
    raw = {
        **result,
        "paths": paths,
        "setup": circumstances,
        "hops": hops,
        "raw_writes_s": [round(took, 6) for took in raw_s],
        "moments": {
            path: ["answered", *(name for name, _ in journeys.HOPS[path])] for path in sorted(paths)
        },
        "journeys": [
            [it.job, it.path, *(round(at - it.sent, 6) for at in (it.answered, *it.times))]
            for it in made
        ],
    }
    given.out.write_text(_readable(raw))
    print(table(hops, result))
    print(json.dumps({**result, "paths": paths, "goals": GOALS, **circumstances}))


def _readable(raw: dict[str, Any]) -> str:
    """JSON with a line for each hop and each journey, so that a diff can be read."""
    lines = []
    for key, value in raw.items():
        if key in ("hops", "journeys"):
            items = ",\n  ".join(json.dumps(item) for item in value)
            lines.append(f'"{key}": [\n  {items}\n ]')
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


if __name__ == "__main__":
    main()
