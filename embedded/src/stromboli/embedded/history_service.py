"""The history in embedded mode: its store is a file of the state folder.

It starts with the first query, or some seconds after the other services are ready: importing
SQLAlchemy takes a second of CPU, which must not delay the start of the system. The log keeps all
events until then. Problems of the history are reported as warnings of the system.
"""

import asyncio
import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stromboli.history.settings import HistorySettings
from stromboli.shared import errors
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import port
from stromboli.shared.runtime import runtime

FILE = "history.db"
STARTS_AFTER_S = 15.0
STARTED_WITHIN_S = 20.0


class EmbeddedHistory:
    """Implements ``accounting.History``: answers queries once the service runs."""

    def __init__(self) -> None:
        self._wanted = asyncio.Event()
        self._started: asyncio.Future[accounting.History] = asyncio.Future()

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        """A page of attempts."""
        return await (await self._service()).attempts(query)

    async def jobs(self, query: accounting.JobQuery) -> accounting.JobPage:
        """A page of jobs."""
        return await (await self._service()).jobs(query)

    async def evictions(self, query: accounting.EvictionQuery) -> accounting.EvictionPage:
        """A page of evictions."""
        return await (await self._service()).evictions(query)

    async def changes(self, query: accounting.ChangeQuery) -> accounting.ChangePage:
        """A page of changes of the cluster."""
        return await (await self._service()).changes(query)

    async def explanations(self, query: accounting.ExplanationQuery) -> accounting.ExplanationPage:
        """A page of explanations."""
        return await (await self._service()).explanations(query)

    async def usage(self, query: accounting.UsageQuery) -> accounting.UsageReport:
        """A report of usage."""
        return await (await self._service()).usage(query)

    async def run(
        self,
        state: Path,
        notifications: str,
        bus: port.Bus,
        clock: runtime.Clock,
        health: runtime.Health,
        others: Sequence[runtime.Health],
    ) -> None:
        """Keep the store up to date until cancelled. The history starts after the other services.
        ``notifications``: the file with the targets of notifications; empty without one."""
        for other in others:
            await other.ready()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTS_AFTER_S):
                await self._wanted.wait()
        service: Any = await asyncio.to_thread(importlib.import_module, "stromboli.history.service")
        settings = HistorySettings(
            database=f"sqlite:///{(state / FILE).resolve()}", notifications_file=notifications
        )
        history_service = service.HistoryService(settings, bus, clock, health.warn, health.warn)
        self._started.set_result(history_service)
        try:
            await history_service.run()
        except* errors.ConfigurationError as group:
            # A file of a later version: everything else works without the history.
            health.warn("history", "; ".join(str(each) for each in group.exceptions))

    async def _service(self) -> accounting.History:
        self._wanted.set()
        try:
            async with asyncio.timeout(STARTED_WITHIN_S):
                return await asyncio.shield(self._started)
        except TimeoutError:
            raise errors.UnavailableError("history", "the history service is starting") from None
