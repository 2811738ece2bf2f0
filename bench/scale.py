"""``python -m bench.scale``: memory, start-up and takeover with many running pods.

Real Kafka, etcd, kube-apiserver with webhooks, KWOK nodes and the four services as separate
processes, all on this machine. Gangs of 100 pods, ``--at-once`` of them at a time, until ``--pods``
pods are bound on ``--nodes`` nodes; they run until the end. ``load.steps`` has the CPU seconds of
each process for each tenth of them: equal numbers mean that a pod costs no more in a large cluster.
Then, one after another:

- ``rss_mib``: memory of each service 60 s later, and its peak;
- ``start_s``: each service is stopped and started again; seconds from its start until it is ready,
  which includes reading its topics;
- ``first_decision_s``: the leader of a service is killed while a standby follows; seconds from the
  kill until a job that is submitted then has its PodGroup (controller) or its node (scheduler). It
  includes the remaining time of the lease, at most 15 s.

The last line of stdout is the result as one JSON object; it also goes to ``bench/scale.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from bench import bulk_client, latency, observer
from bench.bulk_client import Client
from stromboli.shared import leader_election
from stromboli.testkit import real_system
from stromboli.testkit.parts.part import Part

PODS_PER_GANG, PODS_PER_NODE = 100, 100
STEPS = 10
SETTLED_AFTER_S = 60.0
LOOK_EVERY_S = 0.05
WITHIN_S = 1800.0
GOALS = {"start_s": 15.0, "first_decision_s": leader_election.LeaseSettings().duration_s + 5}
RAW = Path(__file__).with_name("scale.json")


def gang(name: str) -> dict[str, Any]:
    """A job whose pods request so little that a node holds many of them."""
    document = latency.job(name)
    document["spec"]["minAvailable"] = PODS_PER_GANG
    (task,) = document["spec"]["tasks"]
    task["replicas"] = PODS_PER_GANG
    (container,) = task["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "10m", "memory": "10Mi"}}
    return document


async def kwok_ready(client: Client, nodes: int) -> None:
    """Wait until KWOK manages all nodes: it lists all pods once for each, which would slow the
    load."""
    async with asyncio.timeout(WITHIN_S):
        while (await client.requests())["LIST", "pods"] < nodes:  # noqa: ASYNC110
            await asyncio.sleep(1.0)


async def fill(
    system: real_system.RealSystem, client: Client, pods: int, at_once: int
) -> dict[str, Any]:
    """Submit gangs until this number of pods runs; return the seconds, the pods per second, and
    the CPU seconds by process of each tenth of the pods."""
    begun = time.perf_counter()
    names = [f"scale-{number}" for number in range(pods // PODS_PER_GANG)]
    steps: list[dict[str, Any]] = []
    used, used_at = bulk_client.cpu_s(system), 0
    for first in range(0, len(names), at_once):
        some = names[first : first + at_once]
        version = await client.version()
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
            seen = group.create_task(client.bound(version, dict.fromkeys(some, PODS_PER_GANG)))
            for name in some:
                group.create_task(client.create(observer.JOBS, gang(name)))
            await seen
        took_s = time.perf_counter() - begun
        done = (first + len(some)) * PODS_PER_GANG
        if done - used_at >= pods / STEPS or done == pods:
            now = bulk_client.cpu_s(system)
            cpu_s = {name: round(now[name] - used[name], 2) for name in now}
            steps.append({"pods": done, "after_s": round(took_s, 1), "cpu_s": cpu_s})
            print(json.dumps(steps[-1]), flush=True)
            used, used_at = now, done
    took_s = time.perf_counter() - begun
    return {"s": round(took_s, 1), "pods_per_second": round(pods / took_s, 1), "steps": steps}


def memory(part: Part) -> dict[str, int]:
    """Current and peak memory of a process in MiB."""
    fields = Path(f"/proc/{part.process.pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in fields)
    kib = {name: int(found[name].split()[0]) for name in ("VmRSS", "VmHWM")}
    return {"now": kib["VmRSS"] // 1024, "peak": kib["VmHWM"] // 1024}


async def restarted_s(service: real_system.Service) -> float:
    """Seconds from the start of a process to its readiness."""
    await service.stop()
    begun = time.perf_counter()
    await service.start()
    return round(time.perf_counter() - begun, 2)


async def first_decision_s(system: real_system.RealSystem, client: Client, name: str) -> float:
    """Seconds from the kill of a leader to the first decision of its standby."""
    standby = system.standby(name)
    await standby.start()
    try:
        await system.services[name].kill()
        killed = time.perf_counter()
        job = f"after-{name}"
        await client.create(observer.JOBS, latency.job(job))
        path = observer.POD_GROUPS if name == "controller" else observer.PODS
        async with asyncio.timeout(WITHIN_S):
            while not _is_decided(  # noqa: ASYNC110
                json.loads(await client.get(_path_of(path, job))), name
            ):
                await asyncio.sleep(LOOK_EVERY_S)
        return round(time.perf_counter() - killed, 2)
    finally:
        await standby.stop()
        await system.services[name].start()


def _path_of(path: str, job: str) -> str:
    """The path of a list that contains only the job's objects, so that a poll is cheap."""
    return f"{path}?labelSelector=volcano.sh/job-name%3D{job}" if path == observer.PODS else path


def _is_decided(listed: dict[str, Any], name: str) -> bool:
    if name == "controller":
        owners = (it["metadata"].get("ownerReferences", ()) for it in listed["items"])
        return any(owner["name"] == f"after-{name}" for each in owners for owner in each)
    return any(it["spec"].get("nodeName") for it in listed["items"])


async def measure(state: Path, pods: int, nodes: int, at_once: int) -> dict[str, Any]:
    """Make all measurements, one after another."""
    async with (
        real_system.RealSystem(state, fake_nodes=nodes) as system,
        Client(system.parts) as client,
    ):
        await kwok_ready(client, nodes)
        load = await fill(system, client, pods, at_once)
        await asyncio.sleep(SETTLED_AFTER_S)
        rss = {name: memory(service) for name, service in system.services.items()}
        used = bulk_client.cpu_s(system)
        print(json.dumps({"load": load, "rss_mib": rss, "cpu_s": used}), flush=True)
        start_s = {name: await restarted_s(service) for name, service in system.services.items()}
        print(json.dumps({"start_s": start_s}), flush=True)
        decision_s = {
            name: await first_decision_s(system, client, name)
            for name in ("controller", "scheduler")
        }
    return {
        "load": load,
        "rss_mib": rss,
        "start_s": start_s,
        "first_decision_s": decision_s,
        "goals": GOALS,
        "pods": pods,
        "nodes": nodes,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Measure, write the result to the file, print it."""
    arguments = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    arguments.add_argument("--pods", type=int, default=20_000)
    arguments.add_argument("--nodes", type=int, help="default: one for each 100 pods, and one more")
    arguments.add_argument("--at-once", type=int, default=10, help="gangs submitted together")
    given = arguments.parse_args()
    nodes = given.nodes or given.pods // PODS_PER_NODE + 1
    with tempfile.TemporaryDirectory(prefix="stromboli-bench-") as folder:
        result = uvloop.run(measure(Path(folder), given.pods, nodes, given.at_once))
    RAW.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
