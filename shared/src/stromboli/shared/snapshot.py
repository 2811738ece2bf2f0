"""The cache of cluster objects that a service materializes from snapshot topics.

Pure: records in, changes out. Rules:

* Within a key the newest record wins: an object of a lower resourceVersion with the same uid is
  ignored (responses to our own writes may be ahead of the topics).
* A new uid under an existing key is a deletion and an addition. The exception is a record of
  another uid and a lower version while the response to our own write is ahead of the topic: it
  belongs to the previous object.
* A record from before the deletion of an object does not restore the object, even if the topic
  contains that record again after the deletion: an append whose acknowledgement was lost is
  repeated as a whole.
* A record that cannot be decoded makes its key *unknown*: neither the old value nor absence. The
  node of a pod is still read, if the record is JSON with that field.
* Any interleaving across topics that keeps each key's order gives the same cache.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.messages import cluster


class _PlacedSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Placed(msgspec.Struct, frozen=True):
    spec: _PlacedSpec = _PlacedSpec()


_PLACED = decoding.decoder_of(_Placed)
T = TypeVar("T", bound=meta.Object)
_KINDS: Mapping[str, Kind[Any]] = {topic.name: kind for kind, topic in topics.SNAPSHOTS.items()}


GONE_KEPT = 10_000
"""Number of deletions that are remembered to detect late records; a record is at most seconds
late."""


class Unknown(msgspec.Struct, frozen=True):
    """An object that exists but cannot be decoded, and why. ``node``: the node of a pod, if
    known."""

    reason: str
    node: str = ""


State = meta.Object | Unknown | None


class Change(msgspec.Struct, frozen=True):
    """A key's state before and after a change; None: absent."""

    kind: Kind[Any]
    key: str
    before: State
    after: State
    cause: str = ""
    traceparent: str = ""


