"""Lists of objects: as a table or for programs, once or with every change (``--watch``).

``Followed`` is pure: changes in, what is to be told out.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from stromboli.cli.render import output
from stromboli.client.events import Change
from stromboli.shared.api.kinds import Kind

if TYPE_CHECKING:
    from stromboli.cli.client import Client
    from stromboli.client import calls

GONE = "Deleted"
"""Stands in the column of phases once an object is gone: a row alone would not tell."""
Row = Callable[[Any, datetime], tuple[str, ...]]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects are listed, and how.

    ``what`` names them in the plural. ``namespace`` is None if they are of all, which adds a
    column; ``has_namespace`` is False of those that have none. ``state``: the column of phases.
    """

    kind: Kind[Any]
    what: str
    headers: tuple[str, ...]
    row: Row
    is_wanted: Callable[[Any], bool]
    namespace: str | None = None
    has_namespace: bool = True
    state: str = ""

    @property
    def all_headers(self) -> tuple[str, ...]:
        """With the namespace's, if it is shown."""
        return ("NAMESPACE", *self.headers) if self._shows_namespace else self.headers

    def cells(self, found: Any, now: datetime, *, is_gone: bool = False) -> tuple[str, ...]:
        """An object as a row under ``all_headers``."""
        cells = self.row(found, now)
        if is_gone and self.state:
            at = self.headers.index(self.state)
            cells = (*cells[:at], GONE, *cells[at + 1 :])
        return (found.metadata.namespace, *cells) if self._shows_namespace else cells

    @property
    def _shows_namespace(self) -> bool:
        return self.namespace is None and self.has_namespace


class WatchEvent(msgspec.Struct, frozen=True):
    """What happened to an object, as an API server's watch has it: ADDED, MODIFIED or DELETED."""

    type: str
    object: Any
    raw: bytes


class ListWatch:
    """What is told of a list that goes on: first everything, together, then each change.

    An object that is no longer wanted is told once more, as DELETED. After a break everything
    comes again: only what has changed is told.
    """

    def __init__(self, decode: Callable[[bytes], Any], is_wanted: Callable[[Any], bool]) -> None:
        self._decode = decode
        self._is_wanted = is_wanted
        self._known: dict[str, WatchEvent] = {}
        self._relisted: dict[str, WatchEvent] | None = {}

    def feed(self, change: Change[bytes]) -> list[WatchEvent] | None:
        """What is to be told now, by namespace and name; None while all of it is still coming."""
        if change.type == "reset":
            self._relisted = {}
        elif change.type == "synced":
            relisted, self._relisted = self._relisted, None
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
    """The list as it is now. Raises CommandError for what is no such object."""
    decoded = [(client.decode(listing.kind, raw), raw) for raw in raws]
    found = sorted(
        (pair for pair in decoded if listing.is_wanted(pair[0])),
        key=lambda pair: pair[0].metadata.key,
    )
    if not wanted.is_table:
        output.show_objects(wanted, listing.kind, [raw for _, raw in found], many=True)
    elif not found:
        output.show_empty_list(listing.what, listing.namespace)
    else:
        now = datetime.now(UTC)
        output.show_table(listing.all_headers, [listing.cells(each, now) for each, _ in found])


def follow(
    client: "Client", listing: Listing, wanted: output.Format, call: "calls.Call[Any]"
) -> None:
    """The list and all that happens to it, until Ctrl-C. Raises CommandError."""
    # Ctrl-C is the way to end it, so nothing has gone wrong then.
    with contextlib.suppress(KeyboardInterrupt):
        show_events = _table(listing) if wanted.is_table else _documents(listing, wanted)
        for event in _watch_events(client, listing, call):
            show_events(event)


def _watch_events(
    client: "Client", listing: Listing, call: "calls.Call[Any]"
) -> Iterator[list[WatchEvent]]:
    list_watch = ListWatch(lambda raw: client.decode(listing.kind, raw), listing.is_wanted)
    has_begun = False
    for change in client.watch(call):
        event = list_watch.feed(change)
        if event or (event is not None and not has_begun):
            has_begun = True
            yield event


def _table(listing: Listing) -> Callable[[list[WatchEvent]], None]:
    table: output.StreamingTable | None = None
    shown: dict[str, tuple[str, ...]] = {}
    began = datetime.now(UTC)

    def show_events(event: list[WatchEvent]) -> None:
        nonlocal table
        if not event:  # that there is nothing is told at first only
            output.show_empty_list(listing.what, listing.namespace)
        now, rows = datetime.now(UTC), []
        for one in event:
            is_gone = one.type == "DELETED" and listing.is_wanted(one.object)
            # What a row said at one moment: time alone makes no row.
            said = listing.cells(one.object, began, is_gone=is_gone)
            if shown.get(one.object.metadata.key) != said:
                rows.append(listing.cells(one.object, now, is_gone=is_gone))
            shown[one.object.metadata.key] = said
            if one.type == "DELETED":
                del shown[one.object.metadata.key]
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
