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
MAX_CACHED_COUNTS = 1024
"""Questions remembered; beyond, all are forgotten and those still asked are counted anew."""


class PodKind(NamedTuple):
    """Pods that no matcher can tell apart."""

    task_class: entities.TaskClass
    alive: bool


class PodIndex:
    """The pods on nodes. Rows are those of ``nodes.Nodes``."""

    def __init__(self) -> None:
        self.anti_affinity_carriers: dict[pod_terms.Term, Counts] = {}
        """Term of anti-affinity -> pods that carry it, per node."""
        self.preference_carriers: dict[tuple[int, pod_terms.Term], Counts] = {}
        self.ports: dict[entities.Port, Counts] = {}
        self.claimants: dict[str, entities.Task] = {}
        """Pod -> its task, of those that claim volumes or devices."""
        self._size = 0
        self._namespace_labels: Mapping[str, Mapping[str, str]] = {}
        self._placed: dict[PodKind, dict[int, int]] = {}
        self._tallies: dict[tuple[pod_terms.Matcher, ...], Counts] = {}
        self._followed: dict[PodKind, list[Counts]] = {}

    def label_namespaces(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Labels of namespaces as they are now."""
        self._namespace_labels = labels
        self._drop_cached_counts()

    def put(self, task: entities.Task, row: int) -> None:
        """A task lies on the node."""
        if device_claims.has_claims(task.pod):
            self.claimants[task.key] = task
        self._count(task, row, 1)

    def take(self, task: entities.Task, row: int) -> None:
        """It does not any more."""
        self.claimants.pop(task.key, None)
        self._count(task, row, -1)

    def reorder_rows(self, sources: node_attributes.Sources) -> None:
        """Rows in a new order; new nodes are empty until their tasks are put."""
        self._size = len(sources)
        after = {int(old): row for row, old in enumerate(sources.tolist()) if old >= 0}
        for placed, rows in list(self._placed.items()):
            kept = {after[row]: count for row, count in rows.items() if row in after}
            self._placed[placed] = kept
        for table in (self.anti_affinity_carriers, self.preference_carriers, self.ports):
            for key, counts in list(table.items()):
                table[key] = node_attributes.reordered(counts, sources)  # type: ignore[index]  # its own key
        self._drop_cached_counts()

    def counts(self, matchers: tuple[pod_terms.Matcher, ...]) -> Counts:
        """Pods per node that all matchers mean; not to be changed by the caller.

        The first question costs O(classes + pods that are meant).
        """
        tally = self._tallies.get(matchers)
        if tally is None:
            if len(self._tallies) >= MAX_CACHED_COUNTS:
                self._drop_cached_counts()
            tally = self._tallies[matchers] = np.zeros(self._size, np.int64)
            for placed, rows in self._placed.items():
                if self.matches_pod(matchers, placed):
                    if placed in self._followed:
                        self._followed[placed].append(tally)
                    for row, count in rows.items():
                        tally[row] += count
        return tally

    def matches_pod(self, matchers: tuple[pod_terms.Matcher, ...], placed: PodKind) -> bool:
        """Whether such pods are meant by all matchers."""
        return all(
            matcher.matches_pod(
                placed.task_class.namespace,
                placed.task_class.labels,
                self._namespace_labels,
                alive=placed.alive,
            )
            for matcher in matchers
        )

    def _count(self, task: entities.Task, row: int, change: int) -> None:
        placed = pod_kind(task)
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
                tally
                for matchers, tally in self._tallies.items()
                if self.matches_pod(matchers, placed)
            ]
        for counts in followed:
            counts[row] += change
        if not rows:
            self._release_kind(placed)

    def _carried(self, placed: PodKind) -> list[Counts]:
        """What counts the terms and ports that such pods bring along."""
        affinity_terms = pod_terms.affinity_terms(placed.task_class)
        return [
            *(
                self._vector(self.anti_affinity_carriers, term)
                for term in affinity_terms.required_anti_affinity
            ),
            *(self._vector(self.preference_carriers, like) for like in affinity_terms.preferences),
            *(self._vector(self.ports, port) for port in placed.task_class.ports),
        ]

    def _vector(self, table: dict, key: object) -> Counts:  # type: ignore[type-arg]  # of any key
        if key not in table:
            table[key] = np.zeros(self._size, np.int64)
        counts: Counts = table[key]
        return counts

    def _release_kind(self, placed: PodKind) -> None:
        """No such pod lies anywhere: forget it, and what nobody carries any more."""
        del self._placed[placed]
        self._followed.pop(placed, None)
        affinity_terms = pod_terms.affinity_terms(placed.task_class)
        for table, keys in (
            (self.anti_affinity_carriers, affinity_terms.required_anti_affinity),
            (self.preference_carriers, affinity_terms.preferences),
            (self.ports, placed.task_class.ports),
        ):
            for key in keys:
                if key in table and not table[key].any():  # type: ignore[index]  # its own key
                    del table[key]  # type: ignore[arg-type]

    def _drop_cached_counts(self) -> None:
        self._tallies.clear()
        self._followed.clear()


def pod_kind(task: entities.Task) -> PodKind:
    """What the census takes a task for."""
    return PodKind(task.task_class, task.pod.metadata.deletion_timestamp is None)
