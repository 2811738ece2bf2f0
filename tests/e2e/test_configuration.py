"""The scheduler's configuration file in a running system: what it says is what decides next."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.local import system
from stromboli.local.nodes import simulated
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import keys

WITHIN_S, LOOK_EVERY_S = 30.0, 0.02
TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
    arguments: {leastrequested.weight: %d, mostrequested.weight: %d}
"""
SPREAD = TIERS % (10, 0)
PACK = TIERS.replace("weight: %d}", "weight: %d, seen: 1}") % (0, 10)
"""``seen``, which nobody knows, is told of once the file is in force."""


class Cell:
    """A running system whose scheduler follows a file."""

    def __init__(self, http: httpx.AsyncClient, file: Path) -> None:
        self._http = http
        self._file = file

    def configure(self, actions: str, tiers: str = SPREAD) -> None:
        """As a mounted ConfigMap changes: whole."""
        new = self._file.with_suffix(".new")
        new.write_text(f"actions: {actions}{tiers}")
        new.rename(self._file)

    async def submit(self, name: str, pods: int, queue: str = "default") -> None:
        requests = {"cpu": "1", "memory": "64Mi"}
        container = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
        template = {
            "metadata": {"annotations": {keys.RUN_SECONDS: "600"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        task = {"name": "t", "replicas": pods, "template": template}
        spec = {"minAvailable": pods, "queue": queue, "tasks": [task]}
        answer = await self._http.post(
            "/v1/namespaces/default/jobs", json={"metadata": {"name": name}, "spec": spec}
        )
        answer.raise_for_status()

    async def pods(self, name: str) -> list[dict[str, Any]]:
        answer = await self._http.get(f"/v1/namespaces/default/jobs/{name}/pods")
        found: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
        return found

    async def nodes_of(self, name: str, pods: int) -> set[str]:
        """The nodes of a job, once all of its pods have one."""

        def have_nodes(found: list[dict[str, Any]]) -> bool:
            return len(found) == pods and all(pod["spec"].get("nodeName") for pod in found)

        found = await self.until(lambda: self.pods(name), have_nodes)
        return {pod["spec"]["nodeName"] for pod in found}

    async def warnings(self) -> str:
        return (await self._http.get("/readyz")).raise_for_status().text

    async def until(self, look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(WITHIN_S):
            while not wanted(seen := await look()):  # noqa: ASYNC110 - REST has no events
                await asyncio.sleep(LOOK_EVERY_S)
        return seen


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    file = tmp_path / "scheduler.yaml"
    file.write_text("actions: enqueue" + SPREAD)
    settings = SchedulerSettings(configuration=str(file), configuration_check_s=LOOK_EVERY_S)
    nodes = tuple(simulated.node_documents(2, cpu="8", memory="16Gi", gpus=0))
    options = system.Options(state=tmp_path / "state", nodes=nodes, scheduler=settings)
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(system.running(options))
        await running.ready()
        yield Cell(await stack.enter_async_context(httpx.AsyncClient(base_url=running.url)), file)


async def test_a_change_of_actions_and_arguments_decides_next(cell: Cell) -> None:
    """Without allocate pods are made and wait. Once it is there they are spread over the nodes, and
    after a change of weights the next job is packed onto one."""
    await cell.submit("first", 4)
    waiting = await cell.until(lambda: cell.pods("first"), lambda found: len(found) == 4)
    assert not any(pod["spec"].get("nodeName") for pod in waiting)
    cell.configure("enqueue, allocate")
    assert len(await cell.nodes_of("first", 4)) == 2
    cell.configure("enqueue, allocate", PACK)
    await cell.until(cell.warnings, lambda told: "seen" in told)
    await cell.submit("second", 4)
    assert len(await cell.nodes_of("second", 4)) == 1


async def test_a_mistake_is_told_with_its_line_and_the_one_before_goes_on_deciding(
    cell: Cell,
) -> None:
    cell.configure("enqueue, allocate")
    await cell.submit("first", 2)
    await cell.nodes_of("first", 2)
    cell.configure("enqueue, alocate")
    told = await cell.until(cell.warnings, lambda told: "configuration" in told)
    assert "the one before stays in force" in told
    assert "scheduler.yaml:1: actions: 'alocate' is not a known action" in told
    await cell.submit("second", 2)
    assert await cell.nodes_of("second", 2)
    cell.configure("enqueue, allocate")
    await cell.until(cell.warnings, lambda told: "configuration" not in told)
