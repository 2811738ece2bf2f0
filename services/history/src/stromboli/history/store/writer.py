"""The transaction of a batch: position and rows together, so that each record has its effect
exactly once, however often the service is killed."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from stromboli.history.core import folding
from stromboli.history.core.rows import (
    AttemptRow,
    ChunkRow,
    EvictionRow,
    JobRow,
    LastExplanationRow,
    ObjectRow,
    PhaseRow,
    PodUsageRow,
    Rows,
    text,
)
from stromboli.history.store import associations, daily_usage, database, tables
from stromboli.shared import decoding, envelope, errors
from stromboli.shared.bus import port

R = TypeVar(
    "R", JobRow, AttemptRow, EvictionRow, ObjectRow, LastExplanationRow, ChunkRow, PodUsageRow
)
KEYS_PER_QUERY = 1000
"""Keys of one SELECT: both databases limit the parameters of a statement."""
LONGEST_REASON = 1000
_POSITION = decoding.decoder_of(port.Position)


class ReplacedError(Exception):
    """Another replica wrote a batch since this one read the position: continue after that batch."""


class Unreadable(msgspec.Struct, frozen=True):
    """A record that could not be decoded or stored, and the reason."""

    record: envelope.Record
    reason: str


Notices = Callable[[msgspec.Struct], Iterable[msgspec.Struct]]
PublishDeadLetters = Callable[[Sequence[Unreadable]], Awaitable[None]]


def no_notices(_: msgspec.Struct) -> tuple[msgspec.Struct, ...]:
    """The notices of an installation without notifications."""
    return ()


async def no_dead_letters(_: Sequence[Unreadable]) -> None:
    """Publishes nothing: for a store that is written without a log."""


class Writer:
    """Applies batches of records to the tables."""

    def __init__(
        self,
        opened: database.Database,
        notices: Notices = no_notices,
        publish_dead_letters: PublishDeadLetters = no_dead_letters,
    ) -> None:
        """``notices`` makes the notices of an event; they are stored with its other effects.
        ``publish_dead_letters`` publishes dead letters, before the commit: at least once."""
        self._database = opened
        self._notices = notices
        self._publish_dead_letters = publish_dead_letters
        self._revision = 0

    async def position(self) -> port.Position:
        """Where to continue in the log. Raises UnavailableError."""
        async with self._database.transaction() as connection:
            row = (await connection.execute(sa.select(tables.READ_UP_TO))).one()
        self._revision = row.revision
        return port.Position() if row.position == "{}" else _POSITION.decode(row.position)

    async def apply(
        self, records: Sequence[envelope.Record], position: port.Position
    ) -> list[Unreadable]:
        """Apply a batch in one transaction; returns the records that could not be read or
        stored, which are isolated in a table. Raises UnavailableError and ReplacedError; nothing
        is applied then."""
        readable, unreadable = _decode(records)
        try:
            await self._apply([event for _, event in readable], unreadable, position)
        except database.RecordRejectedError:
            unreadable += await self._apply_one_by_one(readable, unreadable, position)
        self._revision += 1
        return unreadable

    async def _apply(
        self,
        events: Sequence[folding.Event],
        unreadable: Sequence[Unreadable],
        position: port.Position,
    ) -> None:
        async with self._database.transaction() as connection:
            await self._advance(connection, position)
            await self._fold(connection, events)
            await self._isolate(connection, unreadable, position)

    async def _apply_one_by_one(
        self,
        readable: Sequence[tuple[envelope.Record, folding.Event]],
        unreadable: Sequence[Unreadable],
        position: port.Position,
    ) -> list[Unreadable]:
        """Applies a batch with a savepoint per record; returns the rejected records."""
        refused = []
        async with self._database.transaction() as connection:
            await self._advance(connection, position)
            for record, event in readable:
                try:
                    async with connection.begin_nested():
                        await self._fold(connection, [event])
                except sa.exc.DBAPIError as error:
                    if not database.is_of_values(error):
                        raise
                    refused.append(Unreadable(record, str(error.orig)))
            await self._isolate(connection, [*unreadable, *refused], position)
        return refused

    async def _advance(self, connection: AsyncConnection, position: port.Position) -> None:
        """Write the position. The first statement of the transaction: it locks the row for other
        writers, and of two writers the later one fails."""
        table = tables.READ_UP_TO
        advanced = await connection.execute(
            sa.update(table)
            .where(table.c.id == 1, table.c.revision == self._revision)
            .values(
                revision=self._revision + 1,
                position=msgspec.json.encode(position, order="deterministic").decode(),
            )
        )
        if advanced.rowcount != 1:
            raise ReplacedError

    async def _fold(self, connection: AsyncConnection, events: Sequence[folding.Event]) -> None:
        rows = await _load(connection, folding.needed(events))
        before = _copies(rows)
        for event in events:
            folding.fold(rows, event)
        changed = _changed(before.attempts, rows.attempts)
        changed_jobs = _changed(before.jobs, rows.jobs)
        regrouped = _regrouped(before, rows)
        await self._subtract(connection, changed, regrouped)
        await associations.associate(connection, rows, changed, regrouped)
        await self._put(connection, tables.JOBS, changed_jobs)
        await associations.put_labels(connection, before.jobs, changed_jobs)
        await self._put(connection, tables.ATTEMPTS, changed)
        await associations.put_devices(self._database, connection, before.attempts, changed)
        await self._put(connection, tables.EVICTIONS, _changed(before.evictions, rows.evictions))
        if notices := [it for event in events for it in self._notices(event.message)]:
            statement = self._database.insert(tables.NOTICES).on_conflict_do_nothing()
            await connection.execute(statement, [msgspec.structs.asdict(it) for it in notices])
        await self._put(connection, tables.CLUSTER_OBJECTS, _changed(before.objects, rows.objects))
        kept = _changed(before.last_explanations, rows.last_explanations)
        await self._put(connection, tables.LAST_EXPLANATIONS, kept)
        chunks = _changed(before.queue_chunks, rows.queue_chunks)
        await self._put(connection, tables.QUEUE_CHUNKS, chunks)
        measured = _changed(before.pod_usage, rows.pod_usage)
        await self._put(connection, tables.POD_USAGE, measured)
        for table, added in (
            (tables.CLUSTER_CHANGES, rows.changes),
            (tables.PHASES, rows.phases.values()),
            (tables.JOB_REQUESTS, rows.requests.values()),
            (tables.EXPLANATIONS, rows.explanations.values()),
            (tables.QUEUE_POSITIONS, rows.queue_positions.values()),
        ):
            if added:
                statement = self._database.insert(table).on_conflict_do_nothing()
                await connection.execute(statement, [msgspec.structs.asdict(it) for it in added])

    async def _subtract(
        self, connection: AsyncConnection, changed: Sequence[AttemptRow], regrouped: Sequence[str]
    ) -> None:
        """Subtracts attempts that will change from the sums, while tables have their old values."""
        summed = [row for row in changed if row.is_summed]
        attempts = tables.ATTEMPTS.c
        for column, keys in (
            (attempts.pod_uid, sorted(row.pod_uid for row in summed)),
            (attempts.job_uid, sorted(regrouped)),
        ):
            for chunk in _chunks(keys):
                await daily_usage.subtract_all(self._database, connection, column.in_(chunk))
        for row in summed:
            row.is_summed = 0

    async def _put(
        self, connection: AsyncConnection, table: sa.Table, changed: Sequence[msgspec.Struct]
    ) -> None:
        if not changed:
            return
        insert_statement = self._database.insert(table)
        keys = {column.name for column in table.primary_key}
        replaced = {
            column.name: insert_statement.excluded[column.name]
            for column in table.columns
            if column.name not in keys
        }
        statement = insert_statement.on_conflict_do_update(
            index_elements=sorted(keys), set_=replaced
        )
        await connection.execute(statement, [msgspec.structs.asdict(each) for each in changed])

    async def _isolate(
        self,
        connection: AsyncConnection,
        unreadable_records: Sequence[Unreadable],
        position: port.Position,
    ) -> None:
        if not unreadable_records:
            return
        values = [
            {
                "topic": each.record.topic.name,
                "topic_id": position.topic_ids.get(each.record.topic.name, ""),
                "log_offset": each.record.offset,
                "key": text(each.record.key),
                "event_id": text(each.record.id),
                "reason": text(each.reason)[:LONGEST_REASON],
                "at": None,
            }
            for each in unreadable_records
        ]
        statement = self._database.insert(tables.UNREADABLE).on_conflict_do_nothing()
        await connection.execute(statement, values)
        await self._publish_dead_letters(unreadable_records)


def _decode(
    records: Iterable[envelope.Record],
) -> tuple[list[tuple[envelope.Record, folding.Event]], list[Unreadable]]:
    readable, unreadable = [], []
    for record in records:
        try:
            event = folding.decode(record)
        except errors.UndecodableError as error:
            unreadable.append(Unreadable(record, error.reason))
        else:
            if event is not None:
                readable.append((record, event))
    return readable, unreadable


async def _load(connection: AsyncConnection, needed: folding.Needed) -> Rows:
    """The existing rows with these keys."""
    rows = Rows()
    jobs, attempts, evictions = tables.JOBS, tables.ATTEMPTS, tables.EVICTIONS
    for row in await _select(connection, jobs, jobs.c.uid, needed.jobs):
        rows.jobs[row["uid"]] = JobRow(**row)
    for row in await _select(connection, attempts, attempts.c.pod_uid, needed.attempts):
        rows.attempts[row["pod_uid"]] = AttemptRow(**row)
    is_open = attempts.c.ended_at.is_(None)
    for row in await _select(connection, attempts, attempts.c.job_uid, needed.deleted, is_open):
        rows.attempts[row["pod_uid"]] = AttemptRow(**row)
    decisions = {decision for decision, _ in needed.evictions}
    for row in await _select(connection, evictions, evictions.c.decision, decisions):
        rows.evictions[row["decision"], row["pod_uid"]] = EvictionRow(**row)
    for row in await _select(connection, attempts, attempts.c.node, needed.nodes, is_open):
        rows.attempts[row["pod_uid"]] = AttemptRow(**row)
    objects = tables.CLUSTER_OBJECTS
    for kind in sorted({kind for kind, _ in needed.objects}):
        names = {name for each, name in needed.objects if each == kind}
        of_kind = objects.c.kind == kind
        for row in await _select(connection, objects, objects.c.name, names, of_kind):
            rows.objects[kind, row["name"]] = ObjectRow(**row)
    last, chunks = tables.LAST_EXPLANATIONS, tables.QUEUE_CHUNKS
    for row in await _select(connection, last, last.c.pod_group, needed.pod_groups):
        rows.last_explanations[row["pod_group"]] = LastExplanationRow(**row)
    for row in await _select(connection, chunks, chunks.c.queue, needed.queues):
        rows.queue_chunks[row["queue"], row["chunk"]] = ChunkRow(**row)
    usage = tables.POD_USAGE
    for row in await _select(connection, usage, usage.c.pod_uid, needed.measured):
        rows.pod_usage[row["pod_uid"], row["node"]] = PodUsageRow(**row)
    return rows


async def _select(
    connection: AsyncConnection,
    table: sa.Table,
    column: "sa.Column[Any]",
    wanted: Collection[str],
    *conditions: "sa.ColumnElement[bool]",
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for chunk in _chunks(sorted(wanted)):
        query = sa.select(table).where(column.in_(chunk), *conditions)
        rows += map(dict, (await connection.execute(query)).mappings())
    return rows


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(keys), KEYS_PER_QUERY):
        yield keys[begin : begin + KEYS_PER_QUERY]


def _copies(rows: Rows) -> Rows:
    """Copies of the rows before the fold, which changes them in place."""
    return Rows(
        {key: msgspec.structs.replace(row) for key, row in rows.jobs.items()},
        {key: msgspec.structs.replace(row) for key, row in rows.attempts.items()},
        dict[tuple[str, int, str, int], PhaseRow](),
        {key: msgspec.structs.replace(row) for key, row in rows.evictions.items()},
        dict(rows.objects),
        last_explanations={
            key: msgspec.structs.replace(row) for key, row in rows.last_explanations.items()
        },
        queue_chunks=dict(rows.queue_chunks),
        pod_usage={key: msgspec.structs.replace(row) for key, row in rows.pod_usage.items()},
    )


def _regrouped(before: Rows, rows: Rows) -> list[str]:
    """The existing jobs that have another queue or user than before."""
    return [
        uid
        for uid, old in before.jobs.items()
        if (old.queue, old.user_name) != (rows.jobs[uid].queue, rows.jobs[uid].user_name)
    ]


def _changed(before: Mapping[Any, R], after: Mapping[Any, R]) -> list[R]:
    return [row for key, row in after.items() if before.get(key) != row]
