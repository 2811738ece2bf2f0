"""The query of attempts: filters, page by page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from stromboli.history.core.rows import SECOND, micros, optional_instant
from stromboli.history.store import attempt_walks, database, index_walks, pages, tables
from stromboli.shared import decoding
from stromboli.shared.api.views import accounting

GIB = 2.0**30
UIDS_PER_QUERY = 1000
"""Uids in one statement: both databases limit its parameters."""
_ATTEMPTS, _JOBS, _ASSOCIATIONS = tables.ATTEMPTS.c, tables.JOBS.c, tables.ASSOCIATIONS.c
_PHASES = tables.PHASES.c
_JOINED = tables.ATTEMPTS.outerjoin(
    tables.ASSOCIATIONS, _ATTEMPTS.association == _ASSOCIATIONS.id
).outerjoin(tables.JOBS, _ATTEMPTS.job_uid == _JOBS.uid)
_REQUESTS = decoding.decoder_of(dict[str, int])
_DEVICES = decoding.decoder_of(dict[str, tuple[str, ...]])
_LABELS = decoding.decoder_of(dict[str, str])


async def attempts(
    opened: database.Database, query: accounting.AttemptQuery, now: datetime
) -> accounting.AttemptPage:
    """A page of attempts, the latest submission first; may have fewer than ``limit`` although more
    follow. Running ones count until ``now``. Raises InvalidError, UnavailableError."""
    after = pages.position(query.after) if query.after else index_walks.BEGIN
    limit = max(1, min(query.limit, accounting.MOST_ATTEMPTS))
    async with opened.snapshot() as connection:
        found = await attempt_walks.find(connection, query, after, limit + 1)
        shown = found.positions[:limit]
        rows = await _rows(connection, [uid for _, uid in shown])
        begun = await _begun(connection, {row.job_uid for row in rows.values()})
    last = shown[-1] if len(found.positions) > limit else found.rest
    now_us = micros(now)
    return accounting.AttemptPage(
        attempts=tuple(_attempt(rows[uid], begun, now_us) for _, uid in shown),
        continue_=pages.token(last) if last else "",
    )


async def _rows(connection: AsyncConnection, uids: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for begin in range(0, len(uids), UIDS_PER_QUERY):
        chosen = _ATTEMPTS.pod_uid.in_(uids[begin : begin + UIDS_PER_QUERY])
        statement = (
            sa.select(
                tables.ATTEMPTS,
                _ASSOCIATIONS.queue,
                _ASSOCIATIONS.user_name,
                _JOBS.labels,
                _JOBS.submitted_at.label("job_submitted_at"),
            )
            .select_from(_JOINED)
            .where(chosen)
        )
        found |= {row.pod_uid: row for row in await connection.execute(statement)}
    return found


async def _begun(connection: AsyncConnection, jobs: set[str]) -> dict[str, int]:
    """Job -> when it first left the phase Pending, without a restart before."""
    found: dict[str, int] = {}
    uids = sorted(jobs)
    for begin in range(0, len(uids), UIDS_PER_QUERY):
        statement = (
            sa.select(_PHASES.job_uid, sa.func.min(_PHASES.at))
            .where(
                _PHASES.job_uid.in_(uids[begin : begin + UIDS_PER_QUERY]),
                _PHASES.retry_count == 0,
                _PHASES.phase != "Pending",
            )
            .group_by(_PHASES.job_uid)
        )
        found |= {row[0]: row[1] for row in await connection.execute(statement)}
    return found


def _waiting_since(row: Any, begun: dict[str, int]) -> int | None:
    created: int | None = row.submitted_at
    submitted: int | None = row.job_submitted_at
    if created is None or row.retry_count:
        return created
    return accounting.waiting_since(created, submitted, begun.get(row.job_uid))


def _attempt(row: Any, begun: dict[str, int], now_us: int) -> accounting.Attempt:
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
        gpu_type=row.gpu_type,
        waiting_since=optional_instant(_waiting_since(row, begun)),
    )
