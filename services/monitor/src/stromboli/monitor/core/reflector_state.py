"""The state of one kind: what its snapshot topic contains, and which records to publish next.

The state machine::

    folding ── open ──▶ watching ◀── list_ends ── listing
                 └───── must_list ── list_begins ───▲
                            ▲── expired ── watching

*Folding* applies the kind's own topic, as a reader would. ``open`` decides how to continue: from
the version in ``cluster.sync``, or by a full list. After that, drafts are created for objects of
the API server that differ from the log:

* An event that is not newer than the known version of its key is an echo: a watch resumed from an
  old version repeats events, and an object that was read by name is ahead of the watch.
* A watch returns every version of an object. A list returns the last one: other services may know
  versions in between from responses to their writes, so a newer version is published even if its
  content is the same.
* Absence is published only after a DELETED event, after a complete list, or after a read by name.
* A record that readers drop (its writer was replaced) still hides ours, once compaction has removed
  ours: its key is *overwritten* until we publish it again. So is a key whose record cannot be
  decoded.

No clock and no waiting; a step costs O(1), the end of a list O(objects).
"""

from datetime import datetime
from typing import Literal

import msgspec

from stromboli.monitor.core import projection
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import meta
from stromboli.shared.messages import cluster

State = Literal["folding", "must_list", "listing", "watching"]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The log's content for a key. ``version``: the newest observed one, published or not."""

    uid: str
    version: int
    digest: bytes


UNREADABLE = Entry("", 0, b"")
"""A record exists that cannot be decoded."""


TRIM_FROM = 10_000
"""Keys that are remembered before any is dropped: a megabyte."""


class SyncPoint(msgspec.Struct, frozen=True):
    """How far a kind has been observed at a time; it is published as a ``KindSynced``."""

    state: Literal["listing", "synced"]
    resource_version: str
    at: datetime


