"""Decides what a node's cache of data sets fetches next, and which copies it evicts for that.

A cache has a capacity in bytes. A copy *reserves* the bytes that it holds or, while it is fetched,
the size of its content. The scheduler *wants* copies on the node. A copy is *protected* while a pod
uses it or the scheduler pins it: it is never evicted.

Rules:

1. Wanted copies are ordered: pinned ones first, then by priority, then by key. The order is total
   and does not depend on the content of the cache.
2. A wanted copy is fetched when its whole size fits. Room is made by eviction, only as much as
   necessary, and nothing is evicted if that does not suffice.
3. Victims for a copy are, in this order: partial copies, complete copies that are not wanted, and
   unprotected copies that come later in the order of rule 1, last ones first. So two wanted copies
   never evict each other in turn.
4. Complete copies that are not wanted are evicted by idle time, times the rate of their origin: of
   two origins, the copy of the one that is half as fast is kept twice as long, because it costs
   twice the time to fetch again. Without measured rates this is LRU.
5. A copy that lacks room waits, and later ones may use the room meanwhile: by rule 3 they give it
   back. So waiting for a large copy leaves no room unused, and no small copy delays a large one.
6. At most ``parallel`` copies are fetched at once. One of these slots, unless it is the only one,
   is reserved for pinned copies, so that no pod waits for a prefetch to end.
7. A fetch of a copy that is no longer wanted is stopped. Its bytes stay as a partial copy, from
   which a later fetch resumes, until the room is needed.

Consequences, which tests check for arbitrary caches: reservations never exceed the capacity unless
protected copies alone do; protected copies are never evicted; a copy that fits beside the protected
copies and the wanted copies before it is eventually fetched; equal inputs give equal plans.

Pure: time is an argument. A plan costs O(w c) for c copies and w wanted copies, and O(c log c) more
for each copy that lacks room.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from stromboli.shared.messages import data

State = Literal["Partial", "Fetching", "Complete"]
_LEAST_IDLE_S = 1.0
"""Minimum idle time in seconds for the eviction order: an idle time of 0 would hide the rate of the
origin."""


class CachedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy in a cache. ``held_bytes``: the bytes on disk. ``size_bytes``: the size of its
    content, as its origin states it; 0 if unknown. ``last_used_at``: None if it was never used or
    completed. ``in_use``: a pod of the node uses it. ``retry_at``: the earliest time of the next
    attempt to fetch it, after a failed one.
    """

    key: str
    uri: str = ""
    state: State
    held_bytes: int = 0
    size_bytes: int = 0
    last_used_at: datetime | None = None
    in_use: bool = False
    retry_at: datetime | None = None

    @property
    def reserved_bytes(self) -> int:
        """The bytes of the capacity that this copy takes."""
        if self.state == "Fetching":
            return max(self.held_bytes, self.size_bytes)
        return self.held_bytes


class CacheContent(msgspec.Struct, frozen=True, kw_only=True):
    """A cache: its capacity; ``copies``: key -> copy; ``rates``: URI scheme -> the measured rate of
    origins with that scheme, in bytes per second."""

    capacity_bytes: int
    copies: Mapping[str, CachedCopy]
    rates: Mapping[str, float] = {}

    @property
    def reserved_bytes(self) -> int:
        """The bytes of the capacity that all copies take."""
        return sum(copy.reserved_bytes for copy in self.copies.values())


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The next steps of a cache, in this order: ``stop`` fetches (their bytes are kept as partial
    copies), ``evict`` copies, ``start`` fetches. ``waiting``: key of a wanted copy -> why its fetch
    does not start."""

    stop: tuple[str, ...] = ()
    evict: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    waiting: Mapping[str, str] = {}


def order(item: data.WantedCopy) -> tuple[bool, int, str]:
    """The sort key of rule 1."""
    return not item.pinned, -item.priority, item.key


def plan(
    content: CacheContent, wanted: Iterable[data.WantedCopy], now: datetime, parallel: int
) -> Plan:
    """The next steps of a cache. ``parallel``: at least 1."""
    ordered = ordered_once(wanted)
    room = _Room(content, ordered, now)
    stop = [
        copy.key
        for copy in room.copies.values()
        if copy.state == "Fetching" and copy.key not in room.ranks
    ]
    for key in stop:
        room.stop(key)
    surplus = room.make(-1, 0)  # the capacity may have become smaller
    evict = list(room.all_victims(-1) if surplus is None else surplus)
    stop += [key for key in evict if room.copies[key].state == "Fetching"]
    room.remove(evict)
    start: list[str] = []
    waiting: dict[str, str] = {}
    for rank, item in enumerate(ordered):
        copy = room.copies.get(item.key)
        if copy is not None and copy.state in ("Complete", "Fetching"):
            continue
        if copy is not None and copy.retry_at is not None and copy.retry_at > now:
            continue  # the cache knows why its attempt failed
        if room.fetches >= (parallel if item.pinned else max(1, parallel - 1)):
            waiting[item.key] = f"{room.fetches} other copies are being fetched"
            continue
        size, occupied_bytes = size_bytes(copy, item), copy.held_bytes if copy is not None else 0
        victims = room.make(rank, max(size - occupied_bytes, 0), but=item.key)
        if victims is None:
            waiting[item.key] = room.shortage(rank, size, occupied_bytes)
            continue
        stop += [key for key in victims if room.copies[key].state == "Fetching"]
        evict += victims
        room.remove(victims)
        room.start(item, max(size, occupied_bytes))
        start.append(item.key)
    return Plan(stop=tuple(stop), evict=tuple(evict), start=tuple(start), waiting=waiting)


def grow(
    content: CacheContent,
    wanted: Iterable[data.WantedCopy],
    key: str,
    size_bytes: int,
    now: datetime,
) -> tuple[str, ...] | None:
    """The victims for a copy that is being fetched and turns out to have ``size_bytes``; None if it
    does not fit. Victims may be fetches, which are stopped first.
    """
    ordered = ordered_once(wanted)
    room = _Room(content, ordered, now)
    rank = room.ranks.get(key)
    if rank is None:
        return None  # no longer wanted: it makes no room for itself
    missing = max(size_bytes - room.copies[key].reserved_bytes, 0)
    return room.make(rank, missing, but=key)


def ordered_once(wanted: Iterable[data.WantedCopy]) -> list[data.WantedCopy]:
    """Wanted copies in the order of rule 1, each key once."""
    return list({item.key: item for item in sorted(wanted, key=order, reverse=True)}.values())[::-1]


def size_bytes(copy: CachedCopy | None, item: data.WantedCopy) -> int:
    """The bytes to reserve for a fetch: the size that the origin states, else the size in the
    job."""
    return copy.size_bytes if copy is not None and copy.size_bytes else max(item.bytes, 0)


def text_of_bytes(count: int) -> str:
    """A number of bytes for display, such as ``12.0 GB``."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


