"""When pending jobs start, end to end: forecast process, topic, REST, client, command line."""

import asyncio
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from stromboli.cli import main
from stromboli.client import AsyncClient
from stromboli.shared.api.views.expected_start import ExpectedStart
from tests.e2e.support import configured_system

ACTIONS = "enqueue, allocate, backfill"
TIERS = """
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


async def strom(system: configured_system.ConfiguredSystem, *words: str) -> str:
    command = [*words, "--server", system.url]
    result = await asyncio.to_thread(CliRunner().invoke, main.app, command)
    assert result.exit_code == 0, result.output
    return result.stdout


async def starts(client: AsyncClient) -> dict[str, ExpectedStart]:
    """The expected starts by the name of the job."""
    found = await client.expected_starts("default")
    return {each.pod_group.partition("/")[2].partition("-")[0]: each for each in found}


async def test_a_pending_job_has_the_range_of_its_expected_start(tmp_path: Path) -> None:
    """The nodes are full for about ten minutes, as the running job estimates."""
    forecast: dict[str, Any] = {"forecast_refresh_s": 1.0, "forecast_cpu": 1.0}
    async with configured_system.running(tmp_path, ACTIONS, TIERS, **forecast) as system:
        await system.submit("runs", 16, estimate="10m")
        await system.nodes_of("runs", 16)
        await system.submit("next", 16)
        await system.submit("wide", 17)
        async with AsyncClient(system.url) as client:
            found = await system.until(
                lambda: starts(client), lambda it: {"next", "wide"} <= it.keys()
            )
            assert found["wide"].answer == "can-never-fit"
            start = found["next"]
            assert start.answer == "starts"
            assert start.p10 is not None
            assert 300 < (start.p10 - start.at).total_seconds() <= 606  # the tolerance is 1 %
            explained = await client.explanation("next")
            assert explained.expected is not None
            assert explained.expected.pod_group == start.pod_group
            assert (await client.explanation("runs")).expected is None
        about = re.compile(r"  starts     in ([5-9]m\d*s?|10m) \(as of \d+s ago\)")
        assert about.search(await strom(system, "explain", "next"))
        assert about.search(await strom(system, "job", "get", "next"))
        assert "  starts     can never fit" in await strom(system, "explain", "wide")
        lines = (await strom(system, "job", "list")).splitlines()
        assert "STARTS IN" in lines[0]
        cells = {line.split()[0]: line for line in lines[1:]}
        assert re.search(r" ([5-9]m\d*s?|10m)", cells["next"])
        assert "never" in cells["wide"]


async def test_a_forecast_process_that_fails_is_a_warning_and_stops_nothing(tmp_path: Path) -> None:
    """This one has not enough memory."""
    forecast: dict[str, Any] = {"forecast_refresh_s": 1.0, "forecast_memory_mib": 1}
    async with configured_system.running(tmp_path, ACTIONS, TIERS, **forecast) as system:
        await system.submit("wide", 17)
        warned = await system.until(system.warnings, lambda it: "expected starts" in it)
        assert "forecast of first" in warned
        await system.submit("runs", 2)
        await system.nodes_of("runs", 2)


async def test_without_forecasts_a_pending_job_is_explained_as_before(tmp_path: Path) -> None:
    off: dict[str, Any] = {"forecast_refresh_s": 0.0}
    async with configured_system.running(tmp_path, ACTIONS, TIERS, **off) as system:
        await system.submit("wide", 17)

        async def explained() -> str:
            return await strom(system, "explain", "wide")

        text = await system.until(explained, lambda it: "is pending" in it)
        assert "starts " not in text
