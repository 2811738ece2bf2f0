"""The query of attempts: filters, page by page."""

from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from stromboli.history.core.rows import SECOND, micros, optional_instant
from stromboli.history.store import database, filters, pages, tables
from stromboli.shared import decoding
from stromboli.shared.api import accounting

GIB = 2.0**30
_ATTEMPTS, _JOBS = tables.ATTEMPTS.c, tables.JOBS.c
_JOINED = tables.ATTEMPTS.outerjoin(tables.JOBS, _ATTEMPTS.job_uid == _JOBS.uid)
_REQUESTS = decoding.decoder_of(dict[str, int])
_DEVICES = decoding.decoder_of(dict[str, tuple[str, ...]])
_LABELS = decoding.decoder_of(dict[str, str])


async def attempts(
    opened: database.Database, query: accounting.AttemptQuery, now: datetime
) -> accounting.AttemptPage:
    """A page of attempts, the last submitted first. Running ones count until ``now``. Raises
    InvalidError, UnavailableError."""
    wanted = filters.of_jobs(query.namespace, query.user, query.queue, query.labels)
    wanted += filters.equal(
        (_ATTEMPTS.job, query.job), (_ATTEMPTS.job_uid, query.uid), (_ATTEMPTS.node, query.node)
    )
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
