"""SQL conditions that queries share."""

from typing import Any

import sqlalchemy as sa

from stromboli.history.store import tables

_ASSOCIATIONS, _LABELS = tables.ASSOCIATIONS.c, tables.JOB_LABELS.c
Conditions = list["sa.ColumnElement[bool]"]


def equal(*pairs: "tuple[sa.ColumnElement[str], str]") -> Conditions:
    """Conditions that columns have these values; an empty value selects all."""
    return [column == value for column, value in pairs if value]


def associations(user: str, queue: str) -> "sa.Select[Any]":
    """The ids of the associations with a user and a queue."""
    wanted = equal((_ASSOCIATIONS.user_name, user), (_ASSOCIATIONS.queue, queue))
    return sa.select(_ASSOCIATIONS.id).where(*wanted)


def labels(wanted: dict[str, str]) -> list[str]:
    """Labels as ``KEY=VALUE``, as in the table ``job_labels``."""
    return [f"{key}={value}" for key, value in wanted.items()]


def labelled(wanted: dict[str, str], job_uid: "sa.ColumnElement[str]") -> Conditions:
    """Conditions that the job has these labels."""
    return [
        job_uid.in_(sa.select(_LABELS.job_uid).where(_LABELS.label == label))
        for label in labels(wanted)
    ]
