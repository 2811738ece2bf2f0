"""A log that appends the controller's events without acknowledging them."""

import asyncio
from pathlib import Path
from typing import Any

from services.controller.tests.support import service_harness
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port
from stromboli.shared.messages import batch
from stromboli.testkit import records
from stromboli.testkit.builders import make_job, make_node

J = "default/j1"


class UnansweringWriter:
    """Does not acknowledge events of phases."""

    def __init__(self, writer: port.Writer) -> None:
        self._writer = writer
        self.epoch = writer.epoch
        self.opened_at = writer.opened_at

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        appended = await self._writer.append(*drafts)
        if any(isinstance(draft.message, batch.JobPhaseChanged) for draft in drafts):
            raise errors.UnavailableError("append", "nobody answered")
        return appended


class UnansweringBus:
    """See the module."""

    def __init__(self, bus: port.Bus) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def open_writer(self, name: topics.Service, instance: str) -> port.Writer:
        writer = await self._bus.open_writer(name, instance)
        return UnansweringWriter(writer) if name == "controller" else writer


async def test_a_job_that_may_have_been_published_is_published_as_deleted(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(records.DEADLINE_S),
        service_harness.set_up(tmp_path, faults=None) as harness,
    ):
        bus: Any = UnansweringBus(harness.bus)
        harness.bus = bus
        await harness.submit(make_node())
        async with harness.controller():
            await harness.submit(make_job())
            pending = await harness.sent(
                topics.BATCH_EVENTS, batch.JobPhaseChanged, lambda it: it.job == J
            )
            await harness.cluster.delete(kinds.JOBS, "default", "j1")
            gone = await harness.sent(topics.BATCH_EVENTS, batch.JobDeleted, lambda it: it.job == J)
    assert gone.uid == pending.uid
