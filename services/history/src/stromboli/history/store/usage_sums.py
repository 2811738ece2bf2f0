"""The usage of attempts within intervals, as SQL.

Amounts times microseconds exceed 64 bits after some thousand pods, so usage is summed as floating
point: exact to far below a second for a year of a large cluster.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import sqlalchemy as sa

from stromboli.history.core.rows import LONGEST_SPAN, OPEN_SPAN, SECOND, micros
from stromboli.history.store import tables

SUMS = (
    "attempts",
    "begun",
    "cpu",
    "memory",
    "gpu",
    "evicted_cpu",
    "evicted_gpu",
    "idle_cpu",
    "idle_gpu",
    "used_cpu",
    "used_memory",
    "used_gpu",
    "measured_cpu",
    "measured_memory",
    "measured_gpu",
)
"""The columns with sums, see ``tables.DAILY_USAGE``."""
PREEMPTED = "Preempted"
_INSTANT_S = 1e-6
"""Minimum divisor in seconds: an attempt may end when it begins."""
_ATTEMPTS = tables.ATTEMPTS.c
Interval = tuple[datetime, datetime]
"""Begin and end; the end is exclusive."""


def by_columns(
    intervals: Sequence[Interval],
    now_us: int,
    columns: "Sequence[sa.Column[Any]]",
    wanted: "Sequence[sa.ColumnElement[bool]]",
    *,
    is_sqlite: bool,
) -> "sa.Select[Any]":
    """The sums of the attempts that ``wanted`` selects, by interval (``begin``) and some columns of
    the attempts. Running attempts count until ``now_us``. At most 400 intervals. What an attempt
    has used is spread evenly over the time for which it had its node."""
    least, greatest = (sa.func.min, sa.func.max) if is_sqlite else (sa.func.least, sa.func.greatest)
    # A bare number would be a 32-bit integer in PostgreSQL.
    cut = sa.union_all(
        *(
            sa.select(
                sa.literal(micros(since), tables.NUMBER).label("begin"),
                sa.literal(min(micros(until), now_us), tables.NUMBER).label("end"),
            )
            for since, until in intervals
        )
    ).cte("intervals")
    begin = greatest(_ATTEMPTS.allocated_at, cut.c.begin)
    end = least(sa.func.coalesce(_ATTEMPTS.ended_at, cut.c.end), cut.c.end)
    started = sa.func.coalesce(_ATTEMPTS.started_at, _ATTEMPTS.ended_at, cut.c.end)
    allocated_s = _seconds(begin, greatest(begin, end))
    idle = _seconds(begin, greatest(begin, least(started, end)))
    cpu, memory, gpu = (allocated_s * it for it in (_ATTEMPTS.cpu, _ATTEMPTS.memory, _ATTEMPTS.gpu))
    is_evicted = _ATTEMPTS.reason == PREEMPTED
    evicted = (sa.case((is_evicted, it), else_=0.0) for it in (cpu, gpu))
    begun = sa.case((_ATTEMPTS.allocated_at >= cut.c.begin, 1), else_=0)
    last = sa.func.coalesce(_ATTEMPTS.ended_at, sa.literal(now_us, tables.NUMBER))
    share = allocated_s / greatest(_seconds(_ATTEMPTS.allocated_at, last), allocated_s, _INSTANT_S)
    is_measured, has_gpus = _ATTEMPTS.used_cpu.is_not(None), _ATTEMPTS.used_gpu.is_not(None)
    used = (
        share * sa.func.coalesce(_ATTEMPTS.used_cpu, 0),
        allocated_s * sa.func.coalesce(_ATTEMPTS.max_memory, 0),
        share * sa.func.coalesce(_ATTEMPTS.used_gpu, 0),
    )
    measured = (
        sa.case((is_measured, cpu), else_=0.0),
        sa.case((is_measured, memory), else_=0.0),
        sa.case((has_gpus, gpu), else_=0.0),
    )
    idle_sums = idle * _ATTEMPTS.cpu, idle * _ATTEMPTS.gpu
    values = (begun, cpu, memory, gpu, *evicted, *idle_sums, *used, *measured)
    sums = (sa.func.count(), *map(sa.func.sum, values))
    is_held = sa.and_(
        _ATTEMPTS.allocated_at < cut.c.end,
        sa.or_(_ATTEMPTS.ended_at.is_(None), _ATTEMPTS.ended_at > cut.c.begin),
    )
    return (
        sa.select(
            cut.c.begin,
            *columns,
            *(value.label(name) for name, value in zip(SUMS, sums, strict=True)),
        )
        .select_from(tables.ATTEMPTS.join(cut, is_held))
        .where(*wanted)
        .group_by(cut.c.begin, *columns)
    )


def touching(interval: Interval) -> "list[sa.ColumnElement[bool]]":
    """Two conditions that together select every attempt that existed in an interval, none of them
    twice, and some that ended shortly before it. The first selects the attempts that were submitted
    within the interval. The second selects earlier attempts that are open, or that were submitted
    less than 2**span seconds before the interval begins (``AttemptRow.span``). Each reads few rows
    by an index; for both in one condition, PostgreSQL reads all rows."""
    begin_us, end_us = map(micros, interval)
    at = _ATTEMPTS.submitted_at
    ended = (
        sa.and_(_ATTEMPTS.span == span, at > begin_us - int(2**span * SECOND), at < begin_us)
        for span in range(LONGEST_SPAN + 1)
    )
    is_open = sa.and_(_ATTEMPTS.span == OPEN_SPAN, at < begin_us)
    return [sa.and_(at >= begin_us, at < end_us), sa.or_(*ended, is_open)]


def _seconds(begin: Any, end: Any) -> Any:
    return sa.cast(end - begin, sa.Float) / SECOND


def days(since: datetime, until: datetime) -> list[Interval]:
    """The interval cut at midnights (UTC)."""
    since, until = since.astimezone(UTC), until.astimezone(UTC)
    cut = [since]
    midnight = datetime.combine(since.date() + timedelta(days=1), time(), UTC)
    while midnight < until:
        cut.append(midnight)
        midnight += timedelta(days=1)
    return list(zip(cut, [*cut[1:], until], strict=True))
