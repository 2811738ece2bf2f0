"""The loop that sends stored notices: claimed, rate limited, retried with a growing pause.

::

    due ── claim: due_at moves beyond the time limit of an attempt ──▶ send
    send ─┬─▶ sent_at
          ├─▶ due_at: later (a transient error)
          └─▶ failure (a permanent error, or too many attempts)

A claim is an update on the condition of the old ``due_at``, so only one of several replicas sends.
After a crash between the response and its recording, the notice is sent again with the same id.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import sqlalchemy as sa

from stromboli.history.core.rows import micros
from stromboli.history.notifications import channels
from stromboli.history.notifications.notices import Notice
from stromboli.history.notifications.targets import Configuration, Target
from stromboli.history.store import database, tables
from stromboli.shared import errors
from stromboli.shared.jobspec import notifications as requests
from stromboli.shared.runtime import runtime, telemetry

POLL_EVERY_S = 1.0
AT_ONCE = 20
"""Notices that are sent at the same time."""
CLAIM_S = 60.0
"""How long a claim holds, in seconds: more than the time limit of an attempt."""
FIRST_RETRY_S, LONGEST_RETRY_S = 10.0, 3600.0
EXPIRES_S = 24 * 3600.0
"""Seconds after which an unsent notice is dropped: more notices are due for its target than its
limit allows."""
NOT_WAITING = "the job is no longer pending"
"""The ``failure`` of most LongWait notices: the job left Pending in time, so nothing is sent; not
an error."""
MINUTE_US = 60_000_000
MOST_TRIES = 12
"""Maximum attempts; the last one is about three and a half hours after the first."""
Send = Callable[[Notice, Target, Configuration, int], None]

_results = telemetry.meter.create_counter(
    "stromboli.history.notifications", description="attempts to send a notification, by result"
)


class Sender:
    """Sends the notices of one store. ``send`` is called in a thread."""

    def __init__(
        self,
        opened: database.Database,
        configuration: Configuration,
        clock: runtime.Clock,
        send: Send = channels.send,
    ) -> None:
        self._database = opened
        self._configuration = configuration
        self._clock = clock
        self._send = send
        self._sent: dict[str, list[int]] = {}
        """Target -> the times of its notifications in the last minute."""

    async def run(self) -> None:
        """Send due notices until cancelled."""
        while True:
            try:
                is_full = await self.send_due() == AT_ONCE
            except errors.TransientError as error:
                telemetry.log.warning(
                    "notifications delayed: the store is unavailable", error=str(error)
                )
                is_full = False
            if not is_full:
                await asyncio.sleep(POLL_EVERY_S)

    async def send_due(self) -> int:
        """Handle the next due notices; returns how many. Raises UnavailableError."""
        notices = await self._due()
        allowed, limited = [], dict[str, float]()
        for notice in notices:
            if notice.event == requests.LONG_WAIT and not await self._still_waits(notice):
                # before the rate limit: a notice that is not sent must not count against it
                await self._set(notice, failure=NOT_WAITING, is_open=0)
                continue
            wait_s = self._reserve(notice.target)
            if wait_s:
                limited[notice.target] = wait_s
            else:
                allowed.append(notice)
        await asyncio.gather(*map(self._handle, allowed))
        for target, wait_s in limited.items():  # last, so that claimed ones are no longer due
            await self._defer(target, wait_s)
        return len(notices)

    async def _due(self) -> list[Notice]:
        table = tables.NOTICES
        query = (
            sa.select(table)
            .where(table.c.is_open == 1, table.c.due_at <= micros(self._clock()))
            .order_by(table.c.due_at)
            .limit(AT_ONCE)
        )
        async with self._database.transaction() as connection:
            rows: Sequence[sa.RowMapping] = (await connection.execute(query)).mappings().all()
        return [Notice(**{name: row[name] for name in Notice.__struct_fields__}) for row in rows]

    async def _handle(self, notice: Notice) -> None:
        if not await self._update(notice, due_at=self._in(CLAIM_S), tries=notice.tries + 1):
            return  # another replica has it
        target = self._configuration.target(notice.target)
        age_us = micros(self._clock()) - notice.at
        if age_us > (EXPIRES_S + self._configuration.long_wait_s) * 1_000_000:
            await self._fail(
                notice, "it expired before it was sent; raise per_minute in the file of targets"
            )
        elif target is None:
            await self._fail(notice, "the target is no longer configured")
        else:
            await self._try(notice, target)

    async def _try(self, notice: Notice, target: Target) -> None:
        now = self._clock()
        try:
            await asyncio.to_thread(
                self._send, notice, target, self._configuration, int(now.timestamp())
            )
        except errors.TransientError as error:
            tries = notice.tries + 1
            if tries >= MOST_TRIES:
                await self._fail(notice, f"{tries} attempts failed; the last one: {error.reason}")
                return
            wait_s = min(FIRST_RETRY_S * 2**notice.tries, LONGEST_RETRY_S)
            _results.add(1, {"result": "retried"})
            await self._set(
                notice, due_at=self._in(max(wait_s, min(error.retry_after_s, LONGEST_RETRY_S)))
            )
        except errors.PermanentError as error:
            await self._fail(notice, error.reason)
        else:
            _results.add(1, {"result": "sent"})
            await self._set(notice, sent_at=micros(self._clock()), is_open=0)

    async def _fail(self, notice: Notice, reason: str) -> None:
        _results.add(1, {"result": "failed"})
        telemetry.log.warning(
            "notification not sent", target=notice.target, job=notice.job, reason=reason
        )
        await self._set(notice, failure=reason[:300], is_open=0)

    async def _still_waits(self, notice: Notice) -> bool:
        jobs = tables.JOBS
        query = sa.select(jobs.c.phase, jobs.c.retry_count, jobs.c.deleted_at).where(
            jobs.c.uid == notice.job_uid
        )
        async with self._database.transaction() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None or row.deleted_at is not None:
            return False
        return (row.phase, row.retry_count) == ("Pending", notice.retry_count)

    def _reserve(self, target: str) -> float:
        """Count a notification to the target and return 0; at its limit, return the seconds until
        the next one is allowed."""
        now = micros(self._clock())
        minute = [at for at in self._sent.get(target, ()) if now - at < MINUTE_US]
        if len(minute) >= self._configuration.per_minute:
            return (minute[0] + MINUTE_US - now) / 1_000_000
        self._sent[target] = [*minute, now]
        return 0.0

    async def _defer(self, target: str, wait_s: float) -> None:
        """Postpone all due notices of a target, in one statement."""
        table = tables.NOTICES
        is_due = sa.and_(table.c.is_open == 1, table.c.due_at <= micros(self._clock()))
        async with self._database.transaction() as connection:
            await connection.execute(
                sa.update(table)
                .where(table.c.target == target, is_due)
                .values(due_at=self._in(wait_s))
            )

    def _in(self, seconds: float) -> int:
        return micros(self._clock() + timedelta(seconds=seconds))

    async def _update(self, notice: Notice, **values: object) -> bool:
        """Change a notice unless another replica has changed it; returns whether it was changed."""
        table = tables.NOTICES
        statement = sa.update(table).where(
            table.c.id == notice.id, table.c.due_at == notice.due_at, table.c.is_open == 1
        )
        async with self._database.transaction() as connection:
            changed = await connection.execute(statement.values(**values))
        return changed.rowcount == 1

    async def _set(self, notice: Notice, **values: object) -> None:
        """Change a notice that this replica has claimed."""
        table = tables.NOTICES
        async with self._database.transaction() as connection:
            await connection.execute(
                sa.update(table).where(table.c.id == notice.id).values(**values)
            )
