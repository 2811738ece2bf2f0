"""Conditions of queries."""

import msgspec
import sqlalchemy as sa

from stromboli.history.store import tables

_ATTEMPTS, _JOBS = tables.ATTEMPTS.c, tables.JOBS.c
Conditions = list["sa.ColumnElement[bool]"]


def equal(*pairs: "tuple[sa.ColumnElement[str], str]") -> Conditions:
    """Conditions that columns have these values; an empty value selects all."""
    return [column == value for column, value in pairs if value]


def of_jobs(namespace: str, user: str, queue: str, labels: dict[str, str]) -> Conditions:
    """Conditions on attempts joined with their jobs; an empty field selects all."""
    wanted = equal((_ATTEMPTS.namespace, namespace), (_JOBS.user_name, user), (_JOBS.queue, queue))
    for key, value in labels.items():
        # Labels are JSON in a fixed form, and neither keys nor values contain quotes.
        pair = f"{msgspec.json.encode(key).decode()}:{msgspec.json.encode(value).decode()}"
        wanted.append(_JOBS.labels.contains(pair, autoescape=True))
    return wanted
