"""A client that writes many objects with raw requests, and measures what the system does meanwhile.

It shares no code with the system's adapters, so that their errors cannot affect the numbers.
"""

from __future__ import annotations

import asyncio
import collections
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bench import observer
from stromboli.testkit import real_system
from stromboli.testkit.parts import api, real

ROUND_WITHIN_S = 600.0
"""Limit of a round in seconds. A machine that is busy with other work takes a hundred times as long
as an idle one."""
QUIET_S = 2.0
"""A round begins after this number of seconds without counted writes."""
OURS = ("kafka", "monitor", "scheduler", "controller", "admission")
Requests = collections.Counter[tuple[str, str]]
BIND = ("POST", "pods/binding")
KUBELETS = ("pods/status", "leases", "nodes", "nodes/status")
"""Resources that the simulated kubelets and the control plane write; these writes do not count."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Event(msgspec.Struct, frozen=True):
    object: _Pod


_EVENT = msgspec.json.Decoder(_Event)


class Bound(NamedTuple):
    """When pods were seen bound and running, by ``time.perf_counter``."""

    jobs: list[float]
    """Times at which all pods of a job had a node, one per job, ascending."""
    running: float
    """When all pods were running."""


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

    async def get(self, path: str) -> bytes:
        """Return the response body for an object or a list."""
        async with self.http.get(path) as answer:
            answer.raise_for_status()
            return await answer.read()

    async def create(self, path: str, document: dict[str, Any]) -> bytes:
        """Create an object. Raises RuntimeError with the server's message."""
        body = json.dumps(document).encode()
        headers = {"Content-Type": "application/json"}
        async with self.http.post(path, data=body, headers=headers) as answer:
            made = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"POST {path}: {answer.status} {made.decode()}")
            return made

    async def version(self) -> str:
        """Return the current resourceVersion of the pod list."""
        pods = json.loads(await self.get(f"{observer.PODS}?limit=1"))
        found: str = pods["metadata"]["resourceVersion"]
        return found

    async def requests(self) -> Requests:
        """Return the requests that the API server has counted so far."""
        return counted((await self.get("/metrics")).decode())

    async def counted(self, before: Requests, binds: int) -> Requests:
        """Return the requests since ``before``, once all binds are among them: the metrics of a
        busy server lag behind. Later requests are included.
        """
        async with asyncio.timeout(ROUND_WITHIN_S):
            while (found := await self.requests() - before)[BIND] < binds:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        return found

    async def bound(self, version: str, wanted: Mapping[str, int]) -> Bound:
        """Wait until the pods of the jobs are seen bound and running; return the times. ``wanted``:
        job -> number of its pods. A busy server ends the watches of slow readers, so the watch
        reconnects.
        """
        seen: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
        running: set[str] = set()
        whole: list[float] = []
        while True:
            parameters = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
            async with self.http.get(observer.PODS, params=parameters) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    pod = _EVENT.decode(line).object
                    version, name = pod.metadata.resource_version, pod.metadata.name
                    job = pod.metadata.labels.get(observer.JOB_NAME, "")
                    if job not in wanted or not pod.spec.node_name:
                        continue
                    if name not in seen[job]:
                        seen[job].add(name)
                        if len(seen[job]) == wanted[job]:
                            whole.append(time.perf_counter())
                    if pod.status.phase == "Running":
                        running.add(name)
                        if len(running) == sum(wanted.values()):
                            return Bound(whole, time.perf_counter())

    async def gone(self, path: str) -> None:
        """Delete a collection, and wait until no pod is left and the writes that it causes have
        ended: the garbage collector continues for seconds, and the next round would include its
        requests.
        """
        async with self.http.delete(path, params={"propagationPolicy": "Background"}) as answer:
            answer.raise_for_status()
        async with asyncio.timeout(ROUND_WITHIN_S):
            while json.loads(await self.get(f"{observer.PODS}?limit=1"))["items"]:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            before, after = -1, await self._writes()
            while before != after:
                await asyncio.sleep(QUIET_S)
                before, after = after, await self._writes()

    async def _writes(self) -> int:
        found = await self.requests()
        return sum(count for (verb, _), count in found.items() if verb not in ("GET", "LIST"))


def counted(metrics: str) -> Requests:
    """Parse the API server's metrics: (verb, resource/subresource) -> number of requests."""
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


def cpu_s(system: real_system.RealSystem) -> dict[str, float]:
    """CPU seconds that each process has used so far; ``client`` is this process."""
    parts = system.parts
    outside = (parts.kafka, parts.etcd, parts.api_server, parts.controller_manager, parts.kwok)
    named = {part.name: part for part in outside} | system.services
    tick = os.sysconf("SC_CLK_TCK")
    used = {}
    for name, part in named.items():
        fields = Path(f"/proc/{part.process.pid}/stat").read_text().rpartition(")")[2].split()
        used[name] = (int(fields[11]) + int(fields[12])) / tick
    return used | {"client": time.process_time()}


async def side_by_side(
    items: Iterable[int], work: Callable[[int], Awaitable[None]], concurrency: int
) -> None:
    """Run ``work`` for each item, with this concurrency."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
