"""The pods on nodes by kind: the base of affinity, spread and host ports.

A session never changes the index; it counts its own placements and evictions in an overlay
(``pod_affinity_index``, ``ports``). Memory is bounded: terms and ports cost a constant per pod that
carries them, and cached answers are limited in bytes.
"""

from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np

from stromboli.scheduler.core.cluster import (
    carried_terms,
    device_claims,
    label_index,
    row_counts,
)
from stromboli.scheduler.core.cluster.pod_kinds import PodKind, pod_kind
from stromboli.scheduler.core.model import entities, node_attributes, pod_terms

Counts: TypeAlias = row_counts.Counts
MAX_CACHED_BYTES = 2**26
"""Memory limit of cached answers. When it is reached, all are dropped and counted again on
demand.
"""
MIN_CACHED_COUNTS = 16
MAX_CACHED_COUNTS = 1024
MAX_FOLLOWED = 2**18
"""Limit of references from kinds of pods to cached answers. When it is reached, all are dropped and
found again on demand.
"""


def max_cached_counts(nodes: int, bytes_kept: int = MAX_CACHED_BYTES) -> int:
    """Number of arrays over all nodes that may be cached."""
    return min(MAX_CACHED_COUNTS, max(MIN_CACHED_COUNTS, bytes_kept // (8 * (nodes + 1))))


class PodIndex:
    """The pods on nodes. Rows are those of ``nodes.Nodes``."""

    def __init__(self) -> None:
        self.anti_affinity_carriers = carried_terms.CarriedTerms[pod_terms.Term](_pods_of_term)
        """Pods by the anti-affinity terms that they carry."""
        self.preference_carriers = carried_terms.CarriedTerms[tuple[int, pod_terms.Term]](
            _pods_of_preference
        )
        """Pods by the weighted preference terms that they carry."""
        self.ports: row_counts.CountsBy[entities.Port] = row_counts.CountsBy()
        self.ports_without_gang: row_counts.CountsBy[entities.Port] = row_counts.CountsBy()
        """The part of ``ports`` that pods without a PodGroup use."""
        self.claimants: dict[str, entities.Task] = {}
        """Pod -> its task, of pods that claim volumes or devices."""
        self.data_sets: row_counts.CountsBy[str] = row_counts.CountsBy()
        """Pods by the content keys of their data sets."""
        self.data_tasks: dict[str, dict[str, entities.Task]] = {}
        """Node -> pod -> its task, of pods with data sets, whether the node has a row or not."""
        self.data_changed: set[str] = set()
        """Nodes whose ``data_tasks`` changed since the set was last read; the reader clears it."""
        self._size = 0
        self._namespace_labels: Mapping[str, Mapping[str, str]] = {}
        self._placed: dict[PodKind, dict[int, int]] = {}
        self._kinds = label_index.KindIndex()
        """The kinds in ``_placed``."""
        self._terms: dict[PodKind, pod_terms.AffinityTerms] = {}
        """Affinity terms of the kinds in ``_placed`` that have an affinity."""
        self._tallies: dict[tuple[pod_terms.Matcher, ...], Counts] = {}
        self._tally_index: label_index.SelectorIndex[tuple[pod_terms.Matcher, ...]] = (
            label_index.SelectorIndex()
        )
        """The keys of ``_tallies``, by their first matcher."""
        self._followed: dict[PodKind, list[Counts]] = {}
        self._follows = 0

    def label_namespaces(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Set the labels of all namespaces."""
        self._namespace_labels = labels
        self._drop_cached_counts()

    def add(self, task: entities.Task, row: int) -> None:
        """Count a task on a node."""
        if device_claims.has_claims(task.pod):
            self.claimants[task.key] = task
        self._count(task, row, 1)

    def add_all(self, tasks: Collection[entities.Task], row: int) -> None:
        """Count tasks on a node that has none. O(tasks), and O(1) updates for each kind of pod."""
        self.claimants.update(
            (task.key, task) for task in tasks if device_claims.has_claims(task.pod)
        )
        runs: dict[tuple[PodKind, bool], list[entities.Task]] = {}
        for task in tasks:
            runs.setdefault((pod_kind(task), bool(task.job)), []).append(task)
        for run in runs.values():
            self._count(run[0], row, len(run))

    def remove(self, task: entities.Task, row: int) -> None:
        """Subtract a task that was removed from its node."""
        self.claimants.pop(task.key, None)
        self._count(task, row, -1)

    def put_data(self, task: entities.Task) -> None:
        """Note the data sets of a task with a node, which may not have a row yet."""
        if task.task_class.data_sets:
            self.data_tasks.setdefault(task.node, {})[task.key] = task
            self.data_changed.add(task.node)

    def take_data(self, task: entities.Task) -> None:
        """Remove what ``put_data`` noted."""
        if task.task_class.data_sets:
            of_node = self.data_tasks[task.node]
            del of_node[task.key]
            if not of_node:
                del self.data_tasks[task.node]
            self.data_changed.add(task.node)

    def reorder_rows(self, sources: node_attributes.Sources) -> None:
        """Move rows to a new order; new rows are empty until ``add``."""
        self._size = len(sources)
        after = {int(old): row for row, old in enumerate(sources.tolist()) if old >= 0}
        for placed, rows in list(self._placed.items()):
            kept = {after[row]: count for row, count in rows.items() if row in after}
            self._placed[placed] = kept
        carried = (self.anti_affinity_carriers, self.preference_carriers)
        for table in (*carried, self.ports, self.ports_without_gang, self.data_sets):
            table.reorder_rows(sources)
        self._drop_cached_counts()

    def counts(self, matchers: tuple[pod_terms.Matcher, ...]) -> Counts:
        """Pods per node that all of the matchers (one or more) select; read-only.

        The first call costs O(nodes + selected pods + classes with a label of the matchers).
        """
        tally = self._tallies.get(matchers)
        if tally is None:
            if len(self._tallies) >= max_cached_counts(self._size):
                self._drop_cached_counts()
            tally = self._tallies[matchers] = np.zeros(self._size, np.int64)
            self._tally_index.add(matchers, matchers[0])
            for placed in self._kinds.candidates(matchers):
                rows = self._placed[placed]
                if self.matches_pod(matchers, placed):
                    if placed in self._followed:
                        self._followed[placed].append(tally)
                        self._follows += 1
                    for row, count in rows.items():
                        tally[row] += count
        return tally

    def matches_pod(self, matchers: tuple[pod_terms.Matcher, ...], placed: PodKind) -> bool:
        """Whether all matchers select pods of this kind."""
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
        """Change the counts by this number of pods like the task's."""
        for key in {request.key for request in task.task_class.data_sets}:
            self.data_sets.add(key, row, change)
        if not task.job:
            for port in task.task_class.ports:
                self.ports_without_gang.add(port, row, change)
        placed = pod_kind(task)
        rows = self._placed.get(placed)
        if rows is None:
            rows = self._placed[placed] = {}
            self._kinds.add(placed)
        number = rows.get(row, 0) + change
        if number:
            rows[row] = number
        else:
            rows.pop(row, None)
        self._count_carried(placed, row, change)
        for counts in self._followed_by(placed):
            counts[row] += change
        if not rows:
            del self._placed[placed]
            self._kinds.discard(placed)
            self._terms.pop(placed, None)
            self._follows -= len(self._followed.pop(placed, ()))

    def _followed_by(self, placed: PodKind) -> list[Counts]:
        """The cached answers that count pods of this kind."""
        followed = self._followed.get(placed)
        if followed is None:
            if self._follows >= MAX_FOLLOWED:
                self._followed.clear()
                self._follows = 0
            followed = self._followed[placed] = [
                self._tallies[matchers]
                for matchers in self._tally_index.candidates(placed.task_class.labels)
                if self.matches_pod(matchers, placed)
            ]
            self._follows += len(followed)
        return followed

    def _count_carried(self, placed: PodKind, row: int, change: int) -> None:
        """Count the terms and ports that a pod of this kind carries."""
        for port in placed.task_class.ports:
            self.ports.add(port, row, change)
        if placed.task_class.affinity is None:
            return
        terms = self._terms.get(placed)
        if terms is None:
            terms = self._terms[placed] = pod_terms.affinity_terms(placed.task_class)
        for term in terms.required_anti_affinity:
            self.anti_affinity_carriers.add(term, row, change)
        for preference in terms.preferences:
            self.preference_carriers.add(preference, row, change)

    def _drop_cached_counts(self) -> None:
        self._tallies.clear()
        self._tally_index.clear()
        self._followed.clear()
        self._follows = 0


def _pods_of_term(term: pod_terms.Term) -> pod_terms.Matcher:
    return term.pods


def _pods_of_preference(preference: tuple[int, pod_terms.Term]) -> pod_terms.Matcher:
    return preference[1].pods
