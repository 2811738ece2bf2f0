"""``python -m bench.broker_requests``: requests to the broker by service, and CPU by process.

Real Kafka, etcd, kube-apiserver with webhooks, KWOK nodes and the services as separate processes.
Gangs are submitted together; requests are counted from the first POST until all pods run. A hook in
each service counts the requests that its clients send, by Kafka's name of the API. ``--idle``
counts the requests of an idle system for this number of seconds. The last line of stdout is the
result as one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop

from bench import bulk_client, latency, observer
from bench.bulk_client import Client
from stromboli.testkit import real_system
from stromboli.testkit.parts.part import Part

HOOK = """
import os
if os.environ.get("BENCH_REQUESTS"):
    import collections, json, time
    from aiokafka import conn
    counts, place = collections.Counter(), os.environ["BENCH_REQUESTS"]
    written, send = [0.0], conn.AIOKafkaConnection.send
    def counted(self, request, expect_response=True):
        counts[type(request).__name__.removesuffix("Request").lstrip("_") or "Metadata"] += 1
        now = time.monotonic()
        if now > written[0] + 0.1:
            written[0] = now
            path = os.path.join(place, str(os.getpid()))
            with open(path + ".new", "w") as file:
                json.dump(counts, file)
            os.replace(path + ".new", path)
        return send(self, request, expect_response)
    conn.AIOKafkaConnection.send = counted
"""
"""``sitecustomize`` of the services. Counts are written to a file, so that those of a killed
process remain."""
PATIENCE_S = 900.0
"""Seconds to wait until a process is ready: a busy machine takes minutes to start a JVM."""
SETTLE_S = 0.5
"""Seconds to wait before counts are read. Idle readers send several requests in this time, with
which the counts are written."""
Counts = Mapping[str, collections.Counter[str]]


class Measurement:
    """A running system with the hook in its services."""

    def __init__(self, system: real_system.RealSystem, folder: Path) -> None:
        self._system = system
        self._folder = folder

    def counts(self) -> Counts:
        """Requests of each service so far."""
        found = {}
        for name, service in self._system.services.items():
            path = self._folder / str(service.process.pid)
            found[name] = collections.Counter(json.loads(path.read_text()))
        return found

    async def over(self, work: Any) -> tuple[float, Counts, dict[str, float]]:
        """Run ``work``. Returns its seconds, requests by service, and CPU seconds by process."""
        before, used = self.counts(), bulk_client.cpu_s(self._system)
        begun = time.perf_counter()
        await work
        took_s = time.perf_counter() - begun
        spent = {name: now - used[name] for name, now in bulk_client.cpu_s(self._system).items()}
        await asyncio.sleep(SETTLE_S)
        after = self.counts()
        return took_s, {name: after[name] - before[name] for name in after}, spent


async def load(client: Client, round_: int, gangs: int, size: int) -> None:
    """Submit gangs and wait until all of their pods run."""
    names = [f"load-{round_}-{number}" for number in range(gangs)]
    version = await client.version()
    async with asyncio.timeout(bulk_client.ROUND_WITHIN_S), asyncio.TaskGroup() as group:
        group.create_task(client.bound(version, dict.fromkeys(names, size)))
        for name in names:
            group.create_task(client.create(observer.JOBS, latency.job(name, size)))


async def measure(state: Path, rounds: int, gangs: int, size: int, idle_s: float) -> dict[str, Any]:
    """Measure rounds with load, and an idle one."""
    hook, counted = state / "hook", state / "counted"
    hook.mkdir()
    counted.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    environment = {"PYTHONPATH": str(hook), "BENCH_REQUESTS": str(counted)}
    pods = gangs * size
    async with (
        real_system.RealSystem(state, fake_nodes=100, environment=environment) as system,
        Client(system.parts) as client,
    ):
        measurement = Measurement(system, counted)
        await load(client, 0, 2, size)
        await client.gone(observer.JOBS)
        made: list[dict[str, Any]] = []
        for round_ in range(1, rounds + 1):
            took_s, requests, spent = await measurement.over(load(client, round_, gangs, size))
            made.append(
                {
                    "s": round(took_s, 2),
                    "requests": {name: dict(found) for name, found in requests.items()},
                    "cpu_s_per_1000_pods": {
                        name: round(each * 1000 / pods, 2) for name, each in spent.items()
                    },
                }
            )
            print(json.dumps(made[-1]), flush=True)
            await client.gone(observer.JOBS)
        result: dict[str, Any] = {
            "pods": pods,
            "rounds": made,
            "requests_per_pod": _median_of(made, "requests", pods),
            "cpu_s_per_1000_pods": {
                name: statistics.median(each["cpu_s_per_1000_pods"][name] for each in made)
                for name in made[0]["cpu_s_per_1000_pods"]
            },
            "cores": os.cpu_count(),
        }
        if idle_s:
            _, requests, spent = await measurement.over(asyncio.sleep(idle_s))
            result["idle_per_s"] = {
                name: {api: round(count / idle_s, 1) for api, count in found.items()}
                for name, found in requests.items()
            }
            result["idle_cpu"] = {name: round(each / idle_s, 3) for name, each in spent.items()}
    return result


def _median_of(made: list[dict[str, Any]], what: str, pods: int) -> dict[str, dict[str, float]]:
    return {
        name: {
            api: round(statistics.median(each[what][name].get(api, 0) for each in made) / pods, 3)
            for api in found
        }
        for name, found in made[0][what].items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.broker_requests", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gangs", type=int, default=10)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--idle", type=float, default=0.0, help="seconds of the idle round")
    given = parser.parse_args()
    Part.ready_timeout_s = PATIENCE_S
    with tempfile.TemporaryDirectory(prefix="stromboli-bench-") as folder:
        done = measure(Path(folder), given.rounds, given.gangs, given.size, given.idle)
        print(json.dumps(uvloop.run(done)))


if __name__ == "__main__":
    main()
