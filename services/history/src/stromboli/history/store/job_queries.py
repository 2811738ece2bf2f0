"""The queries about jobs: their phases, and evictions with their beneficiaries."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from stromboli.history.core.rows import instant, micros, optional_instant
from stromboli.history.store import database, filters, pages, tables
from stromboli.shared import decoding
from stromboli.shared.api.views import accounting

_JOBS, _PHASES = tables.JOBS.c, tables.PHASES.c
_ATTEMPTS, _EVICTIONS = tables.ATTEMPTS.c, tables.EVICTIONS.c
_REQUESTED = tables.JOB_REQUESTS.c
_LABELS = decoding.decoder_of(dict[str, str])
_SPEC = decoding.decoder_of(dict[str, Any])


async def jobs(opened: database.Database, query: accounting.JobQuery) -> accounting.JobPage:
    """A page of jobs with their phases, the latest submission first. Raises InvalidError,
    UnavailableError."""
    at = sa.func.coalesce(_JOBS.submitted_at, 0)
    wanted = filters.equal(
        (_JOBS.namespace, query.namespace), (_JOBS.name, query.name), (_JOBS.uid, query.uid)
    )
    if query.after:
        wanted.append(pages.behind(at, _JOBS.uid, query.after))
    limit = max(1, min(query.limit, accounting.MOST_JOBS))
    statement = (
        sa.select(tables.JOBS, at.label("ordered_at"))
        .where(*wanted)
        .order_by(at.desc(), _JOBS.uid.desc())
        .limit(limit + 1)
    )
    async with opened.transaction() as connection:
        rows = (await connection.execute(statement)).all()
        page_rows, more = pages.cut(rows, limit, "ordered_at", "uid")
        uids = [row.uid for row in page_rows]
        newest = _newest(
            tables.PHASES, (_PHASES.at, _PHASES.retry_count), uids, accounting.MOST_PHASES
        )
        entered = (await connection.execute(newest)).all()
        newest = _newest(tables.JOB_REQUESTS, (_REQUESTED.at,), uids, accounting.MOST_REQUESTS)
        requested = (await connection.execute(newest)).all()
    phases: dict[str, list[accounting.PhaseChange]] = defaultdict(list)
    for row in entered:
        phases[row.job_uid].append(_phase(row))
    requests: dict[str, list[accounting.JobRequest]] = defaultdict(list)
    for row in requested:
        requests[row.job_uid].append(_request(row))
    records = tuple(
        _job(row, tuple(phases[row.uid]), tuple(requests[row.uid])) for row in page_rows
    )
    return accounting.JobPage(jobs=records, continue_=more)


async def evictions(
    opened: database.Database, query: accounting.EvictionQuery
) -> accounting.EvictionPage:
    """A page of evictions, the newest first. Raises InvalidError, UnavailableError."""
    at = sa.func.coalesce(_EVICTIONS.at, 0)
    identity = _EVICTIONS.decision + "/" + _EVICTIONS.pod_uid
    wanted: filters.Conditions = []
    if query.namespace or query.job or query.uid:
        wanted.append(sa.or_(_is_evicted(query), _is_for(query)))
    if query.node:
        # The name of a node is no secret, but a filter by node would reveal where pods of other
        # namespaces ran.
        wanted += [
            _ATTEMPTS.node == query.node,
            *filters.equal((_EVICTIONS.namespace, query.namespace)),
        ]
    if query.reason:
        wanted.append(_EVICTIONS.reason.contains(query.reason, autoescape=True))
    if query.since is not None:
        wanted.append(at >= micros(query.since))
    if query.until is not None:
        wanted.append(at < micros(query.until))
    if query.after:
        wanted.append(pages.behind(at, identity, query.after))
    limit = max(1, min(query.limit, accounting.MOST_EVICTIONS))
    evictor = tables.JOBS.alias("evictor")
    statement = (
        sa.select(
            tables.EVICTIONS,
            at.label("ordered_at"),
            identity.label("identity"),
            _ATTEMPTS.job,
            _ATTEMPTS.job_uid,
            _ATTEMPTS.node,
            evictor.c.name.label("by_job"),
            evictor.c.namespace.label("by_job_namespace"),
        )
        .select_from(
            tables.EVICTIONS.outerjoin(
                tables.ATTEMPTS, _ATTEMPTS.pod_uid == _EVICTIONS.pod_uid
            ).outerjoin(evictor, evictor.c.uid == _EVICTIONS.by_job_uid)
        )
        .where(*wanted)
        .order_by(at.desc(), identity.desc())
        .limit(limit + 1)
    )
    async with opened.transaction() as connection:
        rows = (await connection.execute(statement)).all()
    page_rows, more = pages.cut(rows, limit, "ordered_at", "identity")
    page_evictions = tuple(_eviction(row, query.namespace) for row in page_rows)
    return accounting.EvictionPage(evictions=page_evictions, continue_=more)


def _newest(
    table: sa.Table, times: "Sequence[sa.Column[Any]]", uids: list[str], most: int
) -> "sa.Select[Any]":
    """The newest rows of each job in the order of time."""
    order = sa.func.row_number().over(
        partition_by=table.c.job_uid, order_by=[column.desc() for column in times]
    )
    ranked = sa.select(table, order.label("rank")).where(table.c.job_uid.in_(uids)).subquery()
    return (
        sa.select(ranked)
        .where(ranked.c.rank <= most)
        .order_by(ranked.c.job_uid, ranked.c.rank.desc())
    )


def _is_evicted(query: accounting.EvictionQuery) -> "sa.ColumnElement[bool]":
    """Whether the pod is in the namespace and of the job."""
    wanted = filters.equal((_EVICTIONS.namespace, query.namespace))
    of_job = filters.equal((_ATTEMPTS.job, query.job), (_ATTEMPTS.job_uid, query.uid))
    return sa.and_(sa.true(), *wanted, *of_job)


def _is_for(query: accounting.EvictionQuery) -> "sa.ColumnElement[bool]":
    """Whether the PodGroup is in the namespace and of the job."""
    wanted = filters.equal((_EVICTIONS.by_job_uid, query.uid))
    if query.uid or query.job:
        wanted.append(~_is_forged())
    if query.namespace:
        wanted.append(_EVICTIONS.by_pod_group.startswith(f"{query.namespace}/", autoescape=True))
    if query.job:
        named = sa.select(_JOBS.uid).where(
            *filters.equal((_JOBS.namespace, query.namespace), (_JOBS.name, query.job))
        )
        wanted.append(_EVICTIONS.by_job_uid.in_(named))
    return sa.and_(sa.true(), *wanted)


def _is_forged() -> "sa.ColumnElement[bool]":
    """Whether the job of this uid is in another namespace than the PodGroup.

    The uid is that of the PodGroup's owner reference, which users write; an owner is in the
    namespace of what it owns."""
    prefix = _JOBS.namespace + "/"
    is_there = sa.func.substr(_EVICTIONS.by_pod_group, 1, sa.func.length(prefix)) == prefix
    return sa.exists().where(_JOBS.uid == _EVICTIONS.by_job_uid, ~is_there)


def _phase(row: Any) -> accounting.PhaseChange:
    return accounting.PhaseChange(
        at=instant(row.at),
        phase=row.phase,
        before=row.before,
        reason=row.reason,
        message=row.message,
        retry_count=row.retry_count,
    )


def _request(row: Any) -> accounting.JobRequest:
    return accounting.JobRequest(
        at=instant(row.at),
        user=row.user_name,
        action=row.action,
        entry_point=row.entry_point,
        detail=row.detail,
    )


def _job(
    row: Any,
    phases: tuple[accounting.PhaseChange, ...],
    requests: tuple[accounting.JobRequest, ...],
) -> accounting.JobRecord:
    return accounting.JobRecord(
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        queue=row.queue,
        user=row.user_name,
        phase=row.phase,
        reason=row.reason,
        retry_count=row.retry_count,
        submitted_at=optional_instant(row.submitted_at),
        finished_at=optional_instant(row.finished_at),
        deleted_at=optional_instant(row.deleted_at),
        labels=_LABELS.decode(row.labels or "{}"),
        spec=_SPEC.decode(row.spec or "{}"),
        phases=phases,
        requests=requests,
    )


def _eviction(row: Any, namespace: str) -> accounting.Eviction:
    """The eviction for a reader of this namespace (empty: of all namespaces); the names of pods and
    jobs in other namespaces are left out, as in Events and conditions."""
    is_shown = namespace in ("", row.namespace)
    by_namespace, _, by_pod_group = row.by_pod_group.partition("/")
    is_by_shown = namespace in ("", by_namespace)
    is_owner_shown = is_by_shown and row.by_job_namespace in (None, by_namespace)  # not forged
    return accounting.Eviction(
        decision=row.decision,
        namespace=row.namespace,
        pod=row.pod if is_shown else "",
        pod_uid=row.pod_uid if is_shown else "",
        job=(row.job or "") if is_shown else "",
        uid=(row.job_uid or "") if is_shown else "",
        by_namespace=by_namespace,
        by_pod_group=by_pod_group if is_by_shown else "",
        by_job=(row.by_job or "") if is_owner_shown else "",
        by_uid=row.by_job_uid if is_owner_shown else "",
        reason=row.reason,
        refused=row.refused,
        at=optional_instant(row.at),
        node=(row.node or "") if is_shown else "",
    )
