"""The objects of the embedded cluster, their version counter, and the latest changes.

Every change has its own version and is one event. A change is *newest* once it is decided and
*seen* once it is durable: readers see only what survives ``kill -9``, and the next change is based
on the newest version. Writes therefore do not wait for each other.
"""

import asyncio
import sys
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Literal, NamedTuple

import msgspec

from stromboli.embedded.store import Store
from stromboli.shared import errors
from stromboli.shared.cluster import port

Document = dict[str, Any]
Change = Literal["ADDED", "MODIFIED", "DELETED"]

OBJECT_BYTES = 1_572_864
"""The size limit of an object, as in an API server's store."""

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS objects (resource TEXT, namespace TEXT, name TEXT,"
    # With rowids, as for the records of the log: without them, rows above 1 kB would take overflow
    # pages.
    " raw BLOB NOT NULL, PRIMARY KEY (resource, namespace, name))",
    "CREATE TABLE IF NOT EXISTS events (version INTEGER PRIMARY KEY, resource TEXT NOT NULL,"
    " type TEXT NOT NULL, raw BLOB NOT NULL)",
)
_ENCODER = msgspec.json.Encoder()
_NO_LABELS: dict[str, str] = {}
BYTES_KEPT = 64 * 1024 * 1024
"""Maximum size of the objects of the events that are kept in memory: some forty versions of an
object of ``OBJECT_BYTES``."""


class Key(NamedTuple):
    """The key of an object; ``namespace`` is empty for cluster-scoped kinds."""

    resource: str
    namespace: str
    name: str


def key_of(kind: port.AnyKind, namespace: str, name: str) -> Key:
    """Return the key of an object of the kind."""
    # Interned: a cluster has few kinds and namespaces, and keys are kept for objects and changes.
    return Key(resource_of(kind), sys.intern(namespace) if kind.namespaced else "", name)


