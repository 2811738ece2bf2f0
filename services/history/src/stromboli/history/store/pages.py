"""Pages of rows that are ordered by a time and an id, the newest first."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from stromboli.history.store import tables
from stromboli.shared import decoding, errors

FIRST_ID = " "
"""Less than all ids."""
LATEST_US = 2**62
"""Later than all times; microseconds since 1970."""


def behind(
    at: "sa.ColumnElement[int]", identity: "sa.ColumnElement[str]", after: str
) -> "sa.ColumnElement[bool]":
    """Whether a row comes after the page that ended with this token. Raises InvalidError."""
    number, last = position(after)
    return sa.tuple_(at, identity) < sa.tuple_(sa.literal(number, tables.NUMBER), sa.literal(last))


def position(after: str) -> tuple[int, str]:
    """The time and id at which a page ended. Raises InvalidError."""
    text, _, last = after.partition(".")
    number = decoding.number(text)
    if number is None or not last:
        raise errors.InvalidError("continue", "it is not the `continue` of a previous page")
    return min(number, LATEST_US), last


def token(last: tuple[int, str]) -> str:
    """The token of the page that follows a time and id; without an id, of the rows that are
    older than the time."""
    return f"{last[0]}.{last[1] or FIRST_ID}"


def cut(rows: Sequence[Any], limit: int, at: str, identity: str) -> tuple[Sequence[Any], str]:
    """The first ``limit`` of the rows, and the token of the next page, empty if there is
    none. ``at`` and ``identity``: the names of the columns that order them."""
    page_rows = rows[:limit]
    if len(rows) <= limit:
        return page_rows, ""
    return page_rows, token((getattr(page_rows[-1], at), getattr(page_rows[-1], identity)))
