"""A set that returns its least elements without sorting all of them."""

import heapq
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])
_SLACK = 1000
"""The heap is rebuilt once it has more entries than twice the set's size plus this number."""


class LeastFirst(Generic[T]):
    """A heap with lazy deletion. A change costs O(log n), ``first(k)`` O(k log n)."""

    def __init__(self, elements: Iterable[T] = ()) -> None:
        self._present = set(elements)
        self._heap = sorted(self._present)

    def __len__(self) -> int:
        return len(self._present)

    def __contains__(self, element: T) -> bool:
        return element in self._present

    def add(self, element: T) -> None:
        """Add an element; no effect if it is present."""
        if element in self._present:
            return
        self._present.add(element)
        heapq.heappush(self._heap, element)
        if len(self._heap) > 2 * len(self._present) + _SLACK:
            self._heap = sorted(self._present)

    def discard(self, element: T) -> None:
        """Remove an element; no effect if it is absent."""
        self._present.discard(element)
        if not self._present and self._heap:
            # Neither a set nor a heap with lazy deletion becomes smaller by itself.
            self._present, self._heap = set(), []

    def first(self, most: int) -> list[T]:
        """The least elements, in order, without removing them."""
        smallest: list[T] = []
        while self._heap and len(smallest) < most:
            least = heapq.heappop(self._heap)
            # An element that was discarded and added again is in the heap twice.
            if least in self._present and (not smallest or smallest[-1] != least):
                smallest.append(least)
        for element in smallest:
            heapq.heappush(self._heap, element)
        return smallest
