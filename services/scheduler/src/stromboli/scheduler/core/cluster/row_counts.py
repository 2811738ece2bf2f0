"""Pods per node, counted in memory that grows with the pods and not with the nodes.

Users choose how many different terms and host ports their pods carry. An array over all nodes for
each of them would let one pod cost a number per node; here a pod costs a constant.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import node_attributes

Counts: TypeAlias = npt.NDArray[np.int64]
"""Pods per node, over all nodes."""
Rows: TypeAlias = npt.NDArray[np.intp]
ARRAY_SHARE = 8
"""An array replaces the dictionary once one in 8 nodes has pods: it then takes less memory."""

K = TypeVar("K")


class RowCounts:
    """Pods by row: a dictionary while few rows have any, else an array."""

    __slots__ = ("_array", "_few", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._few: dict[int, int] = {}
        self._array: Counts | None = None

    def __bool__(self) -> bool:
        return bool(self._few) if self._array is None else bool(self._array.any())

    @property
    def bytes_used(self) -> int:
        """Approximate memory of the counts in bytes."""
        return 100 * len(self._few) if self._array is None else self._array.nbytes

    def copy(self) -> "RowCounts":
        """Independent counts with the same numbers."""
        row_counts = RowCounts(self._size)
        row_counts._few = dict(self._few)
        row_counts._array = None if self._array is None else self._array.copy()
        return row_counts

    def add(self, row: int, change: int) -> None:
        """Add ``change`` to the number of pods on the row."""
        if self._array is not None:
            self._array[row] += change
            return
        count = self._few.get(row, 0) + change
        if count:
            self._few[row] = count
            if len(self._few) * ARRAY_SHARE > self._size + ARRAY_SHARE:
                self._array = self.dense()
                self._few = {}
        else:
            self._few.pop(row, None)

    def rows(self) -> tuple[Rows, Counts]:
        """The rows that have pods, and how many."""
        if self._array is not None:
            nonzero = np.flatnonzero(self._array)
            return nonzero, self._array[nonzero]
        size = len(self._few)
        return (
            np.fromiter(self._few.keys(), np.intp, size),
            np.fromiter(self._few.values(), np.int64, size),
        )

    def of(self, row: int) -> int:
        """The number of pods on a row."""
        return self._few.get(row, 0) if self._array is None else int(self._array[row])

    def dense(self) -> Counts:
        """The counts over all rows."""
        if self._array is not None:
            return self._array.copy()
        totals = np.zeros(self._size, np.int64)
        rows, counts = self.rows()
        totals[rows] = counts
        return totals

    def reordered(self, sources: node_attributes.Sources, targets: list[int]) -> "RowCounts":
        """The counts of the same nodes in a new order of rows; new nodes have none.

        ``targets``: old row -> new row, -1 for a node that is gone.
        """
        row_counts = RowCounts(len(sources))
        if self._array is not None:
            row_counts._array = node_attributes.reordered(self._array, sources)
        else:
            moved = ((targets[row], count) for row, count in self._few.items())
            row_counts._few = {row: count for row, count in moved if row >= 0}
        return row_counts


class CountsBy(Generic[K]):
    """Pods by key, such as a term or a port, and by row. A key without pods is dropped."""

    def __init__(self) -> None:
        self._size = 0
        self._counts: dict[K, RowCounts] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[K]:
        return iter(self._counts)

    def get(self, key: K) -> RowCounts | None:
        """The counts of a key; not to be changed by the caller."""
        return self._counts.get(key)

    def add(self, key: K, row: int, change: int) -> None:
        """Add ``change`` to the number of pods with the key on the row. O(1)."""
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = RowCounts(self._size)
            self._added(key)
        counts.add(row, change)
        if change < 0 and not counts:
            del self._counts[key]
            self._dropped(key)

    def reorder_rows(self, sources: node_attributes.Sources) -> None:
        """Put rows in a new order. O(pods + nodes)."""
        targets = np.full(self._size, -1, np.intp)
        targets[sources[sources >= 0]] = np.flatnonzero(sources >= 0)
        self._size, after = len(sources), targets.tolist()
        moved = {key: counts.reordered(sources, after) for key, counts in self._counts.items()}
        self._counts = {key: counts for key, counts in moved.items() if counts}
        for key in moved:
            if key not in self._counts:
                self._dropped(key)

    def dense(self) -> Mapping[K, Counts]:
        """All counts as arrays."""
        return {key: counts.dense() for key, counts in self._counts.items()}

    @property
    def bytes_used(self) -> int:
        """Approximate memory of the counts in bytes."""
        return sum(counts.bytes_used for counts in self._counts.values())

    def _added(self, key: K) -> None:
        """Called when a key gets its first pod."""

    def _dropped(self, key: K) -> None:
        """Called when a key loses its last pod."""


class SessionCountsBy(Generic[K]):
    """Counts of the cluster model plus the changes of one session, which leave the model unchanged.

    Keys are only added within a session, so their number tells whether there are new ones.
    """

    def __init__(self, known: CountsBy[K], size: int) -> None:
        self._known = known
        self._size = size
        self._own: dict[K, RowCounts] = {}
        self._new: list[K] = []

    def __len__(self) -> int:
        return len(self._known) + len(self._new)

    def __iter__(self) -> Iterator[K]:
        yield from self._known
        yield from self._new

    def __getitem__(self, key: K) -> RowCounts:
        own = self._own.get(key)
        row_counts = self._known.get(key) if own is None else own
        return RowCounts(self._size) if row_counts is None else row_counts

    def add(self, key: K, row: int, change: int) -> None:
        """Add ``change`` to the number of pods with the key on the row, in this session."""
        if key not in self._own:
            known = self._known.get(key)
            if known is None:
                self._new.append(key)
                self._added(key)
            self._own[key] = RowCounts(self._size) if known is None else known.copy()
        self._own[key].add(row, change)

    def _added(self, key: K) -> None:
        """Called when a key that had no pods gets its first one in this session."""
