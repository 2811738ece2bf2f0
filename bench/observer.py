"""A client of a real API server, independent of the system: plain requests, watches, one clock.

It shares no code with the system's adapters, so that their errors cannot affect the numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from stromboli.testkit.parts import api, real

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
JOB_NAME = "volcano.sh/job-name"
WITHIN_S = 30.0
"""Seconds within which a job must be bound."""
LONGEST_LINE = 1 << 20

_ANCHOR = time.time() - time.perf_counter()


def now() -> float:
    """Seconds since 1970, advanced by a monotonic clock: corrections of the wall clock have no
    effect."""
    return _ANCHOR + time.perf_counter()


class Sightings:
    """When each job's objects were first seen by the watches: job -> seconds since 1970."""

    def __init__(self) -> None:
        self.job: dict[str, float] = {}
        self.pod_group: dict[str, float] = {}
        self.pod: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.running: set[str] = set()
        self._awaited: dict[str, asyncio.Future[None]] = {}

    def saw_job(self, seen: dict[str, Any], at: float) -> None:
        """Note an event of a job."""
        self.job.setdefault(seen["metadata"]["name"], at)

    def saw_pod_group(self, seen: dict[str, Any], at: float) -> None:
        """Note an event of a PodGroup."""
        for owner in seen["metadata"].get("ownerReferences", ()):
            self.pod_group.setdefault(owner["name"], at)

    def saw_pod(self, seen: dict[str, Any], at: float) -> None:
        """Note an event of a pod."""
        job = seen["metadata"].get("labels", {}).get(JOB_NAME, "")
        self.pod.setdefault(job, at)
        if seen.get("status", {}).get("phase") == "Running":
            self.running.add(seen["metadata"]["name"])
        if seen["spec"].get("nodeName") and job not in self.bound:
            self.bound[job] = at
            waiting = self._awaited.get(job)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def await_bound(self, job: str) -> asyncio.Future[None]:
        """A future that is done when the job's pod has a node. Call it before the job is
        submitted."""
        self._awaited[job] = asyncio.get_running_loop().create_future()
        return self._awaited[job]


class Observer:
    """Requests and watches of one user. Use it as an async context manager."""

    def __init__(self, parts: real.RealParts) -> None:
        self._session = aiohttp.ClientSession(
            base_url=parts.api_url,
            headers={"Authorization": f"Bearer {parts.token}"},
            connector=aiohttp.TCPConnector(ssl=api.tls_context(parts.ca_file)),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=LONGEST_LINE,
        )
        self.sightings = Sightings()
        self._moved = asyncio.Condition()

    async def submit(
        self, name: str, document: dict[str, Any], within_s: float = WITHIN_S
    ) -> tuple[float, float]:
        """Create a job and wait until its pod is seen with a node; return when the request was sent
        and when the server had responded."""
        bound = self.sightings.await_bound(name)
        async with asyncio.timeout(within_s):
            sent = now()
            await self.create(JOBS, document)
            answered = now()
            await bound
        return sent, answered

    async def create(self, path: str, document: dict[str, Any]) -> bytes:
        """Create an object; return it as the API server returns it."""
        body = json.dumps(document).encode()
        headers = {"Content-Type": "application/json"}
        async with self._session.post(path, data=body, headers=headers) as answer:
            made = await answer.read()
        if answer.status != 201:
            raise RuntimeError(f"POST {path}: {answer.status} {made.decode()}")
        return made

    async def seen(self, sightings: dict[str, float], job: str) -> None:
        """Return when the job is among these sightings."""
        async with asyncio.timeout(WITHIN_S), self._moved:
            await self._moved.wait_for(lambda: job in sightings)

    async def seen_running(self, pods: int) -> None:
        """Return when this number of pods has been seen running."""
        async with self._moved:
            await self._moved.wait_for(lambda: len(self.sightings.running) >= pods)

    async def delete(self, name: str) -> None:
        """Delete a job; its dependents are deleted in the background."""
        parameters = {"propagationPolicy": "Background"}
        async with self._session.delete(f"{JOBS}/{name}", params=parameters) as answer:
            await answer.read()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch jobs, PodGroups and pods within this context."""
        seen = self.sightings
        takers = {JOBS: seen.saw_job, POD_GROUPS: seen.saw_pod_group, PODS: seen.saw_pod}
        async with asyncio.TaskGroup() as group:
            opened = [asyncio.Event() for _ in takers]
            tasks = [
                group.create_task(self._watch(path, take, event))
                for (path, take), event in zip(takers.items(), opened, strict=True)
            ]
            for event in opened:
                await event.wait()
            yield
            for task in tasks:
                task.cancel()

    async def _watch(
        self, path: str, take: Callable[[dict[str, Any], float], None], opened: asyncio.Event
    ) -> None:
        async with self._session.get(path) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        while True:  # the server ends the watch of a client that is slow
            parameters = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
            async with self._session.get(path, params=parameters) as answer:
                answer.raise_for_status()
                opened.set()
                async for line in answer.content:
                    at = now()  # before decoding, which would add the observer's own time
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"the watch of {path} failed: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] in ("ADDED", "MODIFIED"):
                        take(event["object"], at)
                        async with self._moved:
                            self._moved.notify_all()

    async def __aenter__(self) -> Observer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
