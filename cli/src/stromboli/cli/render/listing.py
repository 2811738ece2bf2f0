"""Lists of objects: as a table or for programs, once or with every change (``--watch``).

``ListWatch`` is pure: it takes changes and returns the events to show.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from stromboli.cli.render import output
from stromboli.client.events import Change
from stromboli.shared.api.kinds import Kind

if TYPE_CHECKING:
    from stromboli.cli.client import Client
    from stromboli.client.operations import calls

GONE = "Deleted"
"""The phase of a deleted object in the table."""
Row = Callable[[Any, datetime], tuple[str, ...]]


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """A sort key that compares runs of digits as numbers: ``train-2`` before ``train-10``."""
    parts = re.split(r"(\d+)", name)
    return tuple((part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)


def by_name(api_object: Any) -> Any:
    """The sort key of an object: its namespace, then its name in natural order."""
    return api_object.metadata.namespace, natural(api_object.metadata.name)


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A list of objects: their kind, filter and columns.

    ``what`` names them in the plural. ``namespace`` is None for all namespaces, which adds a
    column; ``has_namespace`` is False for cluster-scoped objects. ``state`` is the column of
    phases. ``order`` is the sort key of an object, and ``limit`` the maximum number of rows; both
    apply to a list, not to a watch.
    """

    kind: Kind[Any]
    what: str
    headers: tuple[str, ...]
    row: Row
    is_wanted: Callable[[Any], bool]
    namespace: str | None = None
    has_namespace: bool = True
    state: str = ""
    order: Callable[[Any], Any] = by_name
    limit: int | None = None

    @property
    def all_headers(self) -> tuple[str, ...]:
        """The headers, with the namespace's if it is shown."""
        return ("NAMESPACE", *self.headers) if self._shows_namespace else self.headers

    def cells(self, api_object: Any, now: datetime, *, is_gone: bool = False) -> tuple[str, ...]:
        """An object as a row under ``all_headers``."""
        cells = self.row(api_object, now)
        if is_gone and self.state:
            at = self.headers.index(self.state)
            cells = (*cells[:at], GONE, *cells[at + 1 :])
        return (api_object.metadata.namespace, *cells) if self._shows_namespace else cells

    @property
    def _shows_namespace(self) -> bool:
        return self.namespace is None and self.has_namespace


class WatchEvent(msgspec.Struct, frozen=True):
    """A change of an object as in a watch of an API server: ADDED, MODIFIED or DELETED."""

    type: str
    object: Any
    raw: bytes


class ListWatch:
    """The events of a watched list: first all objects together, then each change.

    An object that no longer matches gets a DELETED event. After a reconnect all objects are listed
    again, and only changes are returned.
    """

    def __init__(self, decode: Callable[[bytes], Any], is_wanted: Callable[[Any], bool]) -> None:
        self._decode = decode
        self._is_wanted = is_wanted
        self._known: dict[str, WatchEvent] = {}
        self.listed = 0
        """How many objects the last list had, also those that do not match."""
        self._relisted: dict[str, WatchEvent] | None = {}

    def feed(self, change: Change[bytes]) -> list[WatchEvent] | None:
        """The events to show now, by namespace and name; None until the list is complete."""
        if change.type == "reset":
            self._relisted = {}
        elif change.type == "synced":
            relisted, self._relisted = self._relisted, None
            self.listed = len(relisted or ())
            return [] if relisted is None else self._relist(relisted)
        elif change.object is not None:
            event = WatchEvent(change.type.upper(), self._decode(change.object), change.object)
            if self._relisted is None:
                return self._apply(event)
            self._relisted[event.object.metadata.key] = event
        return None

    def _relist(self, now: Mapping[str, WatchEvent]) -> list[WatchEvent]:
        gone = [
            msgspec.structs.replace(event, type="DELETED")
            for key, event in self._known.items()
            if key not in now
        ]
        event = [one for each in (*gone, *now.values()) for one in self._apply(each)]
        return sorted(event, key=lambda each: each.object.metadata.key)

    def _apply(self, event: WatchEvent) -> list[WatchEvent]:
        metadata = event.object.metadata
        before = self._known.get(metadata.key)
        if event.type == "DELETED" or not self._is_wanted(event.object):
            self._known.pop(metadata.key, None)
            return [] if before is None else [msgspec.structs.replace(event, type="DELETED")]
        self._known[metadata.key] = event
        if before is None:
            return [msgspec.structs.replace(event, type="ADDED")]
        if before.object.metadata.resource_version == metadata.resource_version:
            return []
        return [msgspec.structs.replace(event, type="MODIFIED")]


