"""The report of usage by group.

A report by queue, user, namespace, GPU type or day reads the sums of whole days (``daily_usage``),
the attempts that are not in these sums yet, and the attempts of days that are only partly in the
interval. All other reports read attempts. A report by queue of all jobs also has what each queue
deserved. Cost: O(days x groups) and O(attempts that are read).
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from stromboli.history.core import cluster_changes, deserved
from stromboli.history.core.rows import instant, micros
from stromboli.history.store import daily_usage, database, filters, queries, tables, usage_sums
from stromboli.shared import decoding, errors
from stromboli.shared.api import kinds
from stromboli.shared.api.views import accounting

_ATTEMPTS, _JOBS, _DAILY = tables.ATTEMPTS.c, tables.JOBS.c, tables.DAILY_USAGE.c
_ASSOCIATIONS = tables.ASSOCIATIONS.c
_FACTS = decoding.decoder_of(dict[str, str])
_FIELDS = decoding.decoder_of(list[tuple[str, str, str]])
_OF_ASSOCIATIONS: dict[str, "sa.Column[str]"] = {
    "namespace": _ASSOCIATIONS.namespace,
    "queue": _ASSOCIATIONS.queue,
    "user": _ASSOCIATIONS.user_name,
}
_OF_ATTEMPTS: dict[str, "sa.Column[str]"] = {
    "job": _ATTEMPTS.job,
    "node": _ATTEMPTS.node,
    accounting.GPU_TYPE: _ATTEMPTS.gpu_type,
}
_OF_DAYS: dict[str, "sa.Column[str]"] = {
    "namespace": _DAILY.namespace,
    "queue": _DAILY.queue,
    "user": _DAILY.user_name,
    accounting.GPU_TYPE: _DAILY.gpu_type,
}


async def report(
    opened: database.Database, query: accounting.UsageQuery, now: datetime
) -> accounting.UsageReport:
    """Usage by group; running attempts count until ``now``. Raises InvalidError,
    UnavailableError."""
    is_by_day = "day" in query.by
    intervals: list[usage_sums.Interval] = [(query.since, query.until)]
    if is_by_day:
        if accounting.days(query.since, query.until) > accounting.MOST_DAYS:
            reason = f"a report by day covers at most {accounting.MOST_DAYS} days"
            raise errors.InvalidError("usage", reason)
        intervals = usage_sums.days(query.since, query.until)
    keys = [key for key in query.by if key != "day"]
    parts = _Parts(query, keys, micros(now), is_sqlite=opened.is_sqlite)
    statements = list(_statements(parts, intervals, min(query.until, now), is_by_day=is_by_day))
    groups: dict[tuple[Any, ...], list[float]] = {}
    async with opened.transaction() as connection:
        for statement in statements:
            for row in (await connection.execute(statement)).all():
                _add(groups, row, len(keys), is_by_day=is_by_day)
        interval = micros(query.since), micros(min(query.until, now))
        is_of_all = query == accounting.UsageQuery(since=query.since, until=query.until)
        queues = await _queues(connection, interval[0]) if is_of_all else None
    usages = [
        _one_usage(_names(query.by, keys, key), values)
        for key, values in groups.items()
        if values[0]
    ]
    usages.sort(key=lambda it: (it.group.get("day", ""), -it.cpu_seconds, list(it.group.values())))
    shares = () if queues is None else deserved.shares(*queues, usages, interval)
    return accounting.UsageReport(
        since=query.since, until=query.until, usage=tuple(usages), shares=shares
    )


async def _queues(
    connection: AsyncConnection, since: int
) -> tuple[list[deserved.QueueState], list[deserved.QueueChange]]:
    """The last known facts of all queues, and the changes of their shares since a time, the newest
    first."""
    objects, changes = tables.CLUSTER_OBJECTS.c, tables.CLUSTER_CHANGES.c
    kind = kinds.QUEUES.kind
    states = await connection.execute(
        sa.select(objects.name, objects.facts, objects.is_deleted).where(objects.kind == kind)
    )
    concerns = changes.fields.contains(deserved.DESERVED, autoescape=True)
    changed = await connection.execute(
        sa.select(changes.name, changes.at, changes.action, changes.fields)
        .where(changes.kind == kind, changes.at > since)
        .where(sa.or_(changes.action != cluster_changes.CHANGED, concerns))
        .order_by(changes.at.desc(), changes.version.desc())
    )
    return (
        [
            deserved.QueueState(row.name, _FACTS.decode(row.facts), bool(row.is_deleted))
            for row in states
        ],
        [
            deserved.QueueChange(
                row.name, row.at, row.action, {it[0]: it[1] for it in _FIELDS.decode(row.fields)}
            )
            for row in changed
        ],
    )


def _statements(
    parts: "_Parts",
    intervals: Sequence[usage_sums.Interval],
    until: datetime,
    *,
    is_by_day: bool,
) -> Iterable["sa.Select[Any]"]:
    """Statements whose rows add up to the report; an attempt that several of them contain is
    counted in the first interval only, or in each day of a report by day."""
    days = _whole_days(parts.query.since, until) if parts.can_use_days else None
    if days is None:
        yield parts.of_attempts(intervals, [])
        return
    yield parts.of_attempts(intervals, [daily_usage.IS_NOT_SUMMED])
    before, after = (parts.query.since, days[0]), (days[1], until)
    if before[0] < before[1]:
        for touching in usage_sums.touching(before):
            yield parts.of_attempts([before], [daily_usage.IS_SUMMED, touching])
    yield parts.of_days(days, counts_held=is_by_day or before[0] == before[1])
    if after[0] < after[1]:
        count = "attempts" if is_by_day else "begun"
        for touching in usage_sums.touching(after):
            yield parts.of_attempts([after], [daily_usage.IS_SUMMED, touching], count=count)


def _whole_days(since: datetime, until: datetime) -> usage_sums.Interval | None:
    """The midnights (UTC) between which the interval contains whole days; None without any."""
    begin, end = since.astimezone(UTC), until.astimezone(UTC)
    first = datetime.combine(begin.date(), time(), UTC)
    first += timedelta(days=first < begin)
    last = datetime.combine(end.date(), time(), UTC)
    return (first, last) if first < last else None


class _Parts:
    """The parts of a report as SQL. Rows: begin of the interval, groups, count, sums."""

    def __init__(
        self, query: accounting.UsageQuery, keys: Sequence[str], now_us: int, *, is_sqlite: bool
    ) -> None:
        self.query = query
        self._keys = keys
        self._now_us = now_us
        self._is_sqlite = is_sqlite
        self.can_use_days = not query.labels and all(key in _OF_DAYS for key in keys)

    def of_attempts(
        self,
        intervals: Sequence[usage_sums.Interval],
        wanted: "Sequence[sa.ColumnElement[bool]]",
        count: str = "attempts",
    ) -> "sa.Select[Any]":
        """The sums in each interval of all attempts that had a node then."""
        query = self.query
        columns = [_OF_ATTEMPTS[key] for key in self._keys if key in _OF_ATTEMPTS]
        if has_labels := any(key not in _OF_ATTEMPTS | _OF_ASSOCIATIONS for key in self._keys):
            columns.append(_ATTEMPTS.job_uid)
        conditions = [
            *wanted,
            *filters.equal((_ATTEMPTS.namespace, query.namespace)),
            *filters.labelled(query.labels, _ATTEMPTS.job_uid),
        ]
        if query.user or query.queue:
            of_these = filters.associations(query.user, query.queue)
            conditions.append(_ATTEMPTS.association.in_(of_these))
        attempt_sums = usage_sums.by_columns(
            intervals,
            self._now_us,
            [_ATTEMPTS.association, *columns],
            conditions,
            is_sqlite=self._is_sqlite,
        ).subquery()
        joined = attempt_sums.outerjoin(
            tables.ASSOCIATIONS, attempt_sums.c.association == _ASSOCIATIONS.id
        )
        if has_labels:
            joined = joined.outerjoin(tables.JOBS, attempt_sums.c.job_uid == _JOBS.uid)
        groups = [self._group(key, attempt_sums) for key in self._keys]
        sums = (sa.func.sum(attempt_sums.c[name]) for name in (count, *usage_sums.SUMS[2:]))
        return (
            sa.select(attempt_sums.c.begin, *groups, *sums)
            .select_from(joined)
            .group_by(attempt_sums.c.begin, *groups)
        )

    def of_days(self, days: usage_sums.Interval, *, counts_held: bool) -> "sa.Select[Any]":
        """The sums of whole days. ``counts_held``: also counts attempts that began before the first
        day; in a report by day, on each of their days."""
        query, first, last = self.query, micros(days[0]), micros(days[1])
        count: Any = _DAILY.begun
        if counts_held:
            is_first = sa.true() if "day" in query.by else _DAILY.day == first
            count = sa.case((is_first, _DAILY.attempts), else_=_DAILY.begun)
        groups = [_OF_DAYS[key] for key in self._keys]
        wanted = filters.equal(
            (_DAILY.namespace, query.namespace),
            (_DAILY.user_name, query.user),
            (_DAILY.queue, query.queue),
        )
        sums = (sa.func.sum(_DAILY[name]) for name in usage_sums.SUMS[2:])
        return (
            sa.select(_DAILY.day, *groups, sa.func.sum(count), *sums)
            .where(_DAILY.day >= first, _DAILY.day < last, *wanted)
            .group_by(_DAILY.day, *groups)
        )

    def _group(self, key: str, attempt_sums: "sa.Subquery") -> "sa.ColumnElement[Any]":
        if key in _OF_ASSOCIATIONS:
            return _OF_ASSOCIATIONS[key]
        if key in _OF_ATTEMPTS:
            return attempt_sums.c[_OF_ATTEMPTS[key].name]
        label = key.removeprefix(accounting.LABEL)
        if label == key or not label or '"' in label:
            known = ", ".join((*accounting.GROUPS, f"{accounting.LABEL}KEY"))
            raise errors.InvalidError("usage", f"by {key!r} is unknown; use one of {known}")
        if self._is_sqlite:
            return sa.func.json_extract(_JOBS.labels, f'$."{label}"')
        return sa.cast(_JOBS.labels, postgresql.JSON).op("->>")(label)


def _add(
    groups: dict[tuple[Any, ...], list[float]], row: Any, keys: int, *, is_by_day: bool
) -> None:
    begin, *values = row
    day = instant(begin).date().isoformat() if is_by_day else ""
    key = day, *(str(it or "") for it in values[:keys])
    sums = [float(it or 0) for it in values[keys:]]
    known = groups.get(key)
    groups[key] = sums if known is None else [a + b for a, b in zip(known, sums, strict=True)]


def _names(by: Sequence[str], keys: Sequence[str], key: tuple[Any, ...]) -> dict[str, str]:
    values = {"day": key[0], **dict(zip(keys, key[1:], strict=True))}
    return {name: values[name] for name in by}


def _one_usage(group: dict[str, str], values: Sequence[float]) -> accounting.Usage:
    attempts, cpu, memory, gpu, evicted_cpu, evicted_gpu, idle_cpu, idle_gpu, *measured = values
    used_cpu, used_memory, used_gpu, of_cpu, of_memory, of_gpu = measured
    return accounting.Usage(
        group=group,
        attempts=round(attempts),
        cpu_seconds=cpu / 1000,
        memory_gib_seconds=memory / queries.GIB,
        gpu_seconds=gpu / 1000,
        evicted_cpu_seconds=evicted_cpu / 1000,
        evicted_gpu_seconds=evicted_gpu / 1000,
        idle_cpu_seconds=idle_cpu / 1000,
        idle_gpu_seconds=idle_gpu / 1000,
        used_cpu_seconds=used_cpu / 1000,
        used_memory_gib_seconds=used_memory / queries.GIB,
        used_gpu_seconds=used_gpu / 1000,
        measured_cpu_seconds=of_cpu / 1000,
        measured_memory_gib_seconds=of_memory / queries.GIB,
        measured_gpu_seconds=of_gpu / 1000,
    )