class Snapshot:
    """The objects of the cluster, by kind and key. Applying a record costs O(1)."""

    def __init__(self) -> None:
        self._states: dict[str, dict[str, meta.Object | Unknown]] = {topic: {} for topic in _KINDS}
        self._gone: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()
        """Key -> uid and resourceVersion of the last deleted object with this key."""
        self._ahead: set[tuple[str, str]] = set()  # known from a response, not from the topic yet

    def objects(self, kind: Kind[T]) -> Iterator[T]:
        """All readable objects of a kind."""
        for state in self._of(kind).values():
            if not isinstance(state, Unknown):
                yield state  # type: ignore[misc]  # a topic holds its kind's objects only

    def unknowns(self, kind: Kind[Any]) -> Mapping[str, Unknown]:
        """Keys of a kind that cannot be decoded."""
        states = self._of(kind)
        return {key: state for key, state in states.items() if isinstance(state, Unknown)}

    def keys(self, kind: Kind[Any]) -> list[str]:
        """Sorted keys of all objects of a kind, readable or not."""
        return sorted(self._of(kind))

    def state(self, kind: Kind[Any], key: str) -> State:
        """The object; ``Unknown`` if it cannot be decoded; None if it is absent."""
        return self._of(kind).get(key)

    def get(self, kind: Kind[T], key: str) -> T | None:
        """The object, if it exists and is readable; else None."""
        state = self._of(kind).get(key)
        return None if state is None or isinstance(state, Unknown) else state  # type: ignore[return-value]

    def apply(self, record: envelope.Record) -> Change | None:
        """Apply a record of a snapshot topic; None if it changed nothing or is of another topic."""
        kind = _KINDS.get(record.topic.name)
        if kind is None:
            return None
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            unknown = Unknown(error.reason, _node_of(kind, record.value))
            return self._put(kind, record.key, unknown, record)
        if isinstance(message, cluster.Unreadable):
            return self._put(kind, record.key, Unknown(message.reason, message.node), record)
        if message is None:
            return self._remove(kind, record)
        if not isinstance(message, meta.Object):
            raise TypeError(f"{record.topic.name} carries {type(message).__name__}")
        if not message.metadata.version and message.metadata.resource_version:
            reason = f"resourceVersion {message.metadata.resource_version[:40]!r} is not a number"
            return self._put(kind, record.key, Unknown(reason), record)
        return self._observe(kind, record.key, message, record)

    def observe(self, kind: Kind[Any], written: meta.Object) -> Change | None:
        """Apply the response to our own write, ahead of the topic."""
        return self._observe(kind, written.metadata.key, written, None)

    def forget(self, kind: Kind[Any], key: str, uid: str) -> Change | None:
        """Mark the object (of this uid) as deleted, ahead of the topic. Late records of it are
        ignored.
        """
        before = self._of(kind).get(key)
        if before is None:
            self._remember_gone(kind, key, uid, math.inf)
        if before is None or isinstance(before, Unknown) or before.metadata.uid != uid:
            return None
        self._remember_gone(kind, key, uid, math.inf)
        return self._put(kind, key, None, None)

    def replace(self, kind: Kind[Any], obj: meta.Object) -> None:
        """Replace an object by the same version with fields that its record leaves out."""
        self._of(kind)[obj.metadata.key] = obj

    def mark_unknown(self, kind: Kind[Any], key: str, reason: str) -> Change:
        """Mark a key as unknown until its next record, because its object cannot be handled."""
        return self._put(kind, key, Unknown(reason), None)

    def drop(self, names: Collection[str]) -> None:
        """Drop the objects of these topics, which are read again from the start."""
        for name in self._states.keys() & set(names):
            self._states[name].clear()
            self._ahead = {each for each in self._ahead if each[0] != _KINDS[name].plural}

    def _remember_gone(self, kind: Kind[Any], key: str, uid: str, version: float) -> None:
        self._gone[kind.plural, key] = uid, version
        if len(self._gone) > GONE_KEPT:
            self._gone.popitem(last=False)

    def _of(self, kind: Kind[Any]) -> dict[str, meta.Object | Unknown]:
        return self._states[topics.SNAPSHOTS[kind].name]

    def _observe(
        self, kind: Kind[Any], key: str, after: meta.Object, record: envelope.Record | None
    ) -> Change | None:
        before = self._of(kind).get(key)
        gone, version = self._gone.get((kind.plural, key), (None, 0))
        if gone == after.metadata.uid and (record is None or after.metadata.version <= version):
            return None
        if isinstance(before, meta.Object):
            newer = after.metadata.version > before.metadata.version
            is_same = before.metadata.uid == after.metadata.uid
            if is_same and record is not None:
                self._ahead.discard((kind.plural, key))
            if not newer and (is_same or record is None or (kind.plural, key) in self._ahead):
                return None
            if is_same:
                _share_identity(before.metadata, after.metadata)
            else:
                self._remember_gone(kind, key, before.metadata.uid, before.metadata.version)
        return self._put(kind, key, after, record)

    def _remove(self, kind: Kind[Any], record: envelope.Record) -> Change | None:
        before = self._of(kind).get(record.key)
        uid = record.headers.get("ce_objectuid", "")
        if before is None:
            return None
        if isinstance(before, meta.Object) and uid and before.metadata.uid != uid:
            return None  # the tombstone of an older object under this key
        version = envelope.deleted_version(record)
        ended_at = math.inf if version is None else version
        self._remember_gone(kind, record.key, uid, ended_at)
        return self._put(kind, record.key, None, record)

    def _put(
        self,
        kind: Kind[Any],
        key: str,
        after: State,
        record: envelope.Record | None,
    ) -> Change:
        states = self._of(kind)
        before = states.get(key)
        if after is None:
            states.pop(key, None)
        else:
            states[key] = after
        if after is not None and record is None:
            self._ahead.add((kind.plural, key))
        else:
            self._ahead.discard((kind.plural, key))
        return Change(
            kind,
            key,
            before,
            after,
            record.id if record else "",
            record.traceparent if record else "",
        )


def _node_of(kind: Kind[Any], value: bytes | None) -> str:
    """The node of a pod whose record cannot be decoded, if its JSON has that field: after
    compaction, no earlier record has it. Empty for other kinds and for other bytes."""
    if kind != kinds.PODS or value is None:
        return ""
    try:
        return _PLACED.decode(value).spec.node_name
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return ""


def _share_identity(before: meta.ObjectMeta, after: meta.ObjectMeta) -> None:
    """Let two versions of an object share the strings of name and uid, which indexes keep from any
    version."""
    if before.name == after.name:
        msgspec.structs.force_setattr(after, "name", before.name)
    msgspec.structs.force_setattr(after, "uid", before.uid)


