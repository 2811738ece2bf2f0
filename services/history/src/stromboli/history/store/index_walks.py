"""Walks: the newest attempts of ranges of indexes, merged in the order of time.

For the newest rows under several conditions, a database guesses from statistics whether
to walk all rows in the order of time until enough of them match, or to collect and sort those that
match one condition. Conditions depend on each other (a queue whose jobs never fail), so it guesses
wrong, and reads millions of rows: measured 5 to 11 s in PostgreSQL with 10 million attempts. So the
statements here leave nothing to guess:

1. A walk is a range of one index that begins with columns of fixed values and continues in the
   order of submission. A statement takes its next entries by ``ORDER BY ... LIMIT``, and only then
   looks at the other conditions.
2. Of several walks, those that may have the newest unread entry are read first. An entry is final
   when no walk has an unread one that is newer.
3. A request reads at most ``MOST_ENTRIES`` entries, or some more for a page that is larger. If it
   does not find a whole page among them, the page is short and names where to continue.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from stromboli.history.store import pages, tables

MOST_ENTRIES = 20_000
ENTRIES_PER_WALK = 2000
"""Maximum number of entries of one walk in a statement with others."""
WALKS_PER_STATEMENT = 32
Position = tuple[int, str]
"""The time of submission and the uid of a pod, by which attempts are ordered."""
BEGIN: Position = (pages.LATEST_US, "")
"""The position before the newest attempt."""
_ATTEMPTS, _DEVICES = tables.ATTEMPTS.c, tables.ATTEMPT_DEVICES.c
Filter = Callable[[Any], "Sequence[sa.ColumnElement[bool]]"]
"""Columns of attempts -> conditions."""
COLUMNS = (
    _ATTEMPTS.pod_uid,
    _ATTEMPTS.submitted_at,
    _ATTEMPTS.namespace,
    _ATTEMPTS.job,
    _ATTEMPTS.job_uid,
    _ATTEMPTS.node,
    _ATTEMPTS.state,
    _ATTEMPTS.association,
    _ATTEMPTS.allocated_at,
    _ATTEMPTS.ended_at,
)
"""The columns that a ``Filter`` reads."""


class Walk(msgspec.Struct):
    """Entries of an index, from ``after`` (exclusive) down to ``low_us`` (inclusive). ``values``:
    conditions for the first columns of the index. ``device``: walks the attempts of this device."""

    after: Position
    values: tuple["sa.ColumnElement[bool]", ...] = ()
    low_us: int | None = None
    device: str = ""


class Found(msgspec.Struct):
    """The newest attempts that were found. ``rest``: the position where unread entries begin,
    None if all were read. ``read``: the number of entries that were read."""

    positions: list[Position]
    rest: Position | None
    read: int


async def newest(
    connection: AsyncConnection, walks: Iterable[Walk], accepts: Filter, wanted: int, most: int
) -> Found:
    """The newest ``wanted`` attempts of some walks that a filter accepts; fewer if the walks
    end, or after ``most`` entries."""
    left = list(walks)
    positions: list[Position] = []
    read, size = 0, wanted
    while True:
        left.sort(key=lambda it: it.after, reverse=True)
        rest = left[0].after if left else None
        final = sorted((it for it in positions if rest is None or it >= rest), reverse=True)
        if rest is None or len(final) >= wanted or read >= most:
            return Found(final[:wanted], rest, read)
        chosen, left = left[:WALKS_PER_STATEMENT], left[WALKS_PER_STATEMENT:]
        each = min(size, most - read, most if len(chosen) == 1 else ENTRIES_PER_WALK)
        is_sqlite = connection.dialect.name == "sqlite"
        parts = [_part(at, it, each, accepts, is_sqlite) for at, it in enumerate(chosen)]
        for row in (await connection.execute(sa.union_all(*parts))).all():
            position = row.submitted_at, row.pod_uid
            if row.is_accepted:
                positions.append(position)
            if row.place == row.entries:
                read += row.entries
                if row.entries == each:
                    walk = chosen[row.walk]
                    walk.after = position
                    left.append(walk)
        size *= 4


async def count(connection: AsyncConnection, walks: Sequence[Walk], most: int) -> int:
    """The number of entries of some walks, counted up to ``most`` for each one."""
    if not walks:
        return 0
    parts = []
    for walk in walks:
        entries = _entries(walk, connection.dialect.name == "sqlite")
        limited = entries.with_only_columns(sa.literal(1).label("one")).limit(most).subquery()
        parts.append(sa.select(sa.func.count().label("n")).select_from(limited))
    total = sa.union_all(*parts).subquery()
    return int((await connection.execute(sa.select(sa.func.sum(total.c.n)))).scalar() or 0)


def _part(at: int, walk: Walk, most: int, accepts: Filter, is_sqlite: bool) -> "sa.Select[Any]":
    """The next entries of a walk: those that the filter accepts, and the last one."""
    entries = _entries(walk, is_sqlite)
    time, uid = entries.selected_columns
    order_of_uid = _ordered(uid, is_sqlite)
    if walk.values and is_sqlite:
        # SQLite prefers an index with the whole order (``attempts_by_submission``) over the index
        # with the walk's values, and then reads all attempts: 3.6 s for a rare state among
        # 10 million attempts. No index has the order of an expression.
        order_of_uid = uid.concat("")
    next_entries = entries.order_by(time.desc(), order_of_uid.desc()).limit(most)
    if walk.device:
        limited = next_entries.subquery()
        joined = tables.ATTEMPTS.join(limited, limited.c.pod_uid == _ATTEMPTS.pod_uid)
        inner = sa.select(*COLUMNS).select_from(joined).subquery()
    else:
        inner = next_entries.with_only_columns(*COLUMNS).subquery()
    order = inner.c.submitted_at.desc(), _ordered(inner.c.pod_uid, is_sqlite).desc()
    numbered = sa.select(
        inner.c.pod_uid,
        inner.c.submitted_at,
        sa.and_(sa.true(), *accepts(inner.c)).label("is_accepted"),
        sa.func.row_number().over(order_by=order).label("place"),
        sa.func.count().over().label("entries"),
    ).subquery()
    return sa.select(sa.literal(at, sa.Integer).label("walk"), *numbered.c).where(
        sa.or_(numbered.c.is_accepted, numbered.c.place == numbered.c.entries)
    )


def _entries(walk: Walk, is_sqlite: bool) -> "sa.Select[Any]":
    columns = _DEVICES if walk.device else _ATTEMPTS
    at_us, uid = walk.after
    wanted = [*walk.values, columns.submitted_at <= at_us]
    if uid:
        place = sa.literal(at_us, tables.NUMBER), sa.literal(uid)
        key = sa.tuple_(columns.submitted_at, _ordered(columns.pod_uid, is_sqlite))
        wanted.append(key < sa.tuple_(*place))
    else:
        wanted[-1] = columns.submitted_at < at_us
    if walk.low_us is not None:
        wanted.append(columns.submitted_at >= walk.low_us)
    if walk.device:
        wanted.append(_DEVICES.device == walk.device)
    return sa.select(columns.submitted_at, columns.pod_uid).where(*wanted)


def _ordered(uid: Any, is_sqlite: bool) -> Any:
    """The uid in the order of its characters, as SQLite and Python compare."""
    return uid if is_sqlite else sa.collate(uid, "C")
