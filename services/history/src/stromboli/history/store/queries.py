"""The queries: attempts with filters, page by page; usage by group.

Amounts times microseconds exceed 64 bits after some thousand pods, so usage is summed as floating
point: exact to far below a second for a year of a large cluster.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from stromboli.history.core.rows import instant, micros, optional_instant
from stromboli.history.store import database, pages, tables
from stromboli.shared import decoding, errors
from stromboli.shared.api import accounting

GIB = 2.0**30
SECOND = 1e6
PREEMPTED = "Preempted"
_ATTEMPTS, _JOBS = tables.ATTEMPTS.c, tables.JOBS.c
_JOINED = tables.ATTEMPTS.outerjoin(tables.JOBS, _ATTEMPTS.job_uid == _JOBS.uid)
_REQUESTS = decoding.decoder_of(dict[str, int])
_DEVICES = decoding.decoder_of(dict[str, tuple[str, ...]])
_LABELS = decoding.decoder_of(dict[str, str])
_OF_JOBS: dict[str, "sa.ColumnElement[str]"] = {"queue": _JOBS.queue, "user": _JOBS.user_name}
_OF_ATTEMPTS: dict[str, "sa.Column[str]"] = {
    "namespace": _ATTEMPTS.namespace,
    "job": _ATTEMPTS.job,
    "node": _ATTEMPTS.node,
}
_SUMS = ("attempts", "cpu", "memory", "gpu", "evicted_cpu", "evicted_gpu", "idle_cpu", "idle_gpu")
Conditions = list["sa.ColumnElement[bool]"]


async def attempts(
    opened: database.Database, query: accounting.AttemptQuery, now: datetime
) -> accounting.AttemptPage:
    """A page of attempts, the last submitted first. Running ones count until ``now``. Raises
    InvalidError, UnavailableError."""
    wanted = _of_jobs(query.namespace, query.user, query.queue, query.labels)
    wanted += [
        column == value
        for column, value in (
            (_ATTEMPTS.job, query.job),
            (_ATTEMPTS.job_uid, query.uid),
            (_ATTEMPTS.node, query.node),
        )
        if value
    ]
    if query.states:
        wanted.append(_ATTEMPTS.state.in_(query.states))
    if query.since is not None:
        wanted.append(_is_open_or_after(micros(query.since)))
    if query.until is not None:
        wanted.append(_ATTEMPTS.submitted_at < micros(query.until))
    if query.device:
        wanted.append(_has_device(query.device))
    if query.after:
        wanted.append(pages.behind(_ATTEMPTS.submitted_at, _ATTEMPTS.pod_uid, query.after))
    limit = max(1, min(query.limit, accounting.MOST_ATTEMPTS))
    statement = (
        sa.select(tables.ATTEMPTS, _JOBS.queue, _JOBS.user_name, _JOBS.labels)
        .select_from(_JOINED)
        .where(*wanted)
        .order_by(_ATTEMPTS.submitted_at.desc(), _ATTEMPTS.pod_uid.desc())
        .limit(limit + 1)
    )
    async with opened.transaction() as connection:
        rows = (await connection.execute(statement)).all()
    shown, more = pages.cut(rows, limit, "submitted_at", "pod_uid")
    now_us = micros(now)
    return accounting.AttemptPage(
        attempts=tuple(_attempt(row, now_us) for row in shown), continue_=more
    )


async def usage(
    opened: database.Database, query: accounting.UsageQuery, now: datetime
) -> accounting.UsageReport:
    """Usage by group; running attempts count until ``now``. Raises InvalidError,
    UnavailableError."""
    by_day = "day" in query.by
    intervals = [(query.since, query.until)]
    if by_day:
        if accounting.days(query.since, query.until) > accounting.MOST_DAYS:
            reason = f"by day a report has at most {accounting.MOST_DAYS} days"
            raise errors.InvalidError("usage", reason)
        intervals = _days(query.since, query.until)
    keys = [key for key in query.by if key != "day"]
    statement = _usage(query, keys, intervals, micros(now), is_sqlite=opened.is_sqlite)
    async with opened.transaction() as connection:
        rows = (await connection.execute(statement)).all()
    found = []
    for begin, *values in rows:
        group = dict(zip(keys, (str(it or "") for it in values), strict=False))
        if by_day:
            group["day"] = instant(begin).date().isoformat()
        ordered = {key: group[key] for key in query.by}
        found.append(_one_usage(ordered, values[len(keys) :]))
    found.sort(key=lambda it: (it.group.get("day", ""), -it.cpu_seconds, list(it.group.values())))
    return accounting.UsageReport(since=query.since, until=query.until, usage=tuple(found))


def _of_jobs(namespace: str, user: str, queue: str, labels: dict[str, str]) -> Conditions:
    wanted: Conditions = [
        column == value
        for column, value in (
            (_ATTEMPTS.namespace, namespace),
            (_JOBS.user_name, user),
            (_JOBS.queue, queue),
        )
        if value
    ]
    for key, value in labels.items():
        # Labels are JSON in a fixed form, and neither keys nor values contain quotes.
        pair = f"{msgspec.json.encode(key).decode()}:{msgspec.json.encode(value).decode()}"
        wanted.append(_JOBS.labels.contains(pair, autoescape=True))
    return wanted


def _is_open_or_after(since: int) -> "sa.ColumnElement[bool]":
    return sa.or_(_ATTEMPTS.ended_at.is_(None), _ATTEMPTS.ended_at > since)


def _has_device(device: str) -> "sa.ColumnElement[bool]":
    """Whether a device was assigned, wholly or as a slice: ``GPU-x`` or ``GPU-x (5000MiB)``."""
    quoted = msgspec.json.encode(device).decode()
    return sa.or_(
        _ATTEMPTS.devices.contains(quoted, autoescape=True),
        _ATTEMPTS.devices.contains(f"{quoted[:-1]} (", autoescape=True),
    )


def _attempt(row: Any, now_us: int) -> accounting.Attempt:
    end = now_us if row.ended_at is None else row.ended_at
    held_s = 0.0 if row.allocated_at is None else max(0, end - row.allocated_at) / SECOND
    return accounting.Attempt(
        namespace=row.namespace,
        job=row.job,
        uid=row.job_uid,
        queue=row.queue or "",
        user=row.user_name or "",
        task=row.task,
        index=row.task_index,
        attempt=row.attempt,
        retry_count=row.retry_count,
        pod=row.pod,
        pod_uid=row.pod_uid,
        state=row.state,
        reason=row.reason,
        detail=row.detail,
        exit_code=row.exit_code,
        node=row.node,
        submitted_at=optional_instant(row.submitted_at),
        allocated_at=optional_instant(row.allocated_at),
        started_at=optional_instant(row.started_at),
        ended_at=optional_instant(row.ended_at),
        requests=_REQUESTS.decode(row.requests),
        devices=_DEVICES.decode(row.devices),
        labels=_LABELS.decode(row.labels or "{}"),
        cpu_seconds=row.cpu * held_s / 1000,
        memory_gib_seconds=row.memory * held_s / GIB,
        gpu_seconds=row.gpu * held_s / 1000,
    )


def _group(key: str, per_job: "sa.Subquery", *, is_sqlite: bool) -> "sa.ColumnElement[Any]":
    if key in _OF_JOBS:
        return _OF_JOBS[key]
    if key in _OF_ATTEMPTS:
        return per_job.c[_OF_ATTEMPTS[key].name]
    label = key.removeprefix(accounting.LABEL)
    if label == key or not label or '"' in label:
        known = ", ".join((*accounting.GROUPS, f"{accounting.LABEL}KEY"))
        raise errors.InvalidError("usage", f"by {key!r} is unknown; use one of {known}")
    if is_sqlite:
        return sa.func.json_extract(_JOBS.labels, f'$."{label}"')
    return sa.cast(_JOBS.labels, postgresql.JSON).op("->>")(label)


def _usage(
    query: accounting.UsageQuery,
    keys: Sequence[str],
    intervals: Sequence[tuple[datetime, datetime]],
    now: int,
    *,
    is_sqlite: bool,
) -> "sa.Select[Any]":
    """The sums in each interval of all attempts that had a node then.

    First by job, which reads each attempt once, then by group: a million look-ups of jobs less.
    """
    per_job = _usage_of_jobs(query, intervals, now, is_sqlite=is_sqlite).subquery()
    groups = [_group(key, per_job, is_sqlite=is_sqlite) for key in keys]
    return (
        sa.select(per_job.c.begin, *groups, *(sa.func.sum(per_job.c[name]) for name in _SUMS))
        .select_from(per_job.outerjoin(tables.JOBS, per_job.c.job_uid == _JOBS.uid))
        .group_by(per_job.c.begin, *groups)
    )


def _usage_of_jobs(
    query: accounting.UsageQuery,
    intervals: Sequence[tuple[datetime, datetime]],
    now: int,
    *,
    is_sqlite: bool,
) -> "sa.Select[Any]":
    """The sums by interval and job, and by what of the attempts ``query.by`` names, in the
    units of the columns times seconds."""
    least, greatest = (sa.func.min, sa.func.max) if is_sqlite else (sa.func.least, sa.func.greatest)
    # A bare number would be a 32-bit integer in PostgreSQL.
    cut = sa.union_all(
        *(
            sa.select(
                sa.literal(micros(since), tables.NUMBER).label("begin"),
                sa.literal(min(micros(until), now), tables.NUMBER).label("end"),
            )
            for since, until in intervals
        )
    ).cte("intervals")
    begin = greatest(_ATTEMPTS.allocated_at, cut.c.begin)
    end = least(sa.func.coalesce(_ATTEMPTS.ended_at, cut.c.end), cut.c.end)
    started = sa.func.coalesce(_ATTEMPTS.started_at, _ATTEMPTS.ended_at, cut.c.end)
    held = _seconds(begin, greatest(begin, end))
    idle = _seconds(begin, greatest(begin, least(started, end)))
    cpu, memory, gpu = (held * it for it in (_ATTEMPTS.cpu, _ATTEMPTS.memory, _ATTEMPTS.gpu))
    is_evicted = _ATTEMPTS.reason == PREEMPTED
    evicted = (sa.case((is_evicted, it), else_=0.0) for it in (cpu, gpu))
    values = (cpu, memory, gpu, *evicted, idle * _ATTEMPTS.cpu, idle * _ATTEMPTS.gpu)
    sums = (sa.func.count(), *map(sa.func.sum, values))
    columns = (_ATTEMPTS.job_uid, *(_OF_ATTEMPTS[key] for key in query.by if key in _OF_ATTEMPTS))
    wanted: Conditions = [_ATTEMPTS.namespace == query.namespace] if query.namespace else []
    of_jobs = _of_jobs("", query.user, query.queue, query.labels)
    if of_jobs:
        wanted.append(_ATTEMPTS.job_uid.in_(sa.select(_JOBS.uid).where(*of_jobs)))
    is_held = sa.and_(
        _ATTEMPTS.allocated_at < cut.c.end,
        sa.or_(_ATTEMPTS.ended_at.is_(None), _ATTEMPTS.ended_at > cut.c.begin),
    )
    return (
        sa.select(
            cut.c.begin,
            *columns,
            *(value.label(name) for name, value in zip(_SUMS, sums, strict=True)),
        )
        .select_from(tables.ATTEMPTS.join(cut, is_held))
        .where(*wanted)
        .group_by(cut.c.begin, *columns)
    )


def _seconds(begin: Any, end: Any) -> Any:
    return sa.cast(end - begin, sa.Float) / SECOND


def _one_usage(group: dict[str, str], values: Sequence[Any]) -> accounting.Usage:
    attempts_, cpu, memory, gpu, evicted_cpu, evicted_gpu, idle_cpu, idle_gpu = (
        value or 0 for value in values
    )
    return accounting.Usage(
        group=group,
        attempts=int(attempts_),
        cpu_seconds=float(cpu) / 1000,
        memory_gib_seconds=float(memory) / GIB,
        gpu_seconds=float(gpu) / 1000,
        evicted_cpu_seconds=float(evicted_cpu) / 1000,
        evicted_gpu_seconds=float(evicted_gpu) / 1000,
        idle_cpu_seconds=float(idle_cpu) / 1000,
        idle_gpu_seconds=float(idle_gpu) / 1000,
    )


def _days(since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """The interval cut at midnights (UTC)."""
    since, until = since.astimezone(UTC), until.astimezone(UTC)
    cut = [since]
    midnight = datetime.combine(since.date() + timedelta(days=1), time(), UTC)
    while midnight < until:
        cut.append(midnight)
        midnight += timedelta(days=1)
    return list(zip(cut, [*cut[1:], until], strict=True))
