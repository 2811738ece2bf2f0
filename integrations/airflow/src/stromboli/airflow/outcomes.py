"""Waits for the end of a job, in a triggerer or in a worker.

A suspended job has not ended: the wait continues until it is resumed. The wait also continues while
the server is unavailable; its deadlines apply meanwhile.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from stromboli.client import AsyncClient, errors, phases
from stromboli.client.events import Change
from stromboli.client.operations import calls
from stromboli.shared.api import batch

RETRY_S = 5.0
EXPLAIN_EVERY_S = 60.0
"""Seconds between two requests for the reason why a job is pending; a new reason is logged."""
STARTED = frozenset({"Running", "Completing", "Completed", "Failed", "Terminated"})
_TRANSIENT = (errors.UnreachableError, errors.UnavailableError)

ENDED, GONE, TIMED_OUT, NOT_STARTED = "ended", "gone", "timed out", "not started"


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A job to wait for. ``uid``: the job's uid, which a later job of this name does not have;
    empty for any job of this name. ``phases``: phases that end the wait, in addition to the final
    ones. ``start_by`` and ``end_by``: the deadlines of the job's start and end, Unix times."""

    namespace: str
    name: str
    uid: str = ""
    phases: tuple[str, ...] = ()
    start_by: float | None = None
    end_by: float | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a wait. ``result``: ended, gone, timed out, not started, or a trigger's error."""

    result: str
    phase: str = ""
    reason: str = ""

    def fields(self) -> dict[str, str]:
        """The payload of a trigger's event."""
        return {"result": self.result, "phase": self.phase, "reason": self.reason}


class JobView:
    """Folds the changes of a watch of one job."""

    def __init__(self, awaited: Awaited) -> None:
        self._awaited = awaited
        self._is_listed = False
        self._uid = awaited.uid
        self.phase = "Pending"
        self.has_started = False

    def seen(self, change: Change[batch.Job]) -> Outcome | None:
        """Apply a change; returns the outcome if the change ends the wait."""
        job = change.object
        if change.type == "reset":
            self._is_listed = False
        elif change.type == "synced" and not self._is_listed:
            return Outcome(result=GONE, phase=self.phase)
        elif job is not None:
            uid = job.metadata.uid
            if change.type == "deleted" or uid != (self._uid or uid):
                return Outcome(result=GONE, phase=self.phase)
            self._uid, self._is_listed = uid, True
            self.phase = phases.phase_of(job)
            self.has_started = self.has_started or self.phase in STARTED
            if self.phase in phases.FINAL or self.phase in self._awaited.phases:
                return Outcome(result=ENDED, phase=self.phase)
        return None

    def passed(self, now: float) -> Outcome | None:
        """The outcome if a deadline has passed."""
        start_by, end_by = self._awaited.start_by, self._awaited.end_by
        if start_by is not None and not self.has_started and now >= start_by:
            return Outcome(result=NOT_STARTED, phase=self.phase)
        if end_by is not None and now >= end_by:
            return Outcome(result=TIMED_OUT, phase=self.phase)
        return None

    def watch_s(self, now: float) -> float | None:
        """Seconds until the next deadline or explanation; None without one."""
        waits = [] if self._awaited.end_by is None else [self._awaited.end_by - now]
        if not self.has_started:
            start_by = self._awaited.start_by
            waits += [EXPLAIN_EVERY_S, *([] if start_by is None else [start_by - now])]
        return max(min(waits), 0.0) if waits else None


async def outcome(
    awaited: Awaited,
    open_client: Callable[[], Awaitable[AsyncClient]],
    log: Callable[[str], object],
    clock: Callable[[], float] = time.time,
) -> Outcome:
    """Wait for the job. ``log`` receives why it is pending, and failures of the server. Raises
    ClientError for permanent errors."""
    view, wait = JobView(awaited), _Wait(awaited, log)
    while True:
        try:
            async with await open_client() as client:
                # A deadline may have passed while no triggerer ran: the job is read first.
                job_outcome = await _read(client, awaited, view) or view.passed(clock())
                if job_outcome is None:
                    if not view.has_started:
                        await wait.explain(client)
                    job_outcome = await _watched(client, awaited, view, clock)
                if job_outcome is not None:
                    return await wait.with_reason(client, job_outcome)
        except _TRANSIENT as error:
            if (late := view.passed(clock())) is not None:
                return late
            log(f"the state of job {awaited.namespace}/{awaited.name} is unknown: {error}")
            await asyncio.sleep(RETRY_S)


async def _read(client: AsyncClient, awaited: Awaited, view: JobView) -> Outcome | None:
    try:
        job = await client.job(awaited.name, awaited.namespace)
    except errors.NotFoundError:
        return Outcome(result=GONE, phase=view.phase)
    return view.seen(Change("added", job))


async def _watched(
    client: AsyncClient, awaited: Awaited, view: JobView, clock: Callable[[], float]
) -> Outcome | None:
    """Watch until an outcome, the next deadline, or the start of the job."""
    had_started = view.has_started
    call = calls.watch_job(awaited.namespace, awaited.name)
    async with contextlib.aclosing(client.watch(call, view.watch_s(clock()))) as changes:
        async for change in changes:
            if (job_outcome := view.seen(change)) is not None:
                return job_outcome
            if view.has_started and not had_started and awaited.start_by is not None:
                return None  # the deadline of the start no longer applies
    return None


class _Wait:
    def __init__(self, awaited: Awaited, log: Callable[[str], Any]) -> None:
        self._awaited = awaited
        self._log = log
        self._reason = ""

    async def explain(self, client: AsyncClient) -> None:
        """Log why the job is pending, if that changed."""
        reason = await self._explanation(client)
        if reason and reason != self._reason:
            self._log(f"job {self._awaited.namespace}/{self._awaited.name} is pending: {reason}")
            self._reason = reason

    async def with_reason(self, client: AsyncClient, job_outcome: Outcome) -> Outcome:
        if job_outcome.result != NOT_STARTED:
            return job_outcome
        return msgspec.structs.replace(job_outcome, reason=await self._explanation(client))

    async def _explanation(self, client: AsyncClient) -> str:
        with contextlib.suppress(errors.NotFoundError, errors.ForbiddenError):
            return (await client.explanation(self._awaited.name, self._awaited.namespace)).reason
        return ""
