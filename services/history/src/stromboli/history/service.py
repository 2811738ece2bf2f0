"""The history's shell: reads the log into the store and answers queries.

::

    batch.events, scheduling.decisions, .outcomes, admission.reviews, cluster.* ── a batch ──▶
                         one transaction: position in the log, rows, unreadable records
    unreadable records ──▶ dead.letters, before the transaction is committed
    notices (an outbox in the same transaction) ──▶ webhooks, Slack, mail
    query ── wait until the log's end at its arrival is in the store ──▶ rows

It writes only dead letters to the log, so its absence stops no other service. Several replicas may
run on one PostgreSQL: if two apply the same batch, the later one fails and continues after it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from stromboli.history.core import folding
from stromboli.history.core.rows import micros
from stromboli.history.notifications import notices, sender, targets
from stromboli.history.settings import HistorySettings
from stromboli.history.store import (
    change_queries,
    daily_usage,
    database,
    explanation_queries,
    job_queries,
    queries,
    retention,
    usage,
    writer,
)
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import materialization, port
from stromboli.shared.messages import log
from stromboli.shared.runtime import runtime, telemetry

MIGRATED_WITHIN_S = 2.0
"""How long a query waits for the tables, which the service creates at its start."""
UP_TO_DATE_WITHIN_S = 2.0
"""How long a query waits for the end of the log; after it, the answer is marked incomplete."""
RETENTION_EVERY_S = 3600.0
POD_USAGE_DAYS = 15.0
"""Days that measurements of pods are kept to combine them with later ones: longer than the log
keeps them. Attempts have their results."""
SUMMED_EVERY_S = 60.0
SUMMED_AFTER = timedelta(minutes=10)
"""Time from an attempt's end until it is added to the sums of days: late events arrive within
it."""
Report = Callable[[str, str | None], None]
T = TypeVar("T")

_applied = telemetry.meter.create_counter(
    "stromboli.history.records", description="records of the log that are in the store, by topic"
)
_lag = telemetry.meter.create_histogram(
    "stromboli.history.lag",
    unit="s",
    description="time from the oldest event of a transaction until it is in the store",
)
_unreadable = telemetry.meter.create_counter(
    "stromboli.history.unreadable", description="records that were isolated, by topic"
)


class HistoryService:
    """Keeps the store up to date and answers queries. ``report`` receives problems by fact:
    ``Health.set``, or ``Health.warn`` where the process has other work that does not depend on the
    history. ``warn``: ``Health.warn``."""

    def __init__(
        self,
        settings: HistorySettings,
        bus: port.Bus,
        clock: runtime.Clock,
        report: Report,
        warn: Report,
    ) -> None:
        self._warn = warn
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._report = report
        self._database = database.Database(
            settings.database, settings.database_password, settings.instance
        )
        self._migrated = asyncio.Event()
        file = settings.notifications_file
        self._notifications = targets.load(file) if file else None
        self._dead_letters: port.Writer | None = None
        self._read_up_to: Mapping[str, int] = {}
        self._last_read: envelope.Record | None = None
        self._events_topics = 0
        self._advanced = asyncio.Event()
        self._hurry = asyncio.Event()
        self._unreadable = 0

    async def run(self) -> None:
        """Keep the store up to date until cancelled."""
        try:
            await self._available(self._database.migrate)
            self._migrated.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read())
                tasks.create_task(self._forget_expired())
                tasks.create_task(self._sum_up())
                if self._notifications is not None:
                    sending = sender.Sender(self._database, self._notifications, self._clock)
                    tasks.create_task(sending.run())
        finally:
            await self._database.close()

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        """A page of attempts; see ``accounting.History``."""
        is_complete = await self._is_up_to_date()
        page = await queries.attempts(self._database, query, self._clock())
        return msgspec.structs.replace(page, complete=is_complete)

    async def jobs(self, query: accounting.JobQuery) -> accounting.JobPage:
        """A page of jobs; see ``accounting.History``."""
        is_complete = await self._is_up_to_date()
        page = await job_queries.jobs(self._database, query)
        return msgspec.structs.replace(page, complete=is_complete)

    async def evictions(self, query: accounting.EvictionQuery) -> accounting.EvictionPage:
        """A page of evictions; see ``accounting.History``."""
        is_complete = await self._is_up_to_date()
        page = await job_queries.evictions(self._database, query)
        return msgspec.structs.replace(page, complete=is_complete)

    async def changes(self, query: accounting.ChangeQuery) -> accounting.ChangePage:
        """A page of changes of the cluster; see ``accounting.History``."""
        is_complete = await self._is_up_to_date()
        page = await change_queries.changes(self._database, query)
        return msgspec.structs.replace(page, complete=is_complete)

    async def explanations(self, query: accounting.ExplanationQuery) -> accounting.ExplanationPage:
        """A page of explanations; see ``accounting.History``."""
        is_complete = await self._is_up_to_date()
        page = await explanation_queries.explanations(self._database, query)
        return msgspec.structs.replace(page, complete=is_complete)

    async def usage(self, query: accounting.UsageQuery) -> accounting.UsageReport:
        """A report of usage; see ``accounting.History``."""
        is_complete = await self._is_up_to_date()
        report = await usage.report(self._database, query, self._clock())
        return msgspec.structs.replace(report, complete=is_complete)

    async def _read(self) -> None:
        while True:
            applying = writer.Writer(self._database, self._notices, self._publish_dead_letters)
            start = await self._available(applying.position)
            try:
                await self._read_from(applying, start)
            except writer.ReplacedError:
                telemetry.log.info(
                    "another replica wrote the batch", next="continue after that batch"
                )

    def _notices(self, message: msgspec.Struct) -> Iterable[notices.Notice]:
        if self._notifications is None:
            return ()
        return notices.notices(message, self._notifications, self._clock())

    async def _publish_dead_letters(self, unreadable_records: Sequence[writer.Unreadable]) -> None:
        """Publish dead letters. If the log refuses them, the service continues: the records are in
        the table of unreadable ones. Raises TransientError."""
        now = self._clock()
        if self._dead_letters is None:
            instance = self._settings.instance
            self._dead_letters = await self._bus.open_writer("history", instance)
        for each in unreadable_records:
            letter = runtime.dead_letter(each.record, "history", each.reason, now)
            try:
                await self._dead_letters.append(letter)
            except errors.PermanentError as error:
                telemetry.log.error("dead letter refused", error=str(error))

    async def _read_from(self, applying: writer.Writer, start: port.Position) -> None:
        reading = materialization.materialize(
            self._bus,
            folding.READ,
            self._report,
            "log",
            start,
            # Rows of a deleted topic stay: they record events that happened.
            on_recreated=lambda _: None,
        )
        written = start
        async with contextlib.aclosing(reading) as batches:
            async for batch in batches:
                if batch.records or batch.position.topic_ids != written.topic_ids:
                    await self._apply(applying, batch)
                    written = batch.position
                self._note_read(batch)
                if batch.caught_up and batch.records:
                    await self._pause()

    async def _apply(self, applying: writer.Writer, batch: port.Batch) -> None:
        isolated = await self._available(lambda: applying.apply(batch.records, batch.position))
        for record in batch.records:
            _applied.add(1, {"topic": record.topic.name})
        if (lag := lag_s(batch.records, self._clock())) is not None:
            _lag.record(lag)
        for each in isolated:
            self._unreadable += 1
            _unreadable.add(1, {"topic": each.record.topic.name})
            telemetry.log.error(
                "unreadable record",
                topic=each.record.topic.name,
                offset=each.record.offset,
                error=each.reason,
            )
        if isolated:
            note = f"{self._unreadable} since the start; dead.letters has them"
            self._warn("unreadable records", note)

    def _note_read(self, batch: port.Batch) -> None:
        """Notes that the batch is in the store, and wakes the queries that wait for it."""
        self._read_up_to = batch.positions
        if topics.BATCH_EVENTS.name in batch.recreated:
            self._events_topics += 1
            self._last_read = None
        for record in (*batch.records, *batch.fenced):
            if record.topic == topics.BATCH_EVENTS and record.type != log.ANNOUNCED:
                self._last_read = record
        self._advanced.set()
        self._advanced = asyncio.Event()

    async def _pause(self) -> None:
        """Pause, so that the next batch is larger, unless a query waits for records."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.batch_pause_s):
                await self._hurry.wait()

    async def _is_up_to_date(self) -> bool:
        """Waits until the store has all events up to the current end of the topic; returns whether
        it has. Raises UnavailableError while there are no tables."""
        try:
            async with asyncio.timeout(MIGRATED_WITHIN_S):
                await self._migrated.wait()
        except TimeoutError:
            raise errors.UnavailableError("history", "the history service is starting") from None
        self._hurry.set()
        last_read, topic = self._last_read, self._events_topics
        try:
            async with asyncio.timeout(UP_TO_DATE_WITHIN_S):
                newest = await self._bus.last_record(topics.BATCH_EVENTS)
                end = 0 if newest is None else newest.offset + 1
                is_recreated = _is_of_another_topic(last_read, newest)
                while (is_recreated and topic == self._events_topics) or (
                    self._read_up_to.get(topics.BATCH_EVENTS.name, -1) < end
                ):
                    await self._advanced.wait()
        except (TimeoutError, errors.TransientError):
            return False
        finally:
            self._hurry.clear()
        return True

    async def _forget_expired(self) -> None:
        settings = self._settings
        kept_days = {
            "attempts": settings.attempts_days,
            "jobs": settings.jobs_kept_days,
            "phases": settings.phases_days,
            "job_requests": settings.phases_days,
            "evictions": settings.evictions_days,
            "cluster_changes": settings.changes_days,
            "explanations": settings.explanations_days,
            "queue_positions": settings.explanations_days,
            "last_explanations": settings.explanations_days,
            "notices": settings.notices_days,
            "daily_usage": settings.usage_days,
            "pod_usage": POD_USAGE_DAYS,
        }
        if settings.jobs_kept_days != settings.jobs_days:
            telemetry.log.warning(
                "jobs are kept as long as their attempts",
                jobs_days=settings.jobs_days,
                attempts_days=settings.attempts_days,
                next="set STROM_HISTORY_JOBS_DAYS to at least STROM_HISTORY_ATTEMPTS_DAYS",
            )
        while True:
            for table, days in kept_days.items():
                before = micros(self._clock() - timedelta(days=days))
                deleted = retention.ROWS_PER_DELETE
                while days and deleted == retention.ROWS_PER_DELETE:
                    deleted = await self._delete_some(table, before)
            await asyncio.sleep(RETENTION_EVERY_S)

    async def _sum_up(self) -> None:
        """Add ended attempts to the sums of days, step by step."""
        added = 0
        while True:
            before = micros(self._clock() - SUMMED_AFTER)
            step = await self._available(lambda: daily_usage.add_some(self._database, before))  # noqa: B023 - called at once
            added += step
            if step:
                continue
            if added >= daily_usage.ANALYZED_AFTER:
                await self._available(lambda: daily_usage.update_statistics(self._database))
                added = 0
            await asyncio.sleep(SUMMED_EVERY_S)

    async def _delete_some(self, table: str, before: int) -> int:
        return await self._available(
            lambda: retention.delete_expired(self._database, table, before)
        )

    async def _available(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of ``call``, retried while the store is unavailable, which is reported."""
        backoff = runtime.Backoff()
        while True:
            try:
                result = await call()
            except errors.TransientError as error:
                self._report("store", str(error))
                await asyncio.sleep(backoff.next_s(error.retry_after_s))
            else:
                self._report("store", None)
                return result


def lag_s(records: Iterable[envelope.Record], now: datetime) -> float | None:
    """Seconds since the oldest event of jobs; None without one. Snapshots may be of any age."""
    times = []
    for record in records:
        if record.topic == topics.BATCH_EVENTS:
            with contextlib.suppress(errors.UndecodableError):  # it is isolated
                times.append(record.time)
    return max(0.0, (now - min(times)).total_seconds()) if times else None


def _is_of_another_topic(last_read: envelope.Record | None, newest: envelope.Record | None) -> bool:
    """Whether the topic was created again since a record was read: the newest record, looked up
    later, has a lower offset, or the same offset and other content. Offsets of the two topics
    cannot be compared."""
    if last_read is None or newest is None:
        return False
    is_other = newest.offset == last_read.offset and newest.id != last_read.id
    return newest.offset < last_read.offset or is_other
