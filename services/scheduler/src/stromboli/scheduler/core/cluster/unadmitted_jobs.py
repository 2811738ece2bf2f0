"""Jobs that their queue refused to admit, in the order in which it serves them.

Jobs of one queue with the same minimum request form a class: a vote that depends only on both
refuses all of them or admits the first one. The action ``enqueue`` therefore tries only the first
job of each class, however many wait behind it.
"""

import bisect
import heapq
from collections.abc import Iterator, KeysView
from typing import Any, NamedTuple, TypeAlias

SortKey: TypeAlias = tuple[Any, ...]
"""Sorts jobs of a queue as the session does; it ends with the PodGroup's uid, so no two are equal.
"""


class AdmissionClass(NamedTuple):
    """Jobs of a queue with the same minimum request. ``request``: one amount per resource."""

    queue: str
    request: tuple[int, ...]


class UnadmittedJobs:
    """Keys of jobs by class. A change costs O(log jobs) plus a shift within the class's list."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[AdmissionClass, list[tuple[SortKey, str]]]] = {}
        self._places: dict[str, tuple[AdmissionClass, SortKey]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def keys(self) -> KeysView[str]:
        """The keys of all jobs."""
        return self._places.keys()

    def put(self, key: str, kind: AdmissionClass, order: SortKey) -> None:
        """Add a job, or move it."""
        self.discard(key)
        classes = self._queues.setdefault(kind.queue, {})
        bisect.insort(classes.setdefault(kind, []), (order, key))
        self._places[key] = (kind, order)

    def discard(self, key: str) -> None:
        """Remove a job, if it is there."""
        place = self._places.pop(key, None)
        if place is None:
            return
        kind, order = place
        classes = self._queues[kind.queue]
        line = classes[kind]
        del line[bisect.bisect_left(line, (order, key))]
        if not line:
            del classes[kind]
        if not classes:
            del self._queues[kind.queue]

    def clear(self) -> None:
        """Remove all jobs."""
        self._queues.clear()
        self._places.clear()

    def queues(self) -> Iterator[str]:
        """The queues that have such jobs."""
        return iter(self._queues)

    def classes(self) -> Iterator[Iterator[str]]:
        """For each class its jobs in order. The collection must not change meanwhile."""
        for classes in self._queues.values():
            for line in classes.values():
                yield (key for _, key in line)

    def ordered(self, queue: str) -> list[tuple[SortKey, str]]:
        """The jobs of a queue with their sort keys, in order. O(jobs of the queue)."""
        lines = list(self._queues.get(queue, {}).values())
        return lines[0] if len(lines) == 1 else list(heapq.merge(*lines))
