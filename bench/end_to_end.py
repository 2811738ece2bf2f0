"""``python -m bench.end_to_end``: pods per second from a job's POST to a node.

Real Kafka, etcd with fsync, kube-apiserver with webhooks, the four services as separate processes,
100 KWOK nodes, all on this machine. A round is 10 gangs of 100 pods, submitted concurrently: from
sending the first POST to reading the watch event that shows the last pod's ``nodeName``. Then
the services are stopped, and a raw client creates and binds as many equal pods on the same API
server, 64 requests at a time: the ceiling.

``api_requests_per_pod`` counts every request that the API server counted during a round,
except watches and requests of the simulated kubelets (status of pods, leases).

The raw numbers go to ``bench/end_to_end.json``; the last line of stdout is the result as one JSON
object. Takes a minute and a half.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from bench import latency, observer
from stromboli.testkit import real_system
from stromboli.testkit.parts import api, real

NODES = 100
GANGS, PODS_PER_GANG = 10, 100
GOAL_RATIO, GOAL_REQUESTS_PER_POD = 0.7, 4.0
RAW_CONCURRENCY = 64
"""As the controller's: an API server on two cores is busy with 32."""
ROUND_WITHIN_S = 600.0
"""A machine that is busy with other work takes a hundred times as long as an idle one."""
QUIET_S = 2.0
"""A round begins after this time without writes that count."""
RAW = Path(__file__).with_name("end_to_end.json")
Requests = collections.Counter[tuple[str, str]]


def gang(name: str, pods: int) -> dict[str, Any]:
    """A job of this number of equal pods that start together."""
    document = latency.job(name)
    document["spec"]["minAvailable"] = pods
    document["spec"]["tasks"][0]["replicas"] = pods
    return document


def counted(metrics: str) -> Requests:
    """Requests from the API server's metrics: (verb, resource/subresource) -> number."""
    found: Requests = collections.Counter()
    for family in text_string_to_metric_families(metrics):
        if family.name != "apiserver_request":
            continue
        for sample in family.samples:
            labels = sample.labels
            what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            is_ours = labels["verb"] not in ("WATCH", "CONNECT") and bool(labels["resource"])
            if sample.name == "apiserver_request_total" and is_ours and what not in KUBELETS:
                found[labels["verb"], what] += int(sample.value)
    return found


BIND = ("POST", "pods/binding")
KUBELETS = ("pods/status", "leases", "nodes", "nodes/status")
"""What the simulated kubelets and the control plane itself write."""


