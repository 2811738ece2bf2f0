"""A queue of things to be served in the order that plugins give, which may change meanwhile."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """Push and pop in O(log n) comparisons of keys. What changes its place is popped and pushed
    again."""

    def __init__(self, key: Callable[[T], Any], items: Iterable[T] = ()) -> None:
        self._key = key
        self._items = [(self._key(item), at, item) for at, item in enumerate(items)]
        self._pushed = len(self._items)
        heapq.heapify(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """All, in any order."""
        return (item for _, _, item in self._items)

    def push(self, item: T) -> None:
        """Put it where it belongs now; behind its equals."""
        heapq.heappush(self._items, (self._key(item), self._pushed, item))
        self._pushed += 1

    def pop(self) -> T:
        """The first."""
        return heapq.heappop(self._items)[2]


def first(compare: Callable[[T, T], int], items: Iterable[T]) -> T:
    """The first of few whose order changes all the time."""
    return min(items, key=cmp_to_key(compare))
