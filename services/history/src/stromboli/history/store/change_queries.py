"""The query of changes of the cluster: nodes, queues, priority classes, configuration."""

from typing import Any

import sqlalchemy as sa

from stromboli.history.core.rows import instant, micros
from stromboli.history.store import database, filters, pages, tables
from stromboli.shared import decoding
from stromboli.shared.api.views import accounting

_CHANGES = tables.CLUSTER_CHANGES.c
_FIELDS = decoding.decoder_of(list[tuple[str, str, str]])


async def changes(
    opened: database.Database, query: accounting.ChangeQuery
) -> accounting.ChangePage:
    """A page of changes, the newest first. Raises InvalidError, UnavailableError."""
    version = sa.cast(_CHANGES.version, sa.Text)
    of_object = _CHANGES.kind + "/" + _CHANGES.name + "/" + _CHANGES.uid
    identity = of_object + "/" + version + "/" + _CHANGES.action
    wanted = filters.equal((_CHANGES.kind, query.kind), (_CHANGES.name, query.name))
    if query.since is not None:
        wanted.append(_CHANGES.at >= micros(query.since))
    if query.until is not None:
        wanted.append(_CHANGES.at < micros(query.until))
    if query.after:
        wanted.append(pages.behind(_CHANGES.at, identity, query.after))
    limit = max(1, min(query.limit, accounting.MOST_CHANGES))
    statement = (
        sa.select(tables.CLUSTER_CHANGES, identity.label("identity"))
        .where(*wanted)
        .order_by(_CHANGES.at.desc(), identity.desc())
        .limit(limit + 1)
    )
    async with opened.transaction() as connection:
        rows = (await connection.execute(statement)).all()
    page_rows, more = pages.cut(rows, limit, "at", "identity")
    return accounting.ChangePage(changes=tuple(_change(row) for row in page_rows), continue_=more)


def _change(row: Any) -> accounting.ClusterChange:
    return accounting.ClusterChange(
        at=instant(row.at),
        kind=row.kind,
        name=row.name,
        action=row.action,
        fields=tuple(
            accounting.FieldChange(field=field, before=before, after=after)
            for field, before, after in _FIELDS.decode(row.fields)
        ),
    )
