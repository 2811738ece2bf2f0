"""The filters of a list as a part of its URL, so that links and bookmarks keep them. Pure."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar

import msgspec

MOST_CHARACTERS = 200
"""Characters of a filter that are read: names are shorter."""
ALL = "*"


class UrlFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the filters of a list. An empty filter selects all. ``namespace``: ``*`` selects all
    in a session with a namespace. ``place``: the field with the position in a list with pages."""

    place: ClassVar[str] = ""
    namespace: str = ""

    @property
    def scope(self) -> str:
        """The namespace to read; empty for all."""
        return "" if self.namespace == ALL else self.namespace

    def fields(self, **changes: Any) -> dict[str, Any]:
        """The filters with these changes as fields of a URL, without defaults. A change of a
        filter leads to the first page."""
        default = type(self)()
        first = {self.place: getattr(default, self.place)} if self.place else {}
        wanted = msgspec.structs.replace(self, **{**first, **changes})
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(wanted, name)) != getattr(default, name)
        }


def word(query: Mapping[str, str], name: str) -> str:
    """A field of a URL's query; empty without it."""
    return query.get(name, "").strip()[:MOST_CHARACTERS]


def day(query: Mapping[str, str], name: str) -> str:
    """A day of a URL's query, such as ``2026-01-31``; empty for anything else."""
    try:
        parsed_date = date.fromisoformat(word(query, name))
    except ValueError:
        return ""
    return parsed_date.isoformat() if parsed_date.year < date.max.year else ""


def begin(day_: str) -> datetime:
    """The beginning of a day (UTC)."""
    return datetime.combine(date.fromisoformat(day_), time(), UTC)


def end(day_: str) -> datetime:
    """The end of a day (UTC), which is the beginning of the next one."""
    return begin(day_) + timedelta(days=1)
