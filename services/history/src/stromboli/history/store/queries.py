"""The query of attempts: filters, page by page."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from stromboli.history.core import folding, placements
from stromboli.history.core.rows import SECOND, micros, optional_instant
from stromboli.history.store import attempt_walks, database, index_walks, pages, tables
from stromboli.shared import decoding
from stromboli.shared.api.views import accounting

GIB = 2.0**30
UIDS_PER_QUERY = 1000
"""Uids in one statement: both databases limit its parameters."""
DELETED = frozenset({folding.JOB_DELETED, "Deleted"})
"""Reasons of attempts whose pods were deleted, by themselves or with their job."""
SKEW_US = 1_000_000
"""How much later admission's clock may be than the controller's."""
_ATTEMPTS, _JOBS, _ASSOCIATIONS = tables.ATTEMPTS.c, tables.JOBS.c, tables.ASSOCIATIONS.c
_REQUESTED = tables.JOB_REQUESTS.c
_JOINED = tables.ATTEMPTS.outerjoin(
    tables.ASSOCIATIONS, _ATTEMPTS.association == _ASSOCIATIONS.id
).outerjoin(tables.JOBS, _ATTEMPTS.job_uid == _JOBS.uid)
_REQUESTS = decoding.decoder_of(dict[str, int])
_DEVICES = decoding.decoder_of(dict[str, tuple[str, ...]])
_PLACEMENT = decoding.decoder_of(placements.Placement)
_LABELS = decoding.decoder_of(dict[str, str])


async def attempts(
    opened: database.Database, query: accounting.AttemptQuery, now: datetime
) -> accounting.AttemptPage:
    """A page of attempts, the most recently created pod first; may have fewer than ``limit``
    although more follow. Running ones count until ``now``. Raises InvalidError,
    UnavailableError."""
    after = pages.position(query.after) if query.after else index_walks.BEGIN
    limit = max(1, min(query.limit, accounting.MOST_ATTEMPTS))
    async with opened.snapshot() as connection:
        selection = await attempt_walks.find(connection, query, after, limit + 1)
        page_positions = selection.positions[:limit]
        rows = await _rows(connection, [uid for _, uid in page_positions])
        deleted = {row.job_uid for row in rows.values() if row.reason in DELETED}
        deletions = await _deletions(connection, deleted)
    last = page_positions[-1] if len(selection.positions) > limit else selection.rest
    now_us = micros(now)
    return accounting.AttemptPage(
        attempts=tuple(_attempt(rows[uid], deletions, now_us) for _, uid in page_positions),
        continue_=pages.token(last) if last else "",
    )


async def _rows(connection: AsyncConnection, uids: Sequence[str]) -> dict[str, Any]:
    rows_by_uid: dict[str, Any] = {}
    for begin in range(0, len(uids), UIDS_PER_QUERY):
        chosen = _ATTEMPTS.pod_uid.in_(uids[begin : begin + UIDS_PER_QUERY])
        statement = (
            sa.select(
                tables.ATTEMPTS,
                _ASSOCIATIONS.queue,
                _ASSOCIATIONS.user_name,
                _JOBS.labels,
                _JOBS.submitted_at.label("job_submitted_at"),
                _JOBS.begun_at.label("job_begun_at"),
            )
            .select_from(_JOINED)
            .where(chosen)
        )
        rows_by_uid |= {row.pod_uid: row for row in await connection.execute(statement)}
    return rows_by_uid


async def _deletions(
    connection: AsyncConnection, jobs: set[str]
) -> dict[str, list[tuple[int, str]]]:
    """Job -> the requests to delete it in the order of time: when, and by whom."""
    deletions: dict[str, list[tuple[int, str]]] = defaultdict(list)
    uids = sorted(jobs)
    for begin in range(0, len(uids), UIDS_PER_QUERY):
        statement = (
            sa.select(_REQUESTED.job_uid, _REQUESTED.at, _REQUESTED.user_name)
            .where(
                _REQUESTED.job_uid.in_(uids[begin : begin + UIDS_PER_QUERY]),
                _REQUESTED.action == accounting.DELETE_JOB,
            )
            .order_by(_REQUESTED.at)
        )
        for uid, at, user in await connection.execute(statement):
            deletions[uid].append((at, user))
    return deletions


def _detail(row: Any, deletions: dict[str, list[tuple[int, str]]]) -> str:
    """The explanation of the reason; for a pod that was deleted with its job, who deleted the
    job."""
    if row.detail or row.reason not in DELETED or row.ended_at is None:
        return str(row.detail)
    before = row.ended_at + SKEW_US
    users = [user for at, user in deletions.get(row.job_uid, []) if at <= before]
    return f"job deleted by {', '.join(dict.fromkeys(users))}" if users else ""


def _submission(row: Any) -> int | None:
    if row.submitted_at is None:
        return None
    submitted: int | None = row.job_submitted_at
    begun: int | None = row.job_begun_at
    return accounting.submission(int(row.submitted_at), row.retry_count, submitted, begun)


def _attempt(
    row: Any, deletions: dict[str, list[tuple[int, str]]], now_us: int
) -> accounting.Attempt:
    end = now_us if row.ended_at is None else row.ended_at
    placement = _PLACEMENT.decode(row.placement or "{}")
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
        detail=_detail(row, deletions),
        exit_code=row.exit_code,
        node=row.node,
        submitted_at=optional_instant(_submission(row)),
        created_at=optional_instant(row.submitted_at),
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
        numa_nodes=placement.numa_nodes,
        exclusive_cpus=placement.cpus,
        confirmed_devices=placement.devices,
        used_cpu_seconds=_optional_seconds(row.used_cpu),
        max_memory_bytes=row.max_memory,
        used_gpu_seconds=_optional_seconds(row.used_gpu),
        max_gpu_memory_bytes=row.max_gpu_memory,
    )


def _optional_seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
