"""The room in the caches of nodes: bytes of data sets that pods use there, against the capacity.

A copy is *held* while a pod on the node uses it: a pod that is placed there, in this session too,
or one that the node's cache reports. Held copies cannot be evicted; all others can, so they take no
room from a new pod. An unknown capacity, of a node without a report, excludes no node, and neither
does a data set of unknown size.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.cluster import data_copies, pod_index
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.jobspec.data_sets import DataSetRequest

UNKNOWN = -1
Bytes = npt.NDArray[np.int64]


class CacheRoom:
    """Held bytes by row. Building it costs O(nodes + pods with data sets + copies in use)."""

    def __init__(self, ssn: session.Session) -> None:
        self._copies: data_copies.DataCopies = ssn.model.auxiliary.data_copies
        self._placed: pod_index.PodIndex = ssn.model.pod_index
        self._rows = ssn.nodes.rows
        self._length = len(ssn.nodes)
        self._sizes: dict[str, int] = {}
        self._users: dict[str, Bytes] = {}
        """Content key -> number of pods by row."""
        self._foreign: dict[str, list[int]] = {}
        """Content key -> rows of copies that only other pods use."""
        self.capacity: Bytes = np.full(self._length, UNKNOWN, np.int64)
        self.held_bytes: Bytes = np.zeros(self._length, np.int64)
        for name, report in self._copies.reports.items():
            row = self._rows.get(name)
            if row is not None:
                self.capacity[row] = report.capacity_bytes
        for of_node in self._placed.data_tasks.values():
            for task in of_node.values():
                self._note_sizes(task.task_class.data_sets)
        for key in self._placed.data_sets:
            counts = self._placed.data_sets.get(key)
            if counts is not None:
                # Not over all nodes: a thousand data sets would each cost an array of them.
                rows, numbers = counts.rows()
                self.held_bytes[rows[numbers > 0]] += self.size(key)
        for name, copy in self._copies.in_use():
            row = self._rows.get(name)
            if row is not None and not self._is_used(copy.key, row):
                self._foreign.setdefault(copy.key, []).append(row)
                self.held_bytes[row] += self.size(copy.key) or copy.bytes

    def size(self, key: str) -> int:
        """The bytes of a data set, as copies have it, else as pods state it; 0 if unknown."""
        return self._copies.size(key) or self._sizes.get(key, 0)

    def _is_used(self, key: str, row: int) -> bool:
        counts = self._placed.data_sets.get(key)
        return counts is not None and counts.of(row) > 0

    def users(self, key: str) -> Bytes:
        """How many pods use a data set, by row."""
        pod_counts = self._users.get(key)
        if pod_counts is None:
            counts = self._placed.data_sets.get(key)
            empty: Bytes = np.zeros(self._length, np.int64)
            pod_counts = self._users[key] = empty if counts is None else counts.dense()
        return pod_counts

    def held(self, key: str) -> extension_points.Mask:
        """The nodes on which pods use a data set."""
        mask: extension_points.Mask = self.users(key) > 0
        mask[self._foreign.get(key, [])] = True
        return mask

    def own_bytes(self, requests: Sequence[DataSetRequest]) -> int:
        """The bytes of the data sets of one pod."""
        self._note_sizes(requests)
        return sum(self.size(key) for key in keys_of(requests))

    def added_bytes(self, requests: Sequence[DataSetRequest]) -> Bytes:
        """How many more bytes each node would hold with a pod that has these data sets, by row."""
        self._note_sizes(requests)
        added: Bytes = np.zeros(self._length, np.int64)
        for key in keys_of(requests):
            added += np.where(self.held(key), 0, self.size(key))
        return added

    def has_room(self, requests: Sequence[DataSetRequest]) -> extension_points.Mask:
        """The nodes that have room for a pod with these data sets, or whose room is unknown."""
        added = self.added_bytes(requests)
        fits: extension_points.Mask = self.held_bytes + added <= self.capacity
        fits |= (added == 0) | (self.capacity == UNKNOWN)
        return fits

    def count(self, tasks: Sequence[entities.Task], change: int) -> None:
        """Count tasks of one class that were placed (1) or removed (-1) in the session."""
        requests = tasks[0].task_class.data_sets
        self._note_sizes(requests)
        for key in keys_of(requests):
            users, foreign = self.users(key), self._foreign.get(key, ())
            for task in tasks:
                row = self._rows.get(task.node)
                if row is None:
                    continue
                users[row] += change
                is_edge = users[row] == (1 if change > 0 else 0)
                if is_edge and row not in foreign:
                    self.held_bytes[row] += change * self.size(key)

    def _note_sizes(self, requests: Iterable[DataSetRequest]) -> None:
        """Use the first stated size of each data set, so that what is added is also removed."""
        for request in requests:
            if request.bytes:
                self._sizes.setdefault(request.key, request.bytes)


def keys_of(requests: Iterable[DataSetRequest]) -> list[str]:
    """The content keys of data sets in our caches, each once."""
    return list(dict.fromkeys(request.key for request in requests if request.key))