class Sync:
    """Tracks whether and when the monitor has observed each kind completely, and which other
    systems act on the same objects. A monitor looks for such systems before it reports a kind as
    synced.

    Age is measured by the reader's own monotonic clock; times written by other hosts are never
    compared with it. A record proves that the monitor was alive at some time after the reader had
    last read the whole topic, so the age of a kind counts from there. Records that were in the log
    before the reader first reached its end prove nothing, since their monitor may have stopped.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[cluster.KindSynced, float]] = {}
        self._others = cluster.CompetitorsObserved(competitors=())

    def apply(self, record: envelope.Record, after_s: float = -math.inf) -> None:
        """Apply a record of ``cluster.sync``; one that cannot be decoded means not synced.

        ``after_s``: the time of the reader's monotonic clock, in seconds, at which it had last read
        the whole topic before this record arrived (``Batch.at_end``); -inf for a record that was on
        the topic when the reader started.
        """
        if record.topic != topics.SYNC:
            return
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            self._kinds.pop(record.key, None)
            if record.key == cluster.COMPETITORS_KEY:
                self._others = cluster.CompetitorsObserved(competitors=(), unknown=error.reason)
            return
        if isinstance(message, cluster.KindSynced):
            self._kinds[message.kind] = message, after_s
        elif isinstance(message, cluster.CompetitorsObserved):
            self._others = message

    def missing(
        self,
        wanted: tuple[Kind[Any], ...],
        now_s: float,
        max_age_s: float,
        positions: Mapping[str, int],
    ) -> tuple[str, ...]:
        """Why decisions are not allowed yet: a line for each kind that is not synced, or not
        recently.

        ``now_s``: seconds on the same clock as ``apply``'s. ``positions``: topic name -> the offset
        up to which snapshots are read.
        """
        lines = []
        for kind in wanted:
            synced, after_s = self._kinds.get(kind.plural, (None, -math.inf))
            if synced is None or synced.state != "synced":
                lines.append(f"{kind.plural} not synced yet")
            elif positions.get(topics.SNAPSHOTS[kind].name, 0) < synced.position:
                lines.append(f"{kind.plural} not read up to {synced.position} yet")
            elif after_s == -math.inf:
                lines.append(f"{kind.plural} not seen since this process began to read")
            elif now_s - after_s > max_age_s:
                lines.append(f"{kind.plural} last seen {now_s - after_s:.0f} s ago")
        return tuple(lines)

    def complete_until(self, kind: Kind[Any], positions: Mapping[str, int]) -> float:
        """A time of the reader's clock such that the records up to ``positions`` contain all
        earlier changes of the kind; -inf if there is none."""
        synced, after_s = self._kinds.get(kind.plural, (None, -math.inf))
        if synced is None or synced.state != "synced":
            return -math.inf
        is_read = positions.get(topics.SNAPSHOTS[kind].name, 0) >= synced.position
        return after_s if is_read else -math.inf

    def is_whole(self, wanted: tuple[Kind[Any], ...]) -> bool:
        """Whether all of these kinds were listed completely, at any time."""
        known = (self._kinds.get(kind.plural) for kind in wanted)
        return all(each is not None and each[0].state == "synced" for each in known)

    @property
    def claimed(self) -> frozenset[str]:
        """The scheduler names under which other systems act."""
        return frozenset(rival.scheduler_name for rival in self._others.competitors)

    def competitors(self, scheduler_names: Collection[str]) -> tuple[str, ...]:
        """Why this system may not act under these scheduler names: a line for each lease by which
        another system does.
        """
        lines = [
            f"Lease {rival.lease}, held by {rival.holder} since {rival.since}, claims the "
            f'scheduler name "{rival.scheduler_name}": two systems would act on the same objects; '
            f"stop the other one, or remove the name from STROM_<SERVICE>_SCHEDULER_NAMES of "
            f"admission, controller and scheduler"
            for rival in self._others.competitors
            if rival.scheduler_name in scheduler_names
        ]
        if self._others.unknown:
            lines.append(f"it is not known whether another system acts: {self._others.unknown}")
        return tuple(lines)