def resource_of(kind: port.AnyKind) -> str:
    """Return the resource name, such as ``jobs.batch.volcano.sh`` or ``pods``."""
    return sys.intern(f"{kind.plural}.{kind.group}" if kind.group else kind.plural)


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An object as bytes, and the metadata that is needed without decoding it. The versions of an
    object share its key and what is equal of its metadata: a job of one pod leaves 14 of them in
    ``State.events``."""

    key: Key
    raw: bytes
    version: int
    uid: str
    labels: dict[str, str]
    owners: tuple[str, ...]

    def document(self) -> Document:
        """Return the object as a new document."""
        document: Document = msgspec.json.decode(self.raw)
        return document


class Event(msgspec.Struct, frozen=True, gc=False):
    """A change of an object. ``stored``: the object after it; for DELETED, its last version."""

    version: int
    key: Key
    type: Change
    stored: Stored


class State:
    """All objects and the latest events. A watch may lag behind by ``events_kept`` changes, or by
    fewer whose objects have ``bytes_kept`` bytes."""

    def __init__(self, path: Path, events_kept: int, bytes_kept: int = BYTES_KEPT) -> None:
        self._store = Store(path, _SCHEMA)
        self._events_kept, self._bytes_kept = events_kept, bytes_kept
        self.when_decided: list[Callable[[Event], None]] = []
        self.when_published: list[Callable[[Event], None]] = []
        """Callbacks for each change when it is decided, and when it is durable."""
        self._seen: defaultdict[str, dict[Key, Stored]] = defaultdict(dict)
        self._newest: defaultdict[str, dict[Key, tuple[int, Stored | None]]] = defaultdict(dict)
        self._ordered: dict[str, list[Key]] = {}
        """Resource -> its durable keys in order, for resources that were read in pages."""
        self._decided = 0
        self._grown: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """Resource -> the asyncio event on which readers of its changes wait."""
        self.version = 0
        self.events: list[Event] = []
        self._bytes = self._bytes_since_wake = 0
        """Size of the objects of ``events``, and of those since all readers were woken."""
        self.first_index = 0
        """Index of ``events[0]`` among all events since this process opened the file."""
        self.oldest = 0
        """The lowest version from which a watch can resume."""

    async def open(self) -> None:
        """Load all objects. No other call is allowed meanwhile."""
        self._seen.clear()
        self._newest.clear()
        self._ordered.clear()
        self.version = self._decided = self.oldest = self.first_index = 0
        self._bytes = self._bytes_since_wake = 0
        await self._store.open()
        await self._store.read(self._load)

    async def close(self) -> None:
        """Wake all waiting readers and close the file."""
        self.wake()
        await self._store.close()

    # --- reading ---------------------------------------------------------------------------

    def get(self, key: Key) -> Stored | None:
        """Return the durable version of the object."""
        return self._seen[key.resource].get(key)

    def all(self, kind: port.AnyKind) -> dict[Key, Stored]:
        """Return the durable objects of a kind. Callers must not change the dict."""
        return self._seen[resource_of(kind)]

    def after(self, kind: port.AnyKind, namespace: str, name: str) -> Iterator[tuple[Key, Stored]]:
        """Yield the durable objects of a kind after a namespace and name, in key order. The caller
        must not await meanwhile. The first call for a kind takes O(n log n), later ones O(log
        n)."""
        resource = resource_of(kind)
        entries = self._seen[resource]
        ordered = self._ordered.get(resource)
        if ordered is None:
            ordered = self._ordered[resource] = sorted(entries)
        for index in range(bisect_right(ordered, Key(resource, namespace, name)), len(ordered)):
            yield ordered[index], entries[ordered[index]]

    def all_objects(self) -> Iterator[tuple[Key, Stored]]:
        """Yield all objects of all kinds."""
        for of_kind in self._seen.values():
            yield from of_kind.items()

    def newest(self, key: Key) -> Stored | None:
        """Return the newest version of the object, durable or not."""
        decided = self._newest[key.resource]
        return decided[key][1] if key in decided else self.get(key)

    def newest_of(self, kind: port.AnyKind, namespace: str = "") -> list[Stored]:
        """Return the newest versions of all objects of a kind, or of one namespace."""
        resource = resource_of(kind)
        merged: dict[Key, Stored | None] = dict(self._seen[resource])
        merged |= {key: stored for key, (_, stored) in self._newest[resource].items()}
        return [
            stored
            for key, stored in merged.items()
            if stored is not None and namespace in ("", key.namespace)
        ]

    def index_behind(self, version: int) -> int:
        """Return the index of the first event after a version."""
        return self.first_index + bisect_right(self.events, version, key=lambda it: it.version)

    def events_from(self, index: int) -> list[Event] | None:
        """Return the events from an index on; None if the first of them has been dropped."""
        return None if index < self.first_index else self.events[index - self.first_index :]

    async def growth(self, resource: str) -> None:
        """Wait for events of a resource or a wake-up."""
        await self._grown[resource].wait()

    def wake(self) -> None:
        """Wake all waiting readers."""
        for resource in list(self._grown):
            self._wake_readers(resource)

    def _wake_readers(self, resource: str) -> None:
        if (grown := self._grown.pop(resource, None)) is not None:
            grown.set()

    # --- changing --------------------------------------------------------------------------

    async def change(self, key: Key, change: Change, document: Document, what: str) -> Stored:
        """Store a change with the next version. It is decided on call and durable on return.

        Raises TooLargeError, UnavailableError.
        """
        version = self._decided + 1
        document["metadata"]["resourceVersion"] = str(version)
        stored = _stored(key, document, version, self.newest(key))
        if len(stored.raw) > OBJECT_BYTES:
            raise errors.TooLargeError(what, f"{len(stored.raw)} bytes, at most {OBJECT_BYTES}")
        self._decided, key = version, stored.key
        event = Event(version, key, change, stored)
        self._newest[key.resource][key] = (version, None if change == "DELETED" else stored)
        written = self._store.write(
            lambda database: self._save(database, event), lambda _: self._publish(event)
        )
        for callback in self.when_decided:
            callback(event)
        await written
        return stored

    async def settled(self) -> None:
        """Wait until every decided change is durable. Raises UnavailableError."""
        await self._store.write(lambda database: None)

    def _publish(self, event: Event) -> None:
        key = event.key
        entries = self._seen[key.resource]
        is_known = key in entries
        if event.type == "DELETED":
            entries.pop(key, None)
        else:
            entries[key] = event.stored
        if is_known != (key in entries):
            self._reorder(key, is_new=not is_known)
        decided = self._newest[key.resource]
        if decided[key][0] == event.version:
            del decided[key]
        self.version = event.version
        self.events.append(event)
        self._bytes += len(event.stored.raw)
        self._bytes_since_wake += len(event.stored.raw)
        self._trim()
        for callback in self.when_published:
            callback(event)
        is_half = event.version % max(self._events_kept // 2, 1) == 0
        if is_half or self._bytes_since_wake >= self._bytes_kept // 2:
            # Readers of resources without changes advance before their events are dropped.
            self._bytes_since_wake = 0
            self.wake()
        else:
            self._wake_readers(key.resource)

    def _reorder(self, key: Key, *, is_new: bool) -> None:
        """Add a key to the order, or remove it: a search, and a shift of pointers (20 us at
        100,000 keys)."""
        ordered = self._ordered.get(key.resource)
        if ordered is None:
            return
        if is_new:
            insort(ordered, key)
        else:
            del ordered[bisect_left(ordered, key)]

    def _trim(self) -> None:
        """Drop the oldest events in batches of a tenth: removing the head of a list takes linear
        time."""
        if 10 * len(self.events) < 11 * self._events_kept and self._bytes <= self._bytes_kept:
            return
        surplus = 0
        while len(self.events) - surplus > 1 and (
            len(self.events) - surplus > self._events_kept
            or 10 * self._bytes > 9 * self._bytes_kept
        ):
            self._bytes -= len(self.events[surplus].stored.raw)
            surplus += 1
        if surplus:
            self.oldest = self.events[surplus - 1].version
            del self.events[:surplus]
            self.first_index += surplus

    # --- in the store's thread -------------------------------------------------------------

    def _save(self, database: Connection, event: Event) -> None:
        if event.type == "DELETED":
            database.execute(
                "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", event.key
            )
        else:
            database.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (*event.key, event.stored.raw)
            )
        database.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?)",
            (event.version, event.key.resource, event.type, event.stored.raw),
        )
        if event.version % self._events_kept == 0:
            database.execute(
                "DELETE FROM events WHERE version <= ?", (event.version - self._events_kept,)
            )

    def _load(self, database: Connection) -> None:
        for resource, namespace, name, raw in database.execute(
            "SELECT * FROM objects ORDER BY resource, namespace, name"
        ):
            document = msgspec.json.decode(raw)
            version = int(document["metadata"]["resourceVersion"])
            key = Key(sys.intern(resource), sys.intern(namespace), name)
            self._seen[key.resource][key] = _stored(key, document, version, None)
        self.events = [
            self._event(version, resource, change, raw)
            for version, resource, change, raw in database.execute(
                "SELECT * FROM events ORDER BY version"
            )
        ]
        if self.events:
            self.version = self._decided = self.events[-1].version
            self.oldest = self.events[0].version - 1
            self._bytes = sum(len(event.stored.raw) for event in self.events)
            self._trim()

    def _event(self, version: int, resource: str, change: Change, raw: bytes) -> Event:
        document = msgspec.json.decode(raw)
        metadata = document["metadata"]
        namespace = sys.intern(metadata.get("namespace", ""))
        key = Key(sys.intern(resource), namespace, metadata["name"])
        stored = self.get(key)
        if stored is None or stored.version != version:
            stored = _stored(key, document, version, stored)
        return Event(version, stored.key, change, stored)


def _stored(key: Key, document: Document, version: int, known: Stored | None) -> Stored:
    """``known``: another version of the object, or another object with the key."""
    metadata = document["metadata"]
    uid = metadata["uid"]
    labels = metadata.get("labels") or _NO_LABELS
    owners = tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ())
    if known is not None:
        key = known.key
        uid = known.uid if known.uid == uid else uid
        labels = known.labels if known.labels == labels else labels
        owners = known.owners if known.owners == owners else owners
    # A copy, because the encoder's result keeps its whole buffer, up to half of it unused.
    raw = bytes(memoryview(_ENCODER.encode(document)))
    return Stored(key, raw, version, uid, labels, owners)
