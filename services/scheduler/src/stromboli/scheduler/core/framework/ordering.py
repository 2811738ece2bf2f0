"""Priority queues whose order plugins define and may change between calls."""

import heapq
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cmp_to_key
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

AGE_KEY = operator.attrgetter("created", "uid")
"""Sorts objects as ``by_age`` does."""
INDEX_KEY = operator.attrgetter("index", "created", "uid")
"""Sorts tasks that all have an index as ``by_index`` and ``by_age`` do."""


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
        """Insert an item behind equal items."""
        heapq.heappush(self._items, (self._key(item), self._pushed, item))
        self._pushed += 1

    def pop(self) -> T:
        """Remove and return the first item."""
        return heapq.heappop(self._items)[2]


class Ranking(Generic[T]):
    """Orders hashable items that are popped and pushed again.

    ``place`` returns the group of an item and its key in it. A group is sorted by keys, and only a
    popped item may change its key. The first items of groups are compared with each other, and the
    order among them may change between calls. ``pop`` takes O(groups) comparisons and O(log items
    of the group).
    """

    def __init__(
        self,
        place: Callable[[T], tuple[Hashable, Any]],
        compare: Callable[[T, T], int],
        items: Iterable[T],
    ) -> None:
        self._place = place
        self._order = cmp_to_key(compare)
        self._numbers = {item: number for number, item in enumerate(items)}
        self._groups: dict[Hashable, list[tuple[Any, int, T]]] = {}
        self._size = 0
        for item in self._numbers:
            self.push(item)

    def __len__(self) -> int:
        return self._size

    def push(self, item: T) -> None:
        """Insert an item that was popped; among equal items it keeps its original position."""
        # A single item needs no key, which may be expensive.
        group, key = self._place(item) if len(self._numbers) > 1 else (None, ())
        heapq.heappush(self._groups.setdefault(group, []), (key, self._numbers[item], item))
        self._size += 1

    def pop(self) -> T:
        """Remove and return the first item."""
        group, heap = next(iter(self._groups.items()))
        if len(self._groups) > 1:
            group, heap = min(
                self._groups.items(), key=lambda each: (self._order(each[1][0][2]), each[1][0][1])
            )
        item = heapq.heappop(heap)[2]
        if not heap:
            del self._groups[group]
        self._size -= 1
        return item


def comparing(key: Callable[[T], Any]) -> Callable[[T, T], int]:
    """The comparison function equivalent to the key."""

    def compare(left: T, right: T) -> int:
        first, second = key(left), key(right)
        return int(first > second) - int(first < second)

    return compare


def first(compare: Callable[[T, T], int], items: Iterable[T]) -> T:
    """The first of a few items whose order changes often."""
    return min(items, key=cmp_to_key(compare))


class Aged(Protocol):
    """An object with a creation time."""

    @property
    def created(self) -> Any:
        """When it was created."""

    @property
    def uid(self) -> str:
        """Distinguishes objects of one age."""


def by_age(left: Aged, right: Aged) -> int:
    """Negative if left is older, by uid if both have the same age."""
    before, after = AGE_KEY(left), AGE_KEY(right)
    return int(before > after) - int(before < after)


class Indexed(Protocol):
    """A task with the number at the end of a name like ``job-role-3``, if there is one."""

    @property
    def index(self) -> int | None:
        """The number."""


def by_index(left: Indexed, right: Indexed) -> int:
    """Negative if left has the lower number; 0 if not both have one."""
    first, second = left.index, right.index
    return 0 if first is None or second is None else first - second
