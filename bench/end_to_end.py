"""``python -m bench.end_to_end``: pods per second from a job's POST to a node.

Real Kafka, etcd with fsync, kube-apiserver with webhooks, the four services as separate processes,
100 KWOK nodes, all on this machine. A round is 10 gangs of 100 pods, submitted concurrently; it
takes from sending the first POST to reading the watch event with the last pod's ``nodeName``. It
alternates with rounds of raw clients, which make no decisions, on the same API server while the
services run and watch: see ``bench.raw_rounds``. Their concurrency is the best of a sweep. Each
ratio is the median of the ratios of a round and its neighbouring rounds.

``api_requests_per_pod`` counts every request that the API server counted during a round, except
watches, requests of the simulated kubelets (status of pods, leases), and Kubernetes Events, which
are in ``event_requests_per_pod``. ``cpu_s_per_1000_pods`` is the CPU time of each process until all
pods run; ``ours`` is the sum of the services and Kafka.

With ``--templates N`` the pods of a round have this many different templates: each gang has a task
for each of its share. Each template needs a dry run before its pods are created bound.

With ``--pending-pods`` the controller creates all pods pending and binds them (its setting
``bound_pods`` is off).

The raw numbers go to ``bench/end_to_end.json``; the last line of stdout is the result as one JSON
object. Five rounds take five minutes on an idle machine; ``--rounds 1 --gangs 3`` takes one.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench import latency, observer, raw_rounds
from bench.bulk_client import OURS, ROUND_WITHIN_S, Client, Requests, cpu_s
from stromboli.testkit import real_system

GANGS, PODS_PER_GANG = 10, 100
GOALS = {"ratio_to_same_bodies": 0.9, "api_requests_per_pod": 2.2, "ours_cpu_s_per_1000_pods": 2.8}
SWEEP = (16, 32, 64, 128)
"""Concurrencies of the raw clients to try."""
SWEEP_PODS = 300
RAW = Path(__file__).with_name("end_to_end.json")


class Round(NamedTuple):
    """The measurements of one round of the system or of a raw client."""

    took_s: float
    whole_s: list[float]
    """Seconds until each gang was bound."""
    requests: Requests
    cpu_s: dict[str, float]


class Rounds:
    """Rounds on one running system."""

    def __init__(
        self,
        system: real_system.RealSystem,
        client: Client,
        *,
        bound_pods: bool = True,
        tasks: int = 1,
    ) -> None:
        self._system, self._tasks = system, tasks
        self._unbound = ("created_bound", "ours") if bound_pods else ("created_bound",)
        self._client = client
        self._number = 0

    async def ours(self, gangs: int, pods: int) -> Round:
        """Run a round of the system."""
        self._number += 1
        names = [f"bench-{self._number}-{index}" for index in range(gangs)]

        async def submit() -> None:
            jobs = [with_tasks(latency.job(name, pods), self._tasks) for name in names]
            await asyncio.gather(*(self._client.create(observer.JOBS, job) for job in jobs))

        return await self._timed("ours", dict.fromkeys(names, pods), submit)

    async def raw(self, mode: raw_rounds.Mode, pods: int, concurrency: int) -> Round:
        """Run a round of a raw client."""
        self._number += 1
        name = f"bench-{self._number}"
        served = await raw_rounds.owner(self._client, name, latency.job(name, pods))
        bodies = raw_rounds.bodies(mode, served)

        async def bring() -> None:
            await raw_rounds.bring(self._client, mode, bodies, concurrency)

        return await self._timed(f"{mode} by {concurrency}", {name: pods}, bring)

    async def _timed(
        self, name: str, wanted: dict[str, int], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> Round:
        client, version = self._client, await self._client.version()
        before, used = await client.requests(), cpu_s(self._system)
        async with asyncio.timeout(ROUND_WITHIN_S), asyncio.TaskGroup() as group:
            watching = group.create_task(client.bound(version, wanted))
            await asyncio.sleep(0.1)  # the watch is open before the first POST
            begun = time.perf_counter()
            group.create_task(work())
            seen = await watching
        spent = {part: round(now - used[part], 2) for part, now in cpu_s(self._system).items()}
        binds = 0 if name.startswith(self._unbound) else sum(wanted.values())
        requests = await client.counted(before, binds)
        whole_s = [at - begun for at in seen.jobs]
        print(f"{name}: {whole_s[-1]:.2f} s, {requests.total()} requests, cpu {spent}", flush=True)
        await client.gone(observer.JOBS)
        return Round(whole_s[-1], whole_s, requests, spent)


def with_tasks(job: dict[str, Any], count: int) -> dict[str, Any]:
    """Divide the pods of a job among tasks whose templates differ in an argument."""
    (task,) = job["spec"]["tasks"]
    if count == 1:
        return job
    tasks = [copy.deepcopy({**task, "name": f"t{at}"}) for at in range(count)]
    for at, each in enumerate(tasks):
        each["replicas"] = task["replicas"] * (at + 1) // count - task["replicas"] * at // count
        each["template"]["spec"]["containers"][0]["command"] = ["sleep", str(60 + at)]
    return {**job, "spec": {**job["spec"], "tasks": tasks}}


async def measure(
    state: Path, rounds: int, gangs: int, pods: int, *, bound_pods: bool = True, tasks: int = 1
) -> dict[str, Any]:
    """Run all rounds, alternating the system and the raw clients."""
    made: dict[str, list[Round]] = {name: [] for name in ("ours", *raw_rounds.MODES)}
    environment = {"STROM_CONTROLLER_BOUND_PODS": "true" if bound_pods else "false"}
    nodes = raw_rounds.NODES
    async with (
        real_system.RealSystem(
            state, fake_nodes=nodes, fsync=True, environment=environment
        ) as system,
        Client(system.parts) as client,
    ):
        each = Rounds(system, client, bound_pods=bound_pods, tasks=tasks)
        await each.ours(2, pods)  # warms up the code and connections of all processes
        sweep = {
            by: (await each.raw("same_bodies", min(SWEEP_PODS, gangs * pods), by)).took_s
            for by in SWEEP
        }
        concurrency = min(sweep, key=lambda by: sweep[by])
        for _ in range(rounds):
            made["ours"].append(await each.ours(gangs, pods))
            for mode in raw_rounds.MODES:
                made[mode].append(await each.raw(mode, gangs * pods, concurrency))
    requests = min((done.requests for done in made["ours"]), key=lambda counts: counts.total())
    return {
        "concurrency": concurrency,
        "sweep_s": {str(by): round(took, 3) for by, took in sweep.items()},
        "rounds_s": {name: [round(done.took_s, 3) for done in all_] for name, all_ in made.items()},
        "cpu_s": {name: [done.cpu_s for done in all_] for name, all_ in made.items()},
        "gangs_whole_s": [[round(at, 3) for at in done.whole_s] for done in made["ours"]],
        "requests": {" ".join(what): count for what, count in requests.most_common()},
    }


def result_of(measured: dict[str, Any], pods: int) -> dict[str, Any]:
    """The result: medians and ratios of the rounds."""
    took, whole = measured["rounds_s"], measured["gangs_whole_s"]
    of_requests = measured["requests"]
    events = sum(count for what, count in of_requests.items() if what.endswith(" events"))
    ratios = {
        f"ratio_to_{mode}": round(
            statistics.median(
                raw / ours for raw, ours in zip(took[mode], took["ours"], strict=True)
            ),
            3,
        )
        for mode in raw_rounds.MODES
    }
    return {
        **ratios,
        "pods_per_second": round(pods / statistics.median(took["ours"]), 1),
        "client_pods_per_second": {
            mode: round(pods / statistics.median(took[mode]), 1) for mode in raw_rounds.MODES
        },
        "api_requests_per_pod": round((sum(of_requests.values()) - events) / pods, 3),
        "event_requests_per_pod": round(events / pods, 3),
        "cpu_s_per_1000_pods": per_thousand(measured["cpu_s"]["ours"], pods),
        "client_cpu_s_per_1000_pods": {
            mode: per_thousand(measured["cpu_s"][mode], pods) for mode in raw_rounds.MODES
        },
        "first_gang_s": round(statistics.median(each[0] for each in whole), 2),
        "mean_gang_s": round(statistics.median(map(statistics.fmean, whole)), 2),
        "goals": GOALS,
    }


def per_thousand(rounds: Sequence[dict[str, float]], pods: int) -> dict[str, float]:
    """CPU seconds per 1,000 pods by process, and their sum over the services and Kafka (``ours``):
    medians of the rounds."""
    found = {
        name: statistics.median(done[name] for done in rounds) * 1000 / pods for name in rounds[0]
    }
    found["ours"] = sum(found[name] for name in OURS)
    return {name: round(seconds, 2) for name, seconds in found.items()}


def main() -> None:
    """Measure, write the raw numbers to the file, print the result."""
    arguments = argparse.ArgumentParser(prog="python -m bench.end_to_end", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5, help="number of rounds of each kind")
    arguments.add_argument("--gangs", type=int, default=GANGS)
    arguments.add_argument("--pods", type=int, default=PODS_PER_GANG, help="pods per gang")
    arguments.add_argument(
        "--templates", type=int, help="different templates in a round [default: one for each gang]"
    )
    arguments.add_argument("--out", type=Path, default=RAW, help="file for the raw numbers")
    arguments.add_argument(
        "--pending-pods", action="store_true", help="create pods pending and bind them"
    )
    given = arguments.parse_args()
    load = os.getloadavg()[0]
    tasks = max(1, (given.templates or 0) // given.gangs)
    with (
        tempfile.TemporaryDirectory(prefix="stromboli-bench-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        rounds = measure(
            Path(folder),
            given.rounds,
            given.gangs,
            given.pods,
            bound_pods=not given.pending_pods,
            tasks=tasks,
        )
        measured = runner.run(rounds)
    setup = {
        "rounds": given.rounds,
        "gangs": given.gangs,
        "pods_per_gang": given.pods,
        "templates_per_gang": tasks,
        "bound_pods": not given.pending_pods,
        "nodes": raw_rounds.NODES,
        "etcd_fsync": True,
        "webhooks": True,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }
    result = result_of(measured, given.gangs * given.pods)
    given.out.write_text(json.dumps({**result, "setup": setup, **measured}, indent=1) + "\n")
    for what, count in measured["requests"].items():
        print(f"{count:6d}  {what}")
    print(json.dumps({**result, **setup}))


if __name__ == "__main__":
    main()
