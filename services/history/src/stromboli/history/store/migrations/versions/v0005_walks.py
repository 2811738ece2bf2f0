"""Lists walk indexes in the order of time: associations, spans, devices and labels.

Existing rows are converted here, which takes minutes for millions of attempts.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

ROWS = 5000
OPEN_SPAN = 64
_ATTEMPTS = sa.table(
    "attempts",
    *map(sa.column, ("pod_uid", "job_uid", "namespace", "association", "span", "devices")),
    *map(sa.column, ("submitted_at", "ended_at")),
)
_JOBS = sa.table("jobs", *map(sa.column, ("uid", "queue", "user_name", "labels")))
_ASSOCIATIONS = sa.table("associations", *map(sa.column, ("id", "namespace", "queue", "user_name")))
_DEVICES = sa.table("attempt_devices", *map(sa.column, ("pod_uid", "device", "submitted_at")))
_LABELS = sa.table("job_labels", *map(sa.column, ("job_uid", "label")))


def upgrade() -> None:
    """Create the tables, columns and indexes, and fill them."""
    op.create_table(
        "associations",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("user_name", sa.Text, nullable=False),
    )
    op.create_index(
        "associations_by_name", "associations", ["namespace", "queue", "user_name"], unique=True
    )
    op.create_table(
        "attempt_devices",
        sa.Column("pod_uid", sa.Text, primary_key=True),
        sa.Column("device", sa.Text, primary_key=True),
        sa.Column("submitted_at", sa.BigInteger, nullable=True),
    )
    op.create_table(
        "job_labels",
        sa.Column("job_uid", sa.Text, primary_key=True),
        sa.Column("label", sa.Text, primary_key=True),
    )
    for column in ("association", "span"):
        op.add_column(
            "attempts", sa.Column(column, sa.BigInteger, nullable=False, server_default="0")
        )
    for name in ("attempts_by_job", "attempts_by_name"):
        op.drop_index(name, "attempts")
    _fill()
    op.create_index("attempt_devices_by_device", "attempt_devices", ["device", "submitted_at"])
    op.create_index("job_labels_by_label", "job_labels", ["label", "job_uid"])
    op.create_index("attempts_by_job", "attempts", ["job_uid", "submitted_at"])
    op.create_index("attempts_by_name", "attempts", ["namespace", "job", "submitted_at"])
    op.create_index("attempts_by_association", "attempts", ["association", "state", "submitted_at"])
    op.create_index("attempts_by_span", "attempts", ["span", "submitted_at"])


def downgrade() -> None:
    """Drop the tables, columns and indexes, and create the earlier indexes."""
    for name in ("span", "association", "name", "job"):
        op.drop_index(f"attempts_by_{name}", "attempts")
    for table in ("job_labels", "attempt_devices", "associations"):
        op.drop_table(table)
    for column in ("span", "association"):
        op.drop_column("attempts", column)
    op.create_index("attempts_by_job", "attempts", ["job_uid"])
    op.create_index("attempts_by_name", "attempts", ["namespace", "job"])


def _fill() -> None:
    connection = op.get_bind()
    attempts, jobs = _ATTEMPTS.c, _JOBS.c
    queue, user = (sa.func.coalesce(it, "") for it in (jobs.queue, jobs.user_name))
    joined = _ATTEMPTS.outerjoin(_JOBS, attempts.job_uid == jobs.uid)
    associations = connection.execute(
        sa.select(attempts.namespace, queue, user).select_from(joined).distinct()
    ).all()
    names = ("namespace", "queue", "user_name")
    _insert(
        connection,
        _ASSOCIATIONS,
        (
            dict(zip(("id", *names), (at, *row), strict=True))
            for at, row in enumerate(associations, 1)
        ),
    )
    is_of_job = sa.and_(
        _ASSOCIATIONS.c.namespace == attempts.namespace,
        _ASSOCIATIONS.c.queue == jobs.queue,
        _ASSOCIATIONS.c.user_name == jobs.user_name,
    )
    own = (
        sa.select(_ASSOCIATIONS.c.id)
        .select_from(_JOBS.join(_ASSOCIATIONS, is_of_job))
        .where(jobs.uid == attempts.job_uid)
        .correlate(_ATTEMPTS)
    )
    without_job = sa.select(_ASSOCIATIONS.c.id).where(
        _ASSOCIATIONS.c.namespace == attempts.namespace,
        _ASSOCIATIONS.c.queue == "",
        _ASSOCIATIONS.c.user_name == "",
    )
    lasted_s = (attempts.ended_at - attempts.submitted_at) / 1_000_000
    spans = [(lasted_s < 2**span, span) for span in range(40)]
    span = sa.case((attempts.ended_at.is_(None), OPEN_SPAN), *spans, else_=40)
    association = sa.func.coalesce(own.scalar_subquery(), without_job.scalar_subquery(), 0)
    connection.execute(sa.update(_ATTEMPTS).values(association=association, span=span))
    _insert(connection, _DEVICES, _devices(connection))
    _insert(connection, _LABELS, _labels(connection))


def _devices(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    columns = (_ATTEMPTS.c.pod_uid, _ATTEMPTS.c.devices, _ATTEMPTS.c.submitted_at)
    chosen = sa.select(*columns).where(_ATTEMPTS.c.devices != "{}")
    for row in _rows(connection, chosen, _ATTEMPTS.c.pod_uid):
        ids = {it.partition(" (")[0] for each in json.loads(row.devices).values() for it in each}
        for device in sorted(ids):
            yield {"pod_uid": row.pod_uid, "device": device, "submitted_at": row.submitted_at}


def _labels(connection: sa.Connection) -> Iterator[dict[str, Any]]:
    chosen = sa.select(_JOBS.c.uid, _JOBS.c.labels).where(_JOBS.c.labels != "{}")
    for row in _rows(connection, chosen, _JOBS.c.uid):
        for key, value in json.loads(row.labels).items():
            yield {"job_uid": row.uid, "label": f"{key}={value}"}


def _rows(connection: sa.Connection, chosen: "sa.Select[Any]", key: Any) -> Iterator[Any]:
    """The rows in the order of a key, some at a time: drivers keep the whole result of a SELECT."""
    last = ""
    while rows := connection.execute(chosen.where(key > last).order_by(key).limit(ROWS)).all():
        yield from rows
        last = rows[-1][0]


def _insert(connection: sa.Connection, table: Any, rows: Iterable[dict[str, Any]]) -> None:
    chunk: list[dict[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS:
            connection.execute(sa.insert(table), chunk)
            chunk = []
    if chunk:
        connection.execute(sa.insert(table), chunk)