class Client:
    """A user and an observer with raw requests. Use it as an async context manager."""

    def __init__(self, parts: real.RealParts) -> None:
        self.http = aiohttp.ClientSession(
            base_url=parts.api_url,
            headers={"Authorization": f"Bearer {parts.token}"},
            connector=aiohttp.TCPConnector(ssl=api.tls_context(parts.ca_file), limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=observer.LONGEST_LINE,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def post(self, path: str, document: dict[str, Any]) -> None:
        """Create an object. Raises RuntimeError with the server's message."""
        body = json.dumps(document).encode()
        headers = {"Content-Type": "application/json"}
        async with self.http.post(path, data=body, headers=headers) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise RuntimeError(f"POST {path}: {answer.status} {text}")

    async def pods(self) -> dict[str, Any]:
        """The pods now."""
        async with self.http.get(observer.PODS) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def requests(self) -> Requests:
        """What the API server has counted so far."""
        async with self.http.get("/metrics") as answer:
            return counted(await answer.text())

    async def counted(self, before: Requests, binds: int) -> Requests:
        """Requests since ``before``, when all binds are among them: a busy server counts late, and
        later requests are included.
        """
        async with asyncio.timeout(ROUND_WITHIN_S):
            while (found := await self.requests() - before)[BIND] < binds:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        return found

    async def bound(self, version: str, prefix: str, gangs: int, pods: int) -> list[float]:
        """When each gang was seen complete, by ``time.perf_counter``: all pods with its name prefix
        have a node. A busy server ends the watches of slow readers, so the watch reconnects.
        """
        seen: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
        whole: list[float] = []
        while True:
            parameters = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
            async with self.http.get(observer.PODS, params=parameters) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    event = json.loads(line)
                    found = event["object"]
                    version = found["metadata"]["resourceVersion"]
                    name = found["metadata"]["name"]
                    gang = seen[name.removeprefix(prefix).partition("-")[0]]
                    is_bound = name.startswith(prefix) and found["spec"].get("nodeName")
                    if not is_bound or name in gang:
                        continue
                    gang.add(name)
                    if len(gang) == pods:
                        whole.append(time.perf_counter())
                    if len(whole) == gangs:
                        return whole

    async def gone(self, path: str, selector: str) -> None:
        """Delete a collection and wait until no pod is left and no client has work for it: the
        garbage collector continues for seconds, and the next round would include its requests.
        """
        parameters = {"labelSelector": selector, "propagationPolicy": "Background"}
        async with self.http.delete(path, params=parameters) as answer:
            answer.raise_for_status()
        async with asyncio.timeout(ROUND_WITHIN_S):
            while (await self.pods())["items"]:  # noqa: ASYNC110 - asks another process
                await asyncio.sleep(0.2)
            before, after = -1, await self._writes()
            while before != after:
                await asyncio.sleep(QUIET_S)
                before, after = after, await self._writes()

    async def _writes(self) -> int:
        found = await self.requests()
        return sum(count for (verb, _), count in found.items() if verb not in ("GET", "LIST"))


def cpu_s(system: real_system.RealSystem) -> dict[str, float]:
    """Processor seconds that each part has used so far."""
    parts = system.parts
    outside = (parts.kafka, parts.etcd, parts.api_server, parts.controller_manager, parts.kwok)
    named = {part.name: part for part in outside} | system.services
    tick = os.sysconf("SC_CLK_TCK")
    used = {}
    for name, part in named.items():
        fields = Path(f"/proc/{part.process.pid}/stat").read_text().rpartition(")")[2].split()
        used[name] = (int(fields[11]) + int(fields[12])) / tick
    return used


class Round(NamedTuple):
    """One round of the whole system."""

    took_s: float
    whole_s: list[float]
    """After how long each gang was bound."""
    requests: Requests
    cpu_s: dict[str, float]


async def timed_round(
    system: real_system.RealSystem, client: Client, number: int, gangs: int, pods: int
) -> Round:
    """One round, from the first POST to the last pod that is seen bound."""
    names = [f"bench-{number}-{index}" for index in range(gangs)]
    version = (await client.pods())["metadata"]["resourceVersion"]
    before, used = await client.requests(), cpu_s(system)
    async with asyncio.timeout(ROUND_WITHIN_S), asyncio.TaskGroup() as group:
        all_bound = group.create_task(client.bound(version, f"bench-{number}-", gangs, pods))
        await asyncio.sleep(0.1)  # the watch is open before the first POST
        begun = time.perf_counter()
        for name in names:
            group.create_task(client.post(observer.JOBS, gang(name, pods)))
        whole_s = [at - begun for at in await all_bound]
    took_s = whole_s[-1]
    spent = {name: round(now - used[name], 2) for name, now in cpu_s(system).items()}
    requests = await client.counted(before, gangs * pods)
    print(f"round {number}: {took_s:.2f} s, {requests.total()} requests, cpu {spent}", flush=True)
    await client.gone(observer.JOBS, "")
    return Round(took_s, whole_s, requests, spent)


async def raw_round(client: Client, pods: int) -> float:
    """Seconds that a client with nothing to decide takes for as many pods: create, then bind."""
    template = latency.job("")["spec"]["tasks"][0]["template"]["spec"]
    begun = time.perf_counter()

    async def create_and_bind(index: int) -> None:
        name = f"raw-{index:05d}"
        metadata = {"name": name, "labels": {"raw": "yes"}}
        pod = {"metadata": metadata, "spec": {**template, "schedulerName": "raw"}}
        await client.post(observer.PODS, pod)
        target = {"apiVersion": "v1", "kind": "Node", "name": node_name(index)}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        await client.post(f"{observer.PODS}/{name}/binding", {**binding, "target": target})

    await side_by_side(range(pods), create_and_bind, RAW_CONCURRENCY)
    took_s = time.perf_counter() - begun
    print(f"raw: {took_s:.2f} s", flush=True)
    await client.gone(observer.PODS, "raw=yes")
    return took_s


def node_name(index: int) -> str:
    """The node of the raw client's pod: one after another."""
    return f"node-{index % NODES:04d}"


async def side_by_side(
    items: Iterable[int], work: Callable[[int], Awaitable[None]], concurrency: int
) -> None:
    """Do the work for each item, with this concurrency."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())


async def measure(state: Path, rounds: int, gangs: int, pods: int) -> dict[str, Any]:
    """All rounds of both."""
    async with (
        real_system.RealSystem(state, fake_nodes=NODES, fsync=True) as system,
        Client(system.parts) as client,
    ):
        await timed_round(
            system, client, 0, 2, pods
        )  # warms up the code and connections of all processes
        ours = [
            await timed_round(system, client, number + 1, gangs, pods) for number in range(rounds)
        ]
        await asyncio.gather(*(service.stop() for service in system.services.values()))
        raw = [await raw_round(client, gangs * pods) for _ in range(rounds)]
    requests = min((each.requests for each in ours), key=lambda counts: counts.total())
    return {
        "rounds_s": [round(each.took_s, 3) for each in ours],
        "gangs_whole_s": [[round(at, 3) for at in each.whole_s] for each in ours],
        "cpu_s": [each.cpu_s for each in ours],
        "raw_rounds_s": [round(took_s, 3) for took_s in raw],
        "requests": {" ".join(what): count for what, count in requests.most_common()},
    }


def result_of(measured: dict[str, Any], pods: int) -> dict[str, Any]:
    """The numbers that are promised: medians of the rounds."""
    ours = pods / statistics.median(measured["rounds_s"])
    raw = pods / statistics.median(measured["raw_rounds_s"])
    whole = measured["gangs_whole_s"]
    return {
        "pods_per_second": round(ours, 1),
        "raw_pods_per_second": round(raw, 1),
        "ratio_to_raw": round(ours / raw, 3),
        "first_gang_s": round(statistics.median(each[0] for each in whole), 2),
        "mean_gang_s": round(statistics.median(map(statistics.fmean, whole)), 2),
        "goal_ratio": GOAL_RATIO,
        "api_requests_per_pod": round(sum(measured["requests"].values()) / pods, 3),
        "goal_requests_per_pod": GOAL_REQUESTS_PER_POD,
    }


def main() -> None:
    """Measure, keep the raw numbers, print the result."""
    arguments = argparse.ArgumentParser(prog="python -m bench.end_to_end", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3, help="how often both are measured")
    arguments.add_argument("--gangs", type=int, default=GANGS)
    arguments.add_argument("--pods", type=int, default=PODS_PER_GANG, help="of each gang")
    given = arguments.parse_args()
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="stromboli-bench-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        measured = runner.run(measure(Path(folder), given.rounds, given.gangs, given.pods))
    setup = {
        "gangs": given.gangs,
        "pods_per_gang": given.pods,
        "nodes": NODES,
        "etcd_fsync": True,
        "webhooks": True,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(load, 2),
    }
    result = result_of(measured, given.gangs * given.pods)
    RAW.write_text(json.dumps({**result, "setup": setup, **measured}, indent=1) + "\n")
    for what, count in measured["requests"].items():
        print(f"{count:6d}  {what}")
    print(json.dumps({**result, **setup}))


if __name__ == "__main__":
    main()
