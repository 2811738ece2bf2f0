"""The state of each key of a cache, and its forms for the policy and the monitor."""

import threading
from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from stromboli.monitor.data_cache import store
from stromboli.monitor.data_cache.fetching import Fetch
from stromboli.shared.api.views.data_copies import CopyState
from stromboli.shared.data_cache import policy
from stromboli.shared.messages import data

LONGEST_REASON = 500
"""Characters of a reason in a report."""


class Entry(msgspec.Struct, kw_only=True):
    """The state of a key, changed under the cache's lock.

    ``stored``: the complete copy. ``identity``: device and inode of its folder. ``partial_bytes``:
    bytes that earlier attempts left. ``size_bytes``: the size of the content, as its origin stated
    it. ``checked_at``, ``verified_at``: when the copy's files, and their digests, were last
    compared. ``fetch``: the attempt in progress, which ``stop`` ends. ``failure``: why the last
    attempt failed; ``attempts``: the number of failed attempts in a row.
    """

    key: str
    uri: str = ""
    stored: store.StoredCopy | None = None
    stored_bytes: int = 0
    identity: tuple[int, int] = (0, 0)
    last_used_at: datetime | None = None
    checked_at: datetime | None = None
    verified_at: datetime | None = None
    partial_bytes: int = 0
    size_bytes: int = 0
    fetch: Fetch | None = None
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    failure: str = ""
    attempts: int = 0
    retry_at: datetime | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes on disk."""
        if self.fetch is not None:
            # What an earlier attempt left is on disk, too, until this one has come as far.
            return max(self.fetch.progress.held_bytes, self.partial_bytes)
        return self.stored_bytes if self.stored is not None else self.partial_bytes

    @property
    def is_empty(self) -> bool:
        """Whether the key has no copy, no partial copy and no fetch."""
        return self.stored is None and self.fetch is None and not self.partial_bytes


def as_policy_sees(entry: Entry, *, in_use: bool, is_stopping_protected: bool) -> policy.CachedCopy:
    """An entry as the policy sees it. ``is_stopping_protected``: a fetch that is being stopped
    counts as a copy that cannot be evicted, since its thread still writes."""
    is_stopping = entry.fetch is not None and entry.stop.is_set()
    size = entry.size_bytes
    copy = policy.CachedCopy(
        key=entry.key,
        uri=entry.uri,
        state="Partial",
        held_bytes=entry.held_bytes,
        size_bytes=size,
        last_used_at=entry.last_used_at,
        in_use=in_use,
        retry_at=entry.retry_at,
    )
    if is_stopping and is_stopping_protected:
        reserved = max(copy.held_bytes, size)
        return msgspec.structs.replace(copy, state="Complete", held_bytes=reserved, in_use=True)
    if entry.fetch is not None:
        return msgspec.structs.replace(copy, state="Fetching")
    return msgspec.structs.replace(copy, state="Partial" if entry.stored is None else "Complete")


def reported(
    entry: Entry, item: data.WantedCopy | None, waiting: str, *, in_use: bool
) -> data.DataCopy | None:
    """The copy as the monitor sees it; None for bytes that are neither complete nor wanted."""
    uri = item.uri if item is not None else entry.uri
    digest = item.digest if item is not None else ""
    if entry.stored is not None:
        return data.DataCopy(
            key=entry.key,
            uri=uri,
            in_use=in_use,
            digest=entry.stored.digest,
            bytes=entry.stored_bytes,
            state="Complete",
            fetched_bytes=entry.stored_bytes,
            last_used_at=entry.last_used_at,
        )
    if item is None and entry.fetch is None:
        return None
    state: CopyState = "Waiting"
    if entry.fetch is not None:
        state, waiting = "Fetching", ""
    elif entry.failure:
        state, waiting = "Failed", entry.failure
    return data.DataCopy(
        key=entry.key,
        uri=uri,
        in_use=in_use,
        digest=digest,
        bytes=entry.size_bytes or (item.bytes if item is not None else 0),
        state=state,
        fetched_bytes=entry.held_bytes,
        reason=waiting[:LONGEST_REASON],
    )


def most_relevant(
    copies: Sequence[data.DataCopy], wanted: Collection[str], most: int
) -> tuple[data.DataCopy, ...]:
    """At most ``most`` copies, sorted by key; wanted ones are kept first, then those used last."""

    def relevance(copy: data.DataCopy) -> tuple[bool, float]:
        used_at = copy.last_used_at
        return copy.key not in wanted, -used_at.timestamp() if used_at is not None else 0.0

    kept = sorted(copies, key=relevance)[:most]
    return tuple(sorted(kept, key=lambda copy: copy.key))


def state_of(observed: data.DataObserved | None, key: str) -> str:
    """Why a pod waits for the data of a key, as the text of an Event. It does not change with the
    progress of the fetch, since each new text is a new Event."""
    copies = observed.copies if observed is not None else ()
    copy = next((each for each in copies if each.key == key), None)
    if copy is None:
        return f"{key} is not requested on this node yet"
    size = f" ({policy.text_of_bytes(copy.bytes)})" if copy.bytes else ""
    if copy.state == "Fetching":
        return f"{copy.uri}{size} is being fetched"
    cause = copy.reason.partition(",")[0] if copy.state == "Waiting" else copy.reason
    reason = f": {cause}" if cause else ""
    return f"{copy.uri}{size} is {copy.state.lower()}{reason}"
