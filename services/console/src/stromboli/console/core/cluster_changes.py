"""Changes of nodes, queues, priority classes and the configuration: filters and rows. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import ClassVar

import msgspec

from stromboli.console.core import url_filters
from stromboli.console.core.past_attempts import MOST_TOKEN_CHARACTERS
from stromboli.console.core.url_filters import UrlFilters, word
from stromboli.shared.api.views import accounting

PAGE_ROWS = 100
SHOWN_FIELDS = 12
"""Fields of a change that the page shows; it gives the number of the others."""
PATHS = {"Node": "/nodes/", "Hardware": "/nodes/", "Queue": "/queues/"}
"""Kind -> the prefix of the paths of its objects' pages."""


class ChangeFilters(UrlFilters, frozen=True, kw_only=True):
    """The filters of the list. ``since`` and ``until`` are days (UTC), both included. ``after``:
    the token of the page."""

    place: ClassVar[str] = "after"
    kind: str = ""
    name: str = ""
    since: str = ""
    until: str = ""
    after: str = ""

    def query(self) -> accounting.ChangeQuery:
        """These filters as a query to REST."""
        return accounting.ChangeQuery(
            kind=self.kind,
            name=self.name,
            since=url_filters.begin(self.since) if self.since else None,
            until=url_filters.end(self.until) if self.until else None,
            limit=PAGE_ROWS,
            after=self.after,
        )


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an object. ``path``: the prefix of the path of the object's page, empty if it has
    no page. ``more``: the number of changed fields that are not shown."""

    at: datetime
    kind: str
    name: str
    action: str
    path: str
    fields: tuple[accounting.FieldChange, ...]
    more: int


def read_filters(query: Mapping[str, str]) -> ChangeFilters:
    """The filters of a URL's query. Invalid values, as from a typo in the URL, are ignored."""
    kind = word(query, "kind")
    return ChangeFilters(
        kind=kind if kind in accounting.CHANGED_KINDS else "",
        name=word(query, "name"),
        since=url_filters.day(query, "since"),
        until=url_filters.day(query, "until"),
        after=query.get("after", "")[:MOST_TOKEN_CHARACTERS],
    )


def rows(changes: Iterable[accounting.ClusterChange]) -> list[ChangeRow]:
    """The changes as rows, in their order."""
    return [
        ChangeRow(
            at=it.at,
            kind=it.kind,
            name=it.name,
            action=it.action,
            path=PATHS.get(it.kind, ""),
            fields=it.fields[:SHOWN_FIELDS],
            more=max(0, len(it.fields) - SHOWN_FIELDS),
        )
        for it in changes
    ]
