"""Chooses the walks (``index_walks``) of a query of attempts.

1. A job, name, node, device or label that selects few attempts: the walk over these.
2. Otherwise, by namespace, user, queue and state: the newest of all attempts, which suffice for
   frequent values; then a walk for each association and state. So every combination of these four
   reads only attempts that match. By state alone: a walk for each state.
3. Otherwise, the walk over the first of uid, device, name and node in the query, or over all
   attempts.

With ``since`` or ``at``, attempts that were submitted before that time must have lasted until then.
A search for these would read down to the first attempt. So 2. and 3. end at that time, and then
walk the spans (``AttemptRow.span``): attempts of less than 2**n seconds began at most that long
before the time. At least about half of the attempts that such a walk reads match.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from stromboli.history.core.rows import LONGEST_SPAN, OPEN_SPAN, SECOND, micros
from stromboli.history.store import associations, filters, index_walks, tables
from stromboli.history.store.index_walks import Found, Position, Walk
from stromboli.shared.api.views import accounting

FEW = 3000
PROBED = 1000
MOST_JOBS = 500
"""A label of at most this many jobs is selective."""
_ATTEMPTS, _ASSOCIATIONS = tables.ATTEMPTS.c, tables.ASSOCIATIONS.c
_LABELS, _DEVICES = tables.JOB_LABELS.c, tables.ATTEMPT_DEVICES.c


class Bounds(msgspec.Struct, frozen=True):
    """``few``: a walk of fewer entries is read in full. ``probed``: the number of newest
    attempts that are read first for frequent values. ``entries``: the most that a request reads."""

    few: int = FEW
    probed: int = PROBED
    entries: int = index_walks.MOST_ENTRIES


USUAL = Bounds()


async def find(
    connection: AsyncConnection,
    query: accounting.AttemptQuery,
    after: Position,
    wanted: int,
    bounds: Bounds = USUAL,
) -> Found:
    """The newest ``wanted`` attempts that a query selects and that come after ``after``."""
    if query.until is not None:
        after = min(after, (micros(query.until), ""))
    if query.at is not None:
        after = min(after, (micros(query.at) + 1, ""))
    most = max(bounds.entries, 2 * wanted)
    accepts = _accepts(query)
    walks, are_few = await _selective(connection, query, after, bounds.few)
    if are_few:
        return await index_walks.newest(connection, walks, accepts, wanted, most)
    since = query.at or query.since
    if since is None:
        return await _in_order(connection, query, walks, after, None, wanted, most, bounds.probed)
    since_us = micros(since)
    newer = Found([], None, 0)
    if query.at is None:
        newer = await _in_order(
            connection, query, walks, after, since_us, wanted, most, bounds.probed
        )
    if newer.rest is not None or len(newer.positions) >= wanted:
        return newer
    before = since_us if query.at is None else since_us + 1
    spans = await _spans(connection, min(after, (before, "")), since_us)
    older = await index_walks.newest(
        connection, spans, accepts, wanted - len(newer.positions), max(1, most - newer.read)
    )
    return Found([*newer.positions, *older.positions], older.rest, newer.read + older.read)


async def _in_order(
    connection: AsyncConnection,
    query: accounting.AttemptQuery,
    walks: Sequence[Walk],
    after: Position,
    low_us: int | None,
    wanted: int,
    most: int,
    probed_entries: int,
) -> Found:
    """The attempts that were submitted at ``low_us`` or later."""
    accepts = _accepts(query)
    if not (query.namespace or query.user or query.queue or query.states):
        chosen = list(walks) or [Walk(after)]
    else:
        probe = [Walk(after, low_us=low_us)]
        probed = await index_walks.newest(
            connection, probe, accepts, wanted, max(probed_entries, 2 * wanted)
        )
        if probed.rest is None or len(probed.positions) >= wanted:
            return probed
        if query.namespace or query.user or query.queue:
            chosen = await _of_associations(connection, query, after, low_us)
        else:
            chosen = [Walk(after, (_ATTEMPTS.state == it,)) for it in query.states]
    for walk in chosen:
        walk.low_us = low_us
    return await index_walks.newest(connection, chosen, accepts, wanted, most)


async def _selective(
    connection: AsyncConnection, query: accounting.AttemptQuery, after: Position, few: int
) -> tuple[list[Walk], bool]:
    """The walks over one of the selective fields, and whether they have few entries."""
    first: list[Walk] = []
    for walks in (
        [Walk(after, (_ATTEMPTS.job_uid == query.uid,))] if query.uid else [],
        [Walk(after, device=associations.device_id(query.device))] if query.device else [],
        await _of_name(connection, query, after) if query.job else [],
        [Walk(after, (_ATTEMPTS.node == query.node,))] if query.node else [],
    ):
        is_countable = 0 < len(walks) <= index_walks.WALKS_PER_STATEMENT
        if is_countable and await index_walks.count(connection, walks, few) < few:
            return walks, True
        first = first or walks
    if query.job and not first:
        return [], True  # no namespace has the name
    for key, value in query.labels.items():
        labelled = await _of_label(connection, f"{key}={value}", after)
        if labelled is not None:
            return labelled, True
    return first, False


async def _of_name(
    connection: AsyncConnection, query: accounting.AttemptQuery, after: Position
) -> list[Walk]:
    spaces = [query.namespace]
    if not query.namespace:
        known = sa.select(_ASSOCIATIONS.namespace).distinct()
        spaces = list((await connection.execute(known)).scalars())
    if len(spaces) == 1:
        of_name = _ATTEMPTS.namespace == spaces[0], _ATTEMPTS.job == query.job
        return [Walk(after, of_name)]
    names = sa.select(_ASSOCIATIONS.namespace).distinct().subquery()
    is_of = _ATTEMPTS.namespace == names.c.namespace, _ATTEMPTS.job == query.job
    newest_attempts = await _newest(connection, (names.c.namespace,), is_of, after)
    return [
        Walk(at, (_ATTEMPTS.namespace == row[0], _ATTEMPTS.job == query.job))
        for row, at in newest_attempts
    ]


async def _of_label(connection: AsyncConnection, label: str, after: Position) -> list[Walk] | None:
    """A walk for each job with a label; None for more than ``MOST_JOBS``."""
    labelled = sa.select(_LABELS.job_uid).where(_LABELS.label == label).limit(MOST_JOBS + 1)
    jobs = labelled.subquery()
    is_of = (_ATTEMPTS.job_uid == jobs.c.job_uid,)
    uids = (await connection.execute(labelled)).scalars().all()
    if len(uids) > MOST_JOBS:
        return None
    newest_attempts = await _newest(connection, (jobs.c.job_uid,), is_of, after)
    return [Walk(at, (_ATTEMPTS.job_uid == row[0],)) for row, at in newest_attempts]


async def _of_associations(
    connection: AsyncConnection,
    query: accounting.AttemptQuery,
    after: Position,
    low_us: int | None,
) -> list[Walk]:
    """A walk for each association and state that has attempts."""
    wanted = filters.equal(
        (_ASSOCIATIONS.namespace, query.namespace),
        (_ASSOCIATIONS.queue, query.queue),
        (_ASSOCIATIONS.user_name, query.user),
    )
    chosen = query.states or accounting.STATES
    states = sa.union_all(
        *(sa.select(sa.literal(it, sa.Text).label("state")) for it in chosen)
    ).subquery()
    keys = (
        sa.select(_ASSOCIATIONS.id, states.c.state)
        .select_from(tables.ASSOCIATIONS.join(states, sa.true()))
        .where(*wanted)
        .subquery()
    )
    is_of = _ATTEMPTS.association == keys.c.id, _ATTEMPTS.state == keys.c.state
    newest_attempts = await _newest(connection, tuple(keys.c), is_of, after)
    return [
        Walk(at, (_ATTEMPTS.association == row[0], _ATTEMPTS.state == row[1]))
        for row, at in newest_attempts
        if low_us is None or at[0] > low_us
    ]


async def _spans(connection: AsyncConnection, after: Position, since_us: int) -> list[Walk]:
    """A walk for each span over the attempts that may have lasted until ``since_us``."""
    lows = {span: since_us - int(2**span * SECOND) for span in range(LONGEST_SPAN + 1)}
    lows[OPEN_SPAN] = 0
    keys = sa.union_all(
        *(
            sa.select(
                sa.literal(span, tables.NUMBER).label("span"),
                sa.literal(max(0, low), tables.NUMBER).label("low"),
            )
            for span, low in lows.items()
        )
    ).subquery()
    is_of = _ATTEMPTS.span == keys.c.span, _ATTEMPTS.submitted_at >= keys.c.low
    return [
        Walk(at, (_ATTEMPTS.span == row[0],), max(0, row[1]))
        for row, at in await _newest(connection, (keys.c.span, keys.c.low), is_of, after)
    ]


async def _newest(
    connection: AsyncConnection,
    keys: "Sequence[sa.ColumnElement[Any]]",
    is_of: "Sequence[sa.ColumnElement[bool]]",
    after: Position,
) -> list[tuple[tuple[Any, ...], Position]]:
    """The keys that have attempts, each with the position before the newest one. One index lookup
    for each key."""
    time = sa.select(sa.func.max(_ATTEMPTS.submitted_at))
    newest = time.where(*is_of, _ATTEMPTS.submitted_at <= after[0]).scalar_subquery()
    rows = (await connection.execute(sa.select(*keys, newest))).all()
    return [(tuple(row[:-1]), min(after, (row[-1] + 1, ""))) for row in rows if row[-1] is not None]


def _accepts(query: accounting.AttemptQuery) -> index_walks.Filter:
    """All conditions of a query except ``until``, for the columns of attempts."""

    def accepts(columns: Any) -> Sequence["sa.ColumnElement[bool]"]:
        wanted = filters.equal(
            (columns.namespace, query.namespace),
            (columns.job, query.job),
            (columns.job_uid, query.uid),
            (columns.node, query.node),
        )
        if query.user or query.queue:
            wanted.append(columns.association.in_(filters.associations(query.user, query.queue)))
        if query.states:
            wanted.append(columns.state.in_(query.states))
        if query.since is not None:
            wanted.append(_is_open_or_after(columns, micros(query.since)))
        if query.at is not None:
            wanted.append(columns.allocated_at <= micros(query.at))
            wanted.append(_is_open_or_after(columns, micros(query.at)))
        if query.device:
            device = associations.device_id(query.device)
            has_device = _DEVICES.pod_uid == columns.pod_uid, _DEVICES.device == device
            wanted.append(sa.exists().where(*has_device))
        return [*wanted, *filters.each_labelled(query.labels, columns.job_uid)]

    return accepts


def _is_open_or_after(columns: Any, since: int) -> "sa.ColumnElement[bool]":
    return sa.or_(columns.ended_at.is_(None), columns.ended_at > since)
