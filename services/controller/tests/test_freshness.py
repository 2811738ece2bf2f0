"""The monitor's heartbeats: without them no work is started, and clocks do not matter."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from services.controller.tests.support import service_harness
from services.controller.tests.support.service_harness import Harness
from stromboli.shared import topics
from stromboli.shared.api import kinds
from stromboli.testkit.builders import make_job, make_node

ROUND_TRIPS = 5
"""Appends by the controller after it has read a job: as many writes as a job needs to begin."""


@pytest.fixture(params=[None, 1], ids=["in order", "disorder 1"])
async def harness(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with service_harness.set_up(tmp_path, request.param) as made:
        await made.submit(make_node())
        yield made


async def test_nothing_is_begun_while_the_monitor_is_silent(harness: Harness) -> None:
    """A job that the controller has read gets no phase and no PodGroup: what it knows of the
    cluster may be outdated."""
    async with harness.controller(sync_max_age_s=0.3):
        await harness.health.ready()
        harness.is_silent = True
        while "sync" not in harness.health.problems:  # noqa: ASYNC110 - health is polled
            await asyncio.sleep(0)
        # In disorder the controller may just have begun to read the log again: "not seen since".
        assert " seen " in harness.health.problems["sync"]
        await harness.submit(make_job("late"))
        for _ in range(ROUND_TRIPS):
            await harness.has_read(topics.JOBS, "default/late")
        late = await harness.until(kinds.JOBS, "default/late", lambda _: True)
        assert late.status.state.phase == ""
        assert not await harness.names(kinds.POD_GROUPS)
        harness.is_silent = False
        await harness.job("default/late", "Pending")


@pytest.mark.parametrize("off", [timedelta(minutes=-10), timedelta(minutes=10)])
async def test_a_clock_that_differs_from_the_monitors_blocks_nothing(
    harness: Harness, off: timedelta
) -> None:
    harness.ahead = off
    async with harness.controller(sync_max_age_s=5.0):
        await harness.submit(make_job("one"))
        await harness.job("default/one", "Pending")
