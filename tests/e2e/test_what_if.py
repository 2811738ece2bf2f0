"""What-if, end to end: REST, topics, forecast process, command line."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from stromboli.cli import main
from stromboli.client import AsyncClient, errors
from stromboli.shared.api.views.what_if import JobIf, WhatIf
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


async def strom(system: configured_system.ConfiguredSystem, *words: str) -> Result:
    command = [*words, "--server", system.url]
    return await asyncio.to_thread(CliRunner().invoke, main.app, command)


async def answered(client: AsyncClient, job: str, change: JobIf) -> WhatIf:
    """The answer: a question that the scheduler has no time for is asked again."""
    while True:
        with contextlib.suppress(errors.UnavailableError):
            return await client.what_if(job, change)


async def test_a_pending_job_is_answered_beside_its_present_start(tmp_path: Path) -> None:
    """The nodes are full for ten minutes; two more nodes, or half of the pods, would not help
    equally. No forecast runs in the background."""
    more: dict[str, Any] = {"forecast_refresh_s": 0.0, "what_if_cpu": 1.0}
    async with configured_system.running(tmp_path, ACTIONS, TIERS, **more) as system:
        await system.submit("runs", 15, estimate="10m")
        await system.nodes_of("runs", 15)
        await system.submit("next", 4)
        async with AsyncClient(system.url) as client:
            await system.until(
                lambda: client.explanation("next"), lambda it: it.explained is not None
            )
            what_if = await answered(client, "next", JobIf(nodes=2))
            assert what_if.cannot_tell == ""
            assert what_if.present is not None
            assert what_if.changed is not None
            assert what_if.changed.p90 == what_if.changed.at
            assert what_if.present.p10 is not None
            assert 300 < (what_if.present.p10 - what_if.at).total_seconds() <= 606
            fewer = await answered(client, "next", JobIf(replicas={"t": 1}))
            assert fewer.changed is not None
            assert fewer.changed.p90 == fewer.changed.at
            ended = await answered(client, "runs", JobIf(nodes=1))
            assert "not pending" in ended.cannot_tell
        result = await strom(system, "explain", "next", "--if", "nodes=+1", "--if", "gpus=1")
        assert result.exit_code == 0, result.output
        assert "default/next with nodes=+1, gpus=1: cannot tell" in result.stdout
        result = await strom(system, "explain", "next", "--if", "replicas=64")
        assert "  then       can never fit" in result.stdout
        refused = await strom(system, "explain", "next", "--if", "queue=none")
        assert refused.exit_code == 1
        assert "spec.queue" in refused.output


async def test_a_scheduler_that_may_not_answer_says_so(tmp_path: Path) -> None:
    async with configured_system.running(tmp_path, ACTIONS, TIERS, what_if_cpu=0.0) as system:
        await system.submit("wide", 17)
        async with AsyncClient(system.url) as client:
            await system.until(
                lambda: client.explanation("wide"), lambda it: it.explained is not None
            )
            what_if = await client.what_if("wide", JobIf(nodes=2))
        assert "STROM_SCHEDULER_WHAT_IF_CPU" in what_if.cannot_tell
