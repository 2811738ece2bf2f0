"""A system in this process whose scheduler reads a configuration file, used by its REST address."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx

from stromboli.client import server
from stromboli.embedded import state_folder, system
from stromboli.embedded.nodes import simulated
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port

WITHIN_S, POLL_EVERY_S = 90.0, 0.02


class ConfiguredSystem:
    """A running system whose scheduler reads a configuration file."""

    def __init__(
        self, http: httpx.AsyncClient, file: Path, url: str, cluster: port.Cluster
    ) -> None:
        self.url = url
        self.cluster = cluster
        self._http = http
        self._file = file

    def configure(self, actions: str, tiers: str) -> None:
        """As a mounted ConfigMap changes: whole."""
        new = self._file.with_suffix(".new")
        new.write_text(f"actions: {actions}{tiers}")
        new.rename(self._file)

    async def submit(
        self, name: str, pods: int, queue: str = "default", estimate: str | None = None
    ) -> None:
        requests = {"cpu": "1", "memory": "64Mi"}
        container = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
        template = {
            "metadata": {"annotations": {keys.RUN_SECONDS: "600"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        task = {"name": "t", "replicas": pods, "template": template}
        spec = {"minAvailable": pods, "queue": queue, "tasks": [task]}
        if estimate is not None:
            spec["runningEstimate"] = estimate
        answer = await self._http.post(
            "/v1/namespaces/default/jobs", json={"metadata": {"name": name}, "spec": spec}
        )
        answer.raise_for_status()

    async def delete(self, name: str) -> None:
        answer = await self._http.delete(f"/v1/namespaces/default/jobs/{name}")
        answer.raise_for_status()

    async def pods(self, name: str) -> list[dict[str, Any]]:
        answer = await self._http.get(f"/v1/namespaces/default/jobs/{name}/pods")
        found: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
        return found

    async def places(self) -> dict[str, str]:
        """All pods with their nodes; empty for an unbound pod."""
        found = [json.loads(raw) for raw in (await self.cluster.list(kinds.PODS)).items]
        return {
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod["spec"].get(
                "nodeName", ""
            )
            for pod in found
        }

    async def nodes_of(self, name: str, pods: int) -> set[str]:
        """The nodes of a job, once all of its pods have one."""

        def have_nodes(found: list[dict[str, Any]]) -> bool:
            return len(found) == pods and all(pod["spec"].get("nodeName") for pod in found)

        found = await self.until(lambda: self.pods(name), have_nodes)
        return {pod["spec"]["nodeName"] for pod in found}

    async def runs(self, name: str) -> None:
        """Wait until a job runs: then nothing about it changes any more."""

        async def phase() -> str:
            answer = await self._http.get(f"/v1/namespaces/default/jobs/{name}")
            status = answer.raise_for_status().json().get("status", {})
            return str(status.get("state", {}).get("phase", ""))

        await self.until(phase, lambda found: found == "Running")

    async def warnings(self) -> str:
        return (await self._http.get("/readyz")).raise_for_status().text

    async def until(self, look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(WITHIN_S):
            while not wanted(value := await look()):  # noqa: ASYNC110 - REST has no events
                await asyncio.sleep(POLL_EVERY_S)
        return value


@contextlib.asynccontextmanager
async def running(
    folder: Path, actions: str, tiers: str, **more: Any
) -> AsyncIterator[ConfiguredSystem]:
    """Two nodes of 8 CPUs, and this configuration to begin with. ``more``: further settings of the
    scheduler."""
    file = folder / "scheduler.yaml"
    file.write_text(f"actions: {actions}{tiers}")
    settings = SchedulerSettings(
        configuration=str(file), configuration_check_s=POLL_EVERY_S, **more
    )
    nodes = tuple(simulated.node_documents(2, cpu="8", memory="16Gi", gpus=0))
    options = system.Options(state=state_folder.embedded(folder), nodes=nodes, scheduler=settings)
    async with contextlib.AsyncExitStack() as stack:
        made = await stack.enter_async_context(system.run_system(options))
        await made.ready()
        http = await stack.enter_async_context(
            httpx.AsyncClient(**server.httpx_options(made.url, 30))
        )
        yield ConfiguredSystem(http, file, made.url, made.cluster)
