"""Deletes rows that are older than their table's limit, a few at a time: a delete of millions would
block the writer for minutes."""

from collections.abc import Mapping

import sqlalchemy as sa

from stromboli.history.store import database, tables

ROWS_PER_DELETE = 5000
EXPIRES: Mapping[str, "sa.Column[int]"] = {
    "attempts": tables.ATTEMPTS.c.ended_at,
    "jobs": tables.JOBS.c.deleted_at,
    "phases": tables.PHASES.c.at,
    "job_requests": tables.JOB_REQUESTS.c.at,
    "evictions": tables.EVICTIONS.c.at,
    "cluster_changes": tables.CLUSTER_CHANGES.c.at,
    "explanations": tables.EXPLANATIONS.c.at,
    "queue_positions": tables.QUEUE_POSITIONS.c.at,
    "last_explanations": tables.LAST_EXPLANATIONS.c.at,
    "notices": tables.NOTICES.c.at,
    "daily_usage": tables.DAILY_USAGE.c.day,
    "pod_usage": tables.POD_USAGE.c.at,
}
"""Table -> the column with the time from which the age of a row counts."""
_BESIDE = {
    "attempts": tables.ATTEMPT_DEVICES.c.pod_uid,
    "jobs": tables.JOB_LABELS.c.job_uid,
}
"""Table -> the column of another table whose rows are deleted with its rows."""


async def delete_expired(opened: database.Database, table: str, before: int) -> int:
    """Delete at most ``ROWS_PER_DELETE`` rows of a table with a time before ``before``
    (microseconds since 1970); returns how many. Raises UnavailableError."""
    column = EXPIRES[table]
    keys = list(column.table.primary_key)
    expired = sa.select(*keys).where(column < before).order_by(column, *keys).limit(ROWS_PER_DELETE)
    key = sa.tuple_(*keys) if len(keys) > 1 else keys[0]
    async with opened.transaction() as connection:
        if (beside := _BESIDE.get(table)) is not None:
            await connection.execute(sa.delete(beside.table).where(beside.in_(expired)))
        deleted = await connection.execute(sa.delete(column.table).where(key.in_(expired)))
    return int(deleted.rowcount)