class ReflectorState:
    """The state of one kind, and the drafts to publish for it."""

    def __init__(self, kind: projection.AnyKind) -> None:
        self.kind = kind
        self.topic: topics.Topic = topics.SNAPSHOTS[kind]
        self.state: State = "folding"
        self.version = ""
        """Everything up to this resourceVersion has been applied."""
        self.signature = projection.signature(kind)
        """The fields that our snapshots carry."""
        self._entries: dict[str, Entry] = {}
        self._deleted: dict[
            str, int
        ] = {}  # key -> version of its deletion, while echoes may arrive
        self._overwritten: set[str] = set()
        self._listed: set[str] = set()
        self._positions: dict[str, tuple[int, int]] = {}  # key -> offset and epoch, while folding
        self._synced: cluster.KindSynced | None = None
        self._synced_epoch = -1
        self._trim_at = TRIM_FROM

    def __len__(self) -> int:
        """The number of objects in the log."""
        return len(self._entries)

    def may_have(self, key: str) -> bool:
        """False only if the object is known to be absent."""
        return self.state != "watching" or key in self._entries

    def uid_of(self, key: str) -> str:
        """The uid of the object with this key; empty if none is known."""
        entry = self._entries.get(key)
        return "" if entry is None else entry.uid

    @property
    def overwritten(self) -> tuple[str, ...]:
        """Keys that must be read by name and passed to ``restore``."""
        return tuple(self._overwritten)

    # --- the log ---------------------------------------------------------------------------

    def apply(self, record: envelope.Record) -> None:
        """Apply an accepted record. Call it in the order of the topic."""
        self._overwritten.discard(record.key)
        self._positions[record.key] = (record.offset, -1 if record.epoch is None else record.epoch)
        try:
            message = envelope.decode(record)
        except errors.UndecodableError:
            self._entries[record.key] = UNREADABLE
            self._overwritten.add(record.key)
            return
        if message is None:
            self._entries.pop(record.key, None)
            self._deleted[record.key] = int(record.headers.get("ce_objectversion") or 0)
            return
        self._deleted.pop(record.key, None)
        self._entries[record.key] = Entry(*_identity(message), projection.digest(message))

    def mark_overwritten(self, key: str) -> None:
        """Record that a replaced writer's record is the last one of this key, until we publish it
        again.
        """
        self._overwritten.add(key)

    def apply_sync(self, sync_marker: cluster.KindSynced | None, epoch: int) -> None:
        """Apply the kind's record of ``cluster.sync`` by the writer of ``epoch``. ``sync_marker``:
        None for a record that cannot be decoded.
        """
        self._synced, self._synced_epoch = sync_marker, epoch
        if sync_marker is not None and sync_marker.state == "synced":
            self._trim(sync_marker)

    def _trim(self, sync_marker: cluster.KindSynced) -> None:
        """Drop what ``open`` does not need, so that a monitor may stand by for months; not at every
        heartbeat, because it costs O(remembered keys).
        """
        if len(self._deleted) + len(self._positions) < self._trim_at:
            return
        version = int(sync_marker.resource_version)
        self._deleted = {k: v for k, v in self._deleted.items() if v > version}
        self._positions = {
            k: at for k, at in self._positions.items() if at[0] >= sync_marker.position
        }
        self._trim_at = max(TRIM_FROM, 2 * (len(self._deleted) + len(self._positions)))

    def open(self, end: int) -> None:
        """Start after the log has been read up to this writer's opening; ``end``: the topic's next
        offset."""
        known = self._synced
        positions, self._positions = self._positions, {}
        if (
            known is None
            or known.state != "synced"
            or known.position > end  # the topic has lost its tail
            or known.projection != self.signature
        ):
            self.state = "must_list"
            return
        self.state, self.version = "watching", known.resource_version
        self._deleted = {k: v for k, v in self._deleted.items() if v > int(self.version)}
        # After the last sync marker, an earlier monitor may have resumed and appended.
        for key, (offset, epoch) in positions.items():
            if offset >= known.position and epoch < self._synced_epoch:
                self._overwritten.add(key)

    # --- the cluster -----------------------------------------------------------------------

    def expired(self) -> None:
        """Record that the watch cannot resume from ``version``, so that a full list follows."""
        self.state = "must_list"

    def list_begins(self) -> None:
        """Start to process a full list of the API server."""
        self.state = "listing"
        self._listed.clear()

    def upsert(self, raw: bytes, now: datetime) -> envelope.Draft | None:
        """Process an object of a list, or one that a watch reports as added or modified."""
        observed = projection.observe(self.kind, raw)
        key, version = observed.identity.key, observed.identity.version
        entry = self._entries.get(key)
        if self.state == "listing":
            self._listed.add(key)
        else:
            self.version = str(version)
            if version <= max(entry.version if entry else 0, self._deleted.get(key, 0)):
                return None
        is_said = entry is not None and entry.digest == observed.digest
        if self.state == "listing":
            is_said = is_said and entry is not None and entry.version >= version
        if is_said and key not in self._overwritten:
            self._entries[key] = Entry(observed.identity.uid, version, observed.digest)
            return None
        return self._draft_change(observed, now)

    def delete(self, raw: bytes, now: datetime) -> envelope.Draft | None:
        """Process an object that a watch reports as deleted."""
        lost = projection.identify(raw)
        self.version = str(lost.version)
        entry = self._entries.get(lost.key)
        if entry is None and lost.key not in self._overwritten:
            return None
        if entry is not None and (lost.version < entry.version or entry.uid not in ("", lost.uid)):
            return None
        return self._draft_deletion(lost.key, lost.uid, lost.version, now)

    def bookmark(self, raw: bytes) -> None:
        """Process a bookmark: the watch has reached this version without a change of this kind."""
        self.version = str(projection.identify(raw).version)

    def list_ends(self, resource_version: str, now: datetime) -> list[envelope.Draft]:
        """Finish the list; return drafts of tombstones for objects that it did not contain."""
        missing = sorted((self._entries.keys() | self._overwritten) - self._listed)
        drafts = [
            self._draft_deletion(
                key, self._entries.get(key, UNREADABLE).uid, int(resource_version), now
            )
            for key in missing
        ]
        self._listed.clear()
        self._deleted.clear()
        self.state, self.version = "watching", resource_version
        return drafts

    def restore(self, key: str, raw: bytes | None, now: datetime) -> envelope.Draft | None:
        """Apply the API server's response for an overwritten key: the object, or None for absent.

        Returns None for a response that is older than the watch: read the object again.
        """
        if key not in self._overwritten:
            return None
        if raw is None:
            return self._draft_deletion(key, "", int(self.version or 0), now)
        entry = self._entries.get(key, UNREADABLE)
        observed = projection.observe(self.kind, raw)
        if observed.identity.version < entry.version:
            return None
        return self._draft_change(observed, now)

    # --- drafts ----------------------------------------------------------------------

    def sync_point(self, now: datetime) -> SyncPoint:
        """The sync point as of ``now``; to be appended after all drafts so far."""
        if self.state == "watching":
            return SyncPoint("synced", self.version, now)
        return SyncPoint("listing", "", now)

    def sync_marker(self, mark: SyncPoint, position: int) -> envelope.Draft:
        """The draft for a sync point. ``position``: the offset after the last record that it
        covers."""
        message = cluster.KindSynced(
            kind=self.kind.plural,
            state=mark.state,
            resource_version=mark.resource_version,
            at=mark.at,
            position=position,
            projection=self.signature,
        )
        return envelope.Draft(
            topic=topics.SYNC, key=self.kind.plural, message=message, time=mark.at
        )

    def _draft_change(self, observed: projection.Observed, now: datetime) -> envelope.Draft:
        identity = observed.identity
        self._entries[identity.key] = Entry(identity.uid, identity.version, observed.digest)
        self._deleted.pop(identity.key, None)
        self._overwritten.discard(identity.key)
        return envelope.Draft(
            topic=self.topic,
            key=identity.key,
            message=observed.message,
            time=now,
            traceparent=observed.traceparent,
        )

    def _draft_deletion(self, key: str, uid: str, version: int, now: datetime) -> envelope.Draft:
        is_overwritten = key in self._overwritten
        self._entries.pop(key, None)
        self._overwritten.discard(key)
        return envelope.Draft(
            topic=self.topic,
            key=key,
            message=None,
            time=now,
            # Readers may have applied the record that hides ours, so the tombstone must not depend
            # on its uid.
            object_uid="" if is_overwritten else uid,
            object_version=str(version),
        )


def _identity(message: msgspec.Struct) -> tuple[str, int]:
    if isinstance(message, meta.Object):
        return message.metadata.uid, message.metadata.version
    if isinstance(message, cluster.Unreadable):
        return message.uid, int(message.resource_version or 0)
    raise TypeError(f"a snapshot topic carries {type(message).__name__}")
