"""A dump of a running system, tried elsewhere by the same configuration, decides as the system."""

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from stromboli.cli import main
from stromboli.embedded import simulate
from stromboli.embedded.commands import simulate as commands
from stromboli.scheduler.core.simulate import Outcome
from stromboli.shared.api import kinds
from stromboli.testkit import objects
from tests.e2e.support import configured_system as cells

TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: resourcequota
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
QUEUE = objects.make(kinds.QUEUES, "batch", spec={"weight": 3})
QUOTA = objects.make(
    kinds.RESOURCE_QUOTAS, "team", {"namespace": "default"}, spec={"hard": {"cpu": "99"}}
)
FULL = "enqueue, allocate, backfill"


def pod_group(items: list[dict[str, Any]], job: str) -> str:
    """The name of a job's PodGroup."""
    names = [each["metadata"]["name"] for each in items if each["kind"] == "PodGroup"]
    (found,) = [name for name in names if name.startswith(f"{job}-")]
    return str(found)


async def groups(cell: cells.ConfiguredSystem) -> list[bytes]:
    return list((await cell.cluster.list(kinds.POD_GROUPS)).items)


async def strom(cell: cells.ConfiguredSystem, *words: str) -> Result:
    command = [*words, "--server", cell.url]
    return await asyncio.to_thread(CliRunner().invoke, main.app, command)


async def dumped(cell: cells.ConfiguredSystem, folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """What ``strom cluster dump`` prints, in a file."""
    result = await strom(cell, "cluster", "dump")
    assert result.exit_code == 0, result.output
    file = folder / "dump.json"
    file.write_text(result.stdout)
    return file, json.loads(result.stdout)["items"]


async def test_a_simulation_of_a_dump_decides_like_the_system(tmp_path: Path) -> None:
    """Gangs in two queues beside a running one, and one without room: each pod is placed on the
    simulated node, and no other pod is placed.
    """
    async with cells.running(tmp_path, FULL, TIERS) as cell:
        await cell.cluster.create(kinds.QUEUES, "", QUEUE)
        await cell.cluster.create(kinds.RESOURCE_QUOTAS, "default", QUOTA)
        await cell.submit("runs", 3)
        await cell.nodes_of("runs", 3)
        cell.configure(
            "enqueue", TIERS.replace("name: gang", "name: gang\n    arguments: {seen: 1}")
        )
        await cell.until(cell.warnings, lambda reported: "seen" in reported)
        for name, pods, queue in (("a", 5, "default"), ("b", 4, "batch"), ("c", 2, "batch")):
            await cell.submit(name, pods, queue)
        await cell.submit("wide", 9)
        waiting = await cell.until(cell.places, lambda places: len(places) == 3 + 11)
        await cell.until(lambda: groups(cell), lambda found: len(found) == 5)
        file, items = await dumped(cell, tmp_path)
        kinds_there = {each["kind"] for each in items}
        assert {"Node", "Queue", "PodGroup", "Pod", "Namespace", "ResourceQuota"} <= kinds_there
        cell.configure(FULL, TIERS)
        reported = simulate.decide_on([str(file)], tmp_path / "scheduler.yaml", None)
        assert isinstance(reported, Outcome)
        assert len(reported.binds) == 5 + 4 + 2
        assert reported.pod_group_phases["default/" + pod_group(items, "wide")] == "Pending"
        await cell.until(cell.places, lambda places: sum(map(bool, places.values())) == 3 + 11)
        assert await cell.places() == waiting | reported.binds


async def test_a_forecast_of_a_dump_starts_a_gang_when_the_one_before_it_ends(
    tmp_path: Path,
) -> None:
    """Of two equal gangs one has room. What the controller writes about the other is enough."""
    async with cells.running(tmp_path, FULL, TIERS) as cell:
        await cell.submit("runs", 12, estimate="10m")
        await cell.nodes_of("runs", 12)
        await cell.submit("waits", 12, estimate="10m")
        await cell.until(lambda: groups(cell), lambda found: len(found) == 2)
        file, _ = await dumped(cell, tmp_path)
        configuration = str(tmp_path / "scheduler.yaml")
        command = ["forecast", "--objects", str(file), "--config", configuration, "-o", "json"]
        result = await asyncio.to_thread(CliRunner().invoke, commands.app, command)
    (found,) = json.loads(result.stdout)["pod_groups"]
    assert found["pod_group"].startswith("default/waits-")
    assert found["answer"] == "starts"
    assert 300 < found["p10_s"] == found["p90_s"] <= 600
