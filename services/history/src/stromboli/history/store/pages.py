"""Pages of rows that are ordered by a time and an id, the last one first."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from stromboli.history.store import tables
from stromboli.shared import decoding, errors


def behind(
    at: "sa.ColumnElement[int]", identity: "sa.ColumnElement[str]", after: str
) -> "sa.ColumnElement[bool]":
    """Whether a row comes after the page that ended with this token. Raises InvalidError."""
    text, _, last = after.partition(".")
    number = decoding.number(text)
    if number is None or not last:
        raise errors.InvalidError("continue", "it is not the `continue` of a previous page")
    return sa.tuple_(at, identity) < sa.tuple_(sa.literal(number, tables.NUMBER), sa.literal(last))


def cut(rows: Sequence[Any], limit: int, at: str, identity: str) -> tuple[Sequence[Any], str]:
    """The first ``limit`` of the rows, and the token of the next page, empty if there is
    none. ``at`` and ``identity``: the names of the columns that order them."""
    shown = rows[:limit]
    if len(rows) <= limit:
        return shown, ""
    return shown, f"{getattr(shown[-1], at)}.{getattr(shown[-1], identity)}"
