"""Which pods lie where, kept as pods come and go: what sessions count neighbours and ports from.

A session never changes it; what it places and takes it counts beside (``neighbours.Board``,
``ports``). A pod costs O(1), and as many additions as there are questions that mean it.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.cluster import device_claims
from stromboli.scheduler.core.model import entities, node_attributes, pod_terms

Counts: TypeAlias = npt.NDArray[np.int64]
"""Pods per node."""
MOST_TALLIES = 1024
"""Questions remembered; beyond, all are forgotten and those still asked are counted anew."""


class Placed(NamedTuple):
    """Pods that no matcher can tell apart."""

    task_class: entities.TaskClass
    alive: bool


class Census:
    """The pods on nodes. Rows are those of ``nodes.Nodes``."""

    def __init__(self) -> None:
        self.carried_away: dict[pod_terms.Term, Counts] = {}
        """Term of anti-affinity -> pods that carry it, per node."""
        self.carried_likes: dict[tuple[int, pod_terms.Term], Counts] = {}
        self.ports: dict[entities.Port, Counts] = {}
        self.claimants: dict[str, entities.Task] = {}
        """Pod -> its task, of those that claim volumes or devices."""
        self._size = 0
        self._namespace_labels: Mapping[str, Mapping[str, str]] = {}
        self._placed: dict[Placed, dict[int, int]] = {}
        self._tallies: dict[tuple[pod_terms.Matcher, ...], Counts] = {}
        self._followed: dict[Placed, list[Counts]] = {}

    def label_namespaces(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Labels of namespaces as they are now."""
        self._namespace_labels = labels
        self._forget_tallies()

    def put(self, task: entities.Task, row: int) -> None:
        """A task lies on the node."""
        if device_claims.has_claims(task.pod):
            self.claimants[task.key] = task
        self._count(task, row, 1)

    def take(self, task: entities.Task, row: int) -> None:
        """It does not any more."""
        self.claimants.pop(task.key, None)
        self._count(task, row, -1)

    def rearrange(self, sources: node_attributes.Sources) -> None:
        """Rows in a new order; new nodes are empty until their tasks are put."""
        self._size = len(sources)
        after = {int(old): row for row, old in enumerate(sources.tolist()) if old >= 0}
        for placed, rows in list(self._placed.items()):
            kept = {after[row]: count for row, count in rows.items() if row in after}
            self._placed[placed] = kept
        for table in (self.carried_away, self.carried_likes, self.ports):
            for key, counts in list(table.items()):
                table[key] = node_attributes.moved(counts, sources)  # type: ignore[index]  # its own key
        self._forget_tallies()

    def counts(self, matchers: tuple[pod_terms.Matcher, ...]) -> Counts:
        """Pods per node that all matchers mean; not to be changed by the caller.

        The first question costs O(classes + pods that are meant).
        """
        tally = self._tallies.get(matchers)
        if tally is None:
            if len(self._tallies) >= MOST_TALLIES:
                self._forget_tallies()
            tally = self._tallies[matchers] = np.zeros(self._size, np.int64)
            for placed, rows in self._placed.items():
                if self.means(matchers, placed):
                    if placed in self._followed:
                        self._followed[placed].append(tally)
                    for row, count in rows.items():
                        tally[row] += count
        return tally

    def means(self, matchers: tuple[pod_terms.Matcher, ...], placed: Placed) -> bool:
        """Whether such pods are meant by all matchers."""
        return all(
            matcher.means(
                placed.task_class.namespace,
                placed.task_class.labels,
                self._namespace_labels,
                alive=placed.alive,
            )
            for matcher in matchers
        )

    def _count(self, task: entities.Task, row: int, change: int) -> None:
        placed = placed_of(task)
        rows = self._placed.setdefault(placed, {})
        number = rows.get(row, 0) + change
        if number:
            rows[row] = number
        else:
            rows.pop(row, None)
        followed = self._followed.get(placed)
        if followed is None:
            followed = self._followed[placed] = self._carried(placed)
            followed += [
                tally for matchers, tally in self._tallies.items() if self.means(matchers, placed)
            ]
        for counts in followed:
            counts[row] += change
        if not rows:
            self._let_go(placed)

    def _carried(self, placed: Placed) -> list[Counts]:
        """What counts the terms and ports that such pods bring along."""
        wishes = pod_terms.wishes(placed.task_class)
        return [
            *(self._vector(self.carried_away, term) for term in wishes.away),
            *(self._vector(self.carried_likes, like) for like in wishes.likes),
            *(self._vector(self.ports, port) for port in placed.task_class.ports),
        ]

    def _vector(self, table: dict, key: object) -> Counts:  # type: ignore[type-arg]  # of any key
        if key not in table:
            table[key] = np.zeros(self._size, np.int64)
        counts: Counts = table[key]
        return counts

    def _let_go(self, placed: Placed) -> None:
        """No such pod lies anywhere: forget it, and what nobody carries any more."""
        del self._placed[placed]
        self._followed.pop(placed, None)
        wishes = pod_terms.wishes(placed.task_class)
        for table, keys in (
            (self.carried_away, wishes.away),
            (self.carried_likes, wishes.likes),
            (self.ports, placed.task_class.ports),
        ):
            for key in keys:
                if key in table and not table[key].any():  # type: ignore[index]  # its own key
                    del table[key]  # type: ignore[arg-type]

    def _forget_tallies(self) -> None:
        self._tallies.clear()
        self._followed.clear()


def placed_of(task: entities.Task) -> Placed:
    """What the census takes a task for."""
    return Placed(task.task_class, task.pod.metadata.deletion_timestamp is None)