class _Room:
    """The room of a cache while a plan is made."""

    def __init__(
        self, content: CacheContent, ordered: Sequence[data.WantedCopy], now: datetime
    ) -> None:
        self._content = content
        self._now = now
        self.copies = dict(content.copies)
        self.ranks = {item.key: rank for rank, item in enumerate(ordered)}
        self._pinned = {item.key for item in ordered if item.pinned}
        self._reserved = content.reserved_bytes

    @property
    def fetches(self) -> int:
        """The number of fetches in progress."""
        return sum(copy.state == "Fetching" for copy in self.copies.values())

    def stop(self, key: str) -> None:
        """Turn a fetch into a partial copy."""
        copy = self.copies[key]
        self._reserved -= copy.reserved_bytes - copy.held_bytes
        self.copies[key] = msgspec.structs.replace(copy, state="Partial")

    def remove(self, keys: Iterable[str]) -> None:
        """Remove evicted copies."""
        for key in keys:
            self._reserved -= self.copies.pop(key).reserved_bytes

    def start(self, item: data.WantedCopy, size: int) -> None:
        """Start a fetch, which reserves its size."""
        copy = self.copies.get(item.key) or CachedCopy(key=item.key, state="Partial")
        fetching = msgspec.structs.replace(copy, state="Fetching", size_bytes=size)
        self._reserved += fetching.reserved_bytes - copy.reserved_bytes
        self.copies[item.key] = fetching

    def make(self, rank: int, need: int, but: str = "") -> tuple[str, ...] | None:
        """The victims that make room for ``need`` more bytes for the wanted copy of this rank (-1
        for no particular copy); None if evicting all possible victims is not enough. ``but``: the
        key of the wanted copy itself."""
        missing = self._reserved + need - self._content.capacity_bytes
        if missing <= 0:
            return ()
        chosen: list[str] = []
        freed = 0
        for key in self.all_victims(rank, but):
            if freed >= missing:
                break
            chosen.append(key)
            freed += self.copies[key].reserved_bytes
        if freed < missing:
            return None
        for key in reversed(tuple(chosen)):  # a large victim may make smaller ones unnecessary
            if freed - self.copies[key].reserved_bytes >= missing:
                freed -= self.copies[key].reserved_bytes
                chosen.remove(key)
        return tuple(chosen)

    def all_victims(self, rank: int, but: str = "") -> list[str]:
        """The copies that may be evicted for a wanted copy, in the order of eviction."""
        cached_copies = [
            copy
            for copy in self.copies.values()
            if copy.key != but
            and copy.reserved_bytes > 0
            and not (copy.in_use or copy.key in self._pinned)
            and self.ranks.get(copy.key, len(self.ranks)) > rank
        ]
        return [copy.key for copy in sorted(cached_copies, key=self._eviction_order)]

    def shortage(self, rank: int, size: int, held_bytes: int) -> str:
        """Why a copy of this size does not fit."""
        capacity = self._content.capacity_bytes
        if size > capacity:
            return (
                f"needs {text_of_bytes(size)}, and the cache has {text_of_bytes(capacity)}: "
                "enlarge the cache of this node, or reduce the data set"
            )
        free = max(capacity - self._reserved, 0)
        evictable = sum(self.copies[key].reserved_bytes for key in self.all_victims(rank))
        return (
            f"short of room: needs {text_of_bytes(max(size - held_bytes, 0))}, "
            f"{text_of_bytes(free)} are free, {text_of_bytes(evictable)} can be evicted, and the "
            "rest is in use or has a higher priority"
        )

    def _eviction_order(self, copy: CachedCopy) -> tuple[int, float, str]:
        rank = self.ranks.get(copy.key)
        if copy.state == "Partial":
            return 0, 0.0, copy.key
        if rank is not None:
            return 2, -rank, copy.key
        return 1, -self._idle_s(copy) * self._rate(copy), copy.key

    def _idle_s(self, copy: CachedCopy) -> float:
        if copy.last_used_at is None:
            return float("inf")
        return max((self._now - copy.last_used_at).total_seconds(), _LEAST_IDLE_S)

    def _rate(self, copy: CachedCopy) -> float:
        """The rate of the copy's origin; the mean of the measured rates if it is unknown."""
        rates = {scheme: rate for scheme, rate in self._content.rates.items() if rate > 0}
        usual = sum(rates.values()) / len(rates) if rates else 1.0
        return rates.get(scheme_of(copy.uri), usual)


def scheme_of(uri: str) -> str:
    """The scheme of a URI in lower case; empty if it has none."""
    scheme, colon, _ = uri.partition(":")
    return scheme.lower() if colon else ""
