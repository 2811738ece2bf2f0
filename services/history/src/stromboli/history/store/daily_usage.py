"""Sums of usage by day, namespace, queue, user and GPU type: a report reads days, not attempts.

1. An attempt is added some time after its end, to each day that it touches, and marked
   (``is_summed``). Reports add the attempts without the mark.
2. Before a late event changes a marked attempt, or the queue or user of its job, the writer
   subtracts the attempt's part and removes the mark, in its own transaction. The attempt is added
   again later.
3. Sums and marks change in one transaction, which excludes other writers first: each attempt counts
   once.
4. Sums stay when attempts are deleted because of their age.

Adding and reporting use the same expressions (``usage_sums``). A step handles at most
``ATTEMPTS_PER_STEP`` attempts that ended within a day, in O(attempts x days that they touch). An
attempt that lasted for more than ``LONGEST`` is never added.
"""

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from stromboli.history.core.rows import instant
from stromboli.history.store import database, tables, usage_sums

ATTEMPTS_PER_STEP = 5000
ANALYZED_AFTER = 100_000
"""After this many added attempts, the planner's statistics are outdated: see
``update_statistics``."""
LONGEST = timedelta(days=300)
_DAY_US = 86_400_000_000
_LONGEST_US = LONGEST // timedelta(microseconds=1)
_ATTEMPTS, _DAILY = tables.ATTEMPTS.c, tables.DAILY_USAGE.c
_ASSOCIATIONS = tables.ASSOCIATIONS.c
IS_SUMMED = _ATTEMPTS.is_summed == sa.literal_column("1")
IS_NOT_SUMMED = _ATTEMPTS.is_summed == sa.literal_column("0")
"""With literals: a database uses the partial index only if it can see the value."""
_CAN_BE_SUMMED = sa.or_(
    _ATTEMPTS.allocated_at.is_(None),
    _ATTEMPTS.ended_at - _ATTEMPTS.allocated_at < _LONGEST_US,
)


async def add_some(opened: database.Database, before_us: int) -> int:
    """Add attempts that ended before this time, in one transaction; returns how many, 0 if none are
    left. Raises UnavailableError."""
    ended = sa.and_(IS_NOT_SUMMED, _ATTEMPTS.ended_at < before_us, _CAN_BE_SUMMED)
    async with opened.transaction() as connection:
        position = tables.READ_UP_TO
        await connection.execute(sa.update(position).values(revision=position.c.revision))
        return await _move_some(opened, connection, ended, 1)


async def update_statistics(opened: database.Database) -> None:
    """Tell PostgreSQL's planner that few attempts are left without the mark. Otherwise, until its
    own ANALYZE, reports read all attempts instead of the partial index (10,000,000 attempts: 2.4 s
    instead of 0.2 s). Raises UnavailableError. Reads a sample of the rows."""
    if not opened.is_sqlite:  # SQLite plans without statistics
        async with opened.transaction() as connection:
            await connection.execute(sa.text(f"ANALYZE {tables.ATTEMPTS.name}"))


async def subtract_all(
    opened: database.Database, connection: AsyncConnection, wanted: "sa.ColumnElement[bool]"
) -> None:
    """Subtract the attempts that a condition selects, and remove their marks."""
    while await _move_some(opened, connection, sa.and_(IS_SUMMED, wanted), -1):
        pass


async def _move_some(
    opened: database.Database,
    connection: AsyncConnection,
    wanted: "sa.ColumnElement[bool]",
    sign: int,
) -> int:
    """Add (1) or subtract (-1) some attempts: those that ended within a day of the first one."""
    first = (
        await connection.execute(sa.select(sa.func.min(_ATTEMPTS.ended_at)).where(wanted))
    ).scalar()
    if first is None:
        return 0
    chosen = (
        sa.select(_ATTEMPTS.pod_uid)
        .where(wanted, _ATTEMPTS.ended_at < first + _DAY_US)
        .order_by(_ATTEMPTS.ended_at, _ATTEMPTS.pod_uid)
        .limit(ATTEMPTS_PER_STEP)
    )
    uids = list((await connection.execute(chosen)).scalars())
    of_these = _ATTEMPTS.pod_uid.in_(uids)
    span = sa.select(sa.func.min(_ATTEMPTS.allocated_at), sa.func.max(_ATTEMPTS.ended_at))
    begin, end = (await connection.execute(span.where(of_these))).one()
    if begin is not None and begin < end:
        await _change_sums(opened, connection, of_these, (begin, end), sign)
    await connection.execute(
        sa.update(tables.ATTEMPTS).where(of_these).values(is_summed=1 if sign > 0 else 0)
    )
    return len(uids)


async def _change_sums(
    opened: database.Database,
    connection: AsyncConnection,
    wanted: "sa.ColumnElement[bool]",
    span: tuple[int, int],
    sign: int,
) -> None:
    begin, end = span
    midnight = instant(begin - begin % _DAY_US)
    days = usage_sums.days(midnight, midnight + (instant(end) - midnight + timedelta(days=1)))
    daily_sums = usage_sums.by_columns(
        days, end, [_ATTEMPTS.association, _ATTEMPTS.gpu_type], [wanted], is_sqlite=opened.is_sqlite
    ).subquery()
    keys = (_ASSOCIATIONS.namespace, _ASSOCIATIONS.queue, _ASSOCIATIONS.user_name)
    changes = (
        sa.select(
            daily_sums.c.begin,
            *keys,
            daily_sums.c.gpu_type,
            *(sign * daily_sums.c[name] for name in usage_sums.SUMS),
        )
        .select_from(
            daily_sums.join(tables.ASSOCIATIONS, daily_sums.c.association == _ASSOCIATIONS.id)
        )
        .where(sa.true())  # else SQLite parses ON CONFLICT as a join condition
    )
    primary = [column.name for column in tables.DAILY_USAGE.primary_key]
    insert_statement = opened.insert(tables.DAILY_USAGE).from_select(
        [*primary, *usage_sums.SUMS], changes
    )
    added = {name: _DAILY[name] + insert_statement.excluded[name] for name in usage_sums.SUMS}
    await connection.execute(
        insert_statement.on_conflict_do_update(index_elements=primary, set_=added)
    )
