"""A cache of arrays over nodes, limited in bytes.

Pods can have any number of different constraints, and one array over all nodes per constraint could
exceed the memory of a session. Keys are contents, so that equal constraints of many classes of pods
share one entry.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

MAX_BYTES = 2**25
MIN_ENTRIES = 16
"""Number of entries that are always kept, however large the cluster is."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ArrayCache(Generic[K, V]):
    """Cached results by key; the least recently used result is evicted first. ``entry_bytes``: the
    size of one result."""

    def __init__(self, entry_bytes: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max(MIN_ENTRIES, max_bytes // max(1, entry_bytes))
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The result for a key, computed if it is not cached."""
        if key in self._entries:
            self._entries.move_to_end(key)
            return self._entries[key]
        while len(self._entries) >= self._max_entries:
            self._entries.popitem(last=False)
        value = self._entries[key] = make()
        return value
