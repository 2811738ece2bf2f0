"""A priority queue whose order plugins define and may change meanwhile."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """Push and pop in O(log n) comparisons. An item whose order changes must be popped and pushed
    again.
    """

    def __init__(self, key: Callable[[T], Any], items: Iterable[T] = ()) -> None:
        self._key = key
        self._items = [(self._key(item), at, item) for at, item in enumerate(items)]
        self._pushed = len(self._items)
        heapq.heapify(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """All items, unordered."""
        return (item for _, _, item in self._items)

    def push(self, item: T) -> None:
        """Insert an item after its equals."""
        heapq.heappush(self._items, (self._key(item), self._pushed, item))
        self._pushed += 1

    def pop(self) -> T:
        """Remove and return the first item."""
        return heapq.heappop(self._items)[2]


class Ranking(Generic[T]):
    """Hashable items that are popped and pushed again; only a popped one may change its order.

    With a ``key`` both take O(log n); with a comparison alone, ``pop`` takes O(n), and all items
    may change their order.
    """

    def __init__(
        self,
        key: Callable[[T], Any] | None,
        compare: Callable[[T, T], int],
        items: Iterable[T],
    ) -> None:
        self._key = key
        self._order = cmp_to_key(compare)
        self._places = {item: place for place, item in enumerate(items)}
        self._items: list[tuple[Any, int, T]] = []
        for item in self._places:
            self.push(item)

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        """Insert an item that was popped; among its equals it has the place that it had first."""
        place = self._places[item]
        if self._key is None:
            self._items.append((None, place, item))
        else:
            heapq.heappush(self._items, (self._key(item), place, item))

    def pop(self) -> T:
        """Remove and return the first item."""
        if self._key is not None:
            return heapq.heappop(self._items)[2]
        found = min(self._items, key=lambda each: (self._order(each[2]), each[1]))
        self._items.remove(found)
        return found[2]


def first(compare: Callable[[T, T], int], items: Iterable[T]) -> T:
    """The first of a few items whose order changes often."""
    return min(items, key=cmp_to_key(compare))
