"""A job's status is replaced whole, so it is written on top of the status that it was made from."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from services.controller.tests.support import service_harness
from services.controller.tests.support.service_harness import Harness, no_key
from stromboli.controller.core import commands
from stromboli.controller.core.store import batch_state, controller_cache, event_history
from stromboli.controller.execution.command_executor import CommandExecutor
from stromboli.controller.execution.event_recorder import EventRecorder
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.shared import errors
from stromboli.shared.api import batch, kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit import records
from stromboli.testkit.builders import make_job

J = "default/j1"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with service_harness.set_up(tmp_path, None) as made:
        yield made


async def written_after(
    harness: Harness, change: str, *, subresource: Literal["", "status"]
) -> batch.Job:
    """Write a status that was derived before another client's change, after it."""
    await harness.submit(make_job())
    before = await harness.until(kinds.JOBS, J, lambda job: True)
    body = change.encode()
    await harness.cluster.patch(
        kinds.JOBS, "default", "j1", body, patch_type="merge", subresource=subresource
    )
    cache = controller_cache.ControllerCache(["volcano"], event_history.EventHistory())
    writer = await harness.bus.open_writer("controller", "test")
    limiter = RequestLimiter(8)
    events = EventRecorder(harness.cluster, limiter, 0)
    state = batch_state.BatchState(cache.published)
    executor = CommandExecutor(
        cache, harness.cluster, writer, state, limiter, no_key, runtime.utc_now, events
    )
    status = msgspec.structs.replace(
        before.status, controlled_resources={"plugin-svc": "svc"}, version=1
    )
    command = commands.PatchJobStatus(job=before, status=status)
    async with asyncio.timeout(records.DEADLINE_S):
        await executor.carry_out((command,), J, "")
    return await harness.until(kinds.JOBS, J, lambda job: True)


async def test_created_objects_are_recorded_despite_concurrent_changes_of_the_job(
    harness: Harness,
) -> None:
    job = await written_after(harness, '{"metadata": {"labels": {"a": "b"}}}', subresource="")
    assert job.status.controlled_resources == {"plugin-svc": "svc"}
    assert job.metadata.label("a") == "b"


async def test_a_status_that_another_client_has_written_is_not_overwritten_unseen(
    harness: Harness,
) -> None:
    with pytest.raises(errors.TransientError):
        await written_after(harness, '{"status": {"retryCount": 2}}', subresource="status")
    found = await harness.until(kinds.JOBS, J, lambda job: True)
    assert (found.status.retry_count, found.status.controlled_resources) == (2, {})
