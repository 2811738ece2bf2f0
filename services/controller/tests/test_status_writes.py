"""A job's status is replaced whole, so it is written on top of the status that it was made from."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from services.controller.tests import stage as stages
from services.controller.tests.stage import Stage
from stromboli.controller.command_executor import CommandExecutor
from stromboli.controller.core import commands
from stromboli.controller.core.store import cache, event_history
from stromboli.controller.event_recorder import EventRecorder
from stromboli.controller.request_limiter import RequestLimiter
from stromboli.shared import errors
from stromboli.shared.api import batch, kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit.builders import make_job

J = "default/j1"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stages.set_up(tmp_path, None) as made:
        yield made


async def written_after(
    stage: Stage, change: str, *, subresource: Literal["", "status"]
) -> batch.Job:
    """A status that was made before somebody else's change, written after it."""
    await stage.submit(make_job())
    before = await stage.until(kinds.JOBS, J, lambda job: True)
    body = change.encode()
    await stage.cluster.patch(
        kinds.JOBS, "default", "j1", body, patch_type="merge", subresource=subresource
    )
    picture = cache.Cache(["volcano"], event_history.Published())
    writer = await stage.bus.open_writer("controller", "test")
    slots = RequestLimiter(8)
    events = EventRecorder(stage.cluster, slots, 0)
    hands = CommandExecutor(
        picture, stage.cluster, writer, slots, lambda _, __: None, runtime.utc_now, events
    )
    status = msgspec.structs.replace(
        before.status, controlled_resources={"plugin-svc": "svc"}, version=1
    )
    command = commands.PatchJobStatus(job=before, status=status)
    async with asyncio.timeout(10):
        await hands.carry_out((command,), J, "")
    return await stage.until(kinds.JOBS, J, lambda job: True)


async def test_what_was_made_for_a_job_is_recorded_though_its_user_changed_it_meanwhile(
    stage: Stage,
) -> None:
    found = await written_after(stage, '{"metadata": {"labels": {"a": "b"}}}', subresource="")
    assert found.status.controlled_resources == {"plugin-svc": "svc"}
    assert found.metadata.label("a") == "b"


async def test_a_status_that_somebody_else_has_written_is_not_overwritten_unseen(
    stage: Stage,
) -> None:
    with pytest.raises(errors.TransientError):
        await written_after(stage, '{"status": {"retryCount": 2}}', subresource="status")
    found = await stage.until(kinds.JOBS, J, lambda job: True)
    assert (found.status.retry_count, found.status.controlled_resources) == (2, {})