def show(
    client: "Client",
    listing: Listing,
    wanted: output.Format,
    raws: Sequence[bytes | msgspec.Raw],
) -> None:
    """Show the list once. Raises CommandError for an object that cannot be decoded."""
    decoded = [(client.decode(listing.kind, raw), raw) for raw in raws]
    entries = sorted(
        (pair for pair in decoded if listing.is_wanted(pair[0])),
        key=lambda pair: listing.order(pair[0]),
    )
    left = 0 if listing.limit is None else max(len(entries) - listing.limit, 0)
    entries = entries[: len(entries) - left]
    if not wanted.is_table:
        output.show_objects(wanted, listing.kind, [raw for _, raw in entries], many=True)
    elif not entries:
        output.show_empty_list(listing.what, listing.namespace, unfiltered=len(raws))
    else:
        now = datetime.now(UTC)
        output.show_table(listing.all_headers, [listing.cells(each, now) for each, _ in entries])
    if left:
        output.show_note(f"{left} more {listing.what}; raise --limit to see them")


def follow(
    client: "Client", listing: Listing, wanted: output.Format, call: "calls.Call[Any]"
) -> None:
    """Show the list and its changes until Ctrl-C. Raises CommandError."""
    # Ctrl-C is the usual end, not an error.
    with contextlib.suppress(KeyboardInterrupt):
        show_events = _table(listing) if wanted.is_table else _documents(listing, wanted)
        list_watch = ListWatch(lambda raw: client.decode(listing.kind, raw), listing.is_wanted)
        for event in _watch_events(client, list_watch, call):
            if not event and wanted.is_table:  # an empty list is reported at the start only
                output.show_empty_list(
                    listing.what, listing.namespace, unfiltered=list_watch.listed
                )
            show_events(event)


def _watch_events(
    client: "Client", list_watch: ListWatch, call: "calls.Call[Any]"
) -> Iterator[list[WatchEvent]]:
    has_begun = False
    for change in client.watch(call):
        event = list_watch.feed(change)
        if event or (event is not None and not has_begun):
            has_begun = True
            yield event


def _table(listing: Listing) -> Callable[[list[WatchEvent]], None]:
    table: output.StreamingTable | None = None
    cells_by_key: dict[str, tuple[str, ...]] = {}
    began = datetime.now(UTC)

    def show_events(event: list[WatchEvent]) -> None:
        nonlocal table
        now, rows = datetime.now(UTC), []
        for one in event:
            is_gone = one.type == "DELETED" and listing.is_wanted(one.object)
            # Cells at a fixed time: a change of the age alone prints no row.
            new_cells = listing.cells(one.object, began, is_gone=is_gone)
            if cells_by_key.get(one.object.metadata.key) != new_cells:
                rows.append(listing.cells(one.object, now, is_gone=is_gone))
            cells_by_key[one.object.metadata.key] = new_cells
            if one.type == "DELETED":
                del cells_by_key[one.object.metadata.key]
        if rows:
            table = table or output.streaming_table(listing.all_headers)
            table.show(rows)

    return show_events


def _documents(listing: Listing, wanted: output.Format) -> Callable[[list[WatchEvent]], None]:
    def show_events(event: list[WatchEvent]) -> None:
        for one in event:
            if wanted is output.Format.NAME:
                output.show_lines([output.title(listing.kind, one.object.metadata.name)])
            else:
                document = {
                    "type": one.type,
                    "object": output.with_type_meta(listing.kind, one.raw),
                }
                output.show_stream_document(wanted, document)

    return show_events
