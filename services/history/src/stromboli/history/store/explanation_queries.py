"""The query of explanations: why PodGroups were pending, and their positions, over time."""

from typing import Any

import sqlalchemy as sa

from stromboli.history.core.rows import instant, micros
from stromboli.history.store import database, filters, pages, tables
from stromboli.shared import decoding
from stromboli.shared.api.views import accounting

_JOBS = tables.JOBS.c
_EXPLANATIONS, _POSITIONS = tables.EXPLANATIONS.c, tables.QUEUE_POSITIONS.c
_EXPLAINED = decoding.decoder_of(dict[str, Any])


async def explanations(
    opened: database.Database, query: accounting.ExplanationQuery
) -> accounting.ExplanationPage:
    """A page of explanations, the newest first. Raises InvalidError, UnavailableError."""
    wanted = _wanted(_EXPLANATIONS, query)
    if query.after:
        wanted.append(pages.behind(_EXPLANATIONS.at, _EXPLANATIONS.pod_group, query.after))
    limit = max(1, min(query.limit, accounting.MOST_EXPLANATIONS))
    statement = (
        sa.select(tables.EXPLANATIONS)
        .where(*wanted)
        .order_by(_EXPLANATIONS.at.desc(), _EXPLANATIONS.pod_group.desc())
        .limit(limit + 1)
    )
    of_positions = (
        sa.select(tables.QUEUE_POSITIONS)
        .where(*_wanted(_POSITIONS, query))
        .order_by(_POSITIONS.at.desc(), _POSITIONS.pod_group.desc())
        .limit(limit)
    )
    async with opened.transaction() as connection:
        rows = (await connection.execute(statement)).all()
        is_of_job = bool(query.job or query.uid) and not query.after
        positions = (await connection.execute(of_positions)).all() if is_of_job else ()
    page_rows, more = pages.cut(rows, limit, "at", "pod_group")
    return accounting.ExplanationPage(
        explanations=tuple(_explanation(row) for row in page_rows),
        positions=tuple(_position(row) for row in positions),
        continue_=more,
    )


def _wanted(columns: Any, query: accounting.ExplanationQuery) -> filters.Conditions:
    """The conditions on rows of either table. The PodGroup of a job is ``NAME-UID``."""
    wanted: filters.Conditions = []
    if query.namespace:
        wanted.append(columns.pod_group.startswith(f"{query.namespace}/", autoescape=True))
    if query.job or query.uid:
        of_jobs = sa.select(_JOBS.namespace + "/" + _JOBS.name + "-" + _JOBS.uid).where(
            *filters.equal(
                (_JOBS.namespace, query.namespace),
                (_JOBS.name, query.job),
                (_JOBS.uid, query.uid),
            )
        )
        wanted.append(columns.pod_group.in_(of_jobs))
    if query.since is not None:
        wanted.append(columns.at >= micros(query.since))
    if query.until is not None:
        wanted.append(columns.at < micros(query.until))
    return wanted


def _explanation(row: Any) -> accounting.PastExplanation:
    namespace, _, name = row.pod_group.partition("/")
    return accounting.PastExplanation(
        at=instant(row.at),
        namespace=namespace,
        pod_group=name,
        queue=row.queue,
        explained=_EXPLAINED.decode(row.explained) if row.explained else None,
    )


def _position(row: Any) -> accounting.QueuePosition:
    return accounting.QueuePosition(
        at=instant(row.at),
        pod_group=row.pod_group.partition("/")[2],
        queue=row.queue,
        in_front=row.in_front,
    )
