"""The pods on nodes in one session: the counts that affinity and spread use.

The index starts from the model's ``pod_index`` and follows every placement and eviction of the
session. Answers are arrays over nodes. A term is counted when it is first used.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.cluster import carried_terms, label_index, pod_index, row_counts
from stromboli.scheduler.core.cluster.pod_kinds import PodKind
from stromboli.scheduler.core.model import entities, nodes, pod_terms

Counts = pod_index.Counts


class PodAffinityIndex:
    """The pods on the nodes of a session, with pods of other schedulers and nominated ones.

    ``add`` and ``remove`` follow placements and evictions. Rows are those of ``nodes.Nodes``.
    """

    def __init__(
        self,
        table: nodes.Nodes,
        known: pod_index.PodIndex,
        bytes_kept: int = pod_index.MAX_CACHED_BYTES,
    ) -> None:
        self.table = table
        self._known = known
        self._max_tallies = pod_index.max_cached_counts(len(table), bytes_kept)
        self._terms: dict[int, pod_terms.AffinityTerms] = {}
        self._tallies: dict[tuple[pod_terms.Matcher, ...], Counts] = {}
        self.anti_affinity_carriers = carried_terms.SessionCarriedTerms(
            known.anti_affinity_carriers, len(table)
        )
        """Pods by the anti-affinity terms that they carry."""
        self.preference_carriers = carried_terms.SessionCarriedTerms(
            known.preference_carriers, len(table)
        )
        """Pods by the weighted preference terms that they carry."""
        self._tally_index: label_index.SelectorIndex[tuple[pod_terms.Matcher, ...]] = (
            label_index.SelectorIndex()
        )
        """The keys of ``_tallies``, by their first matcher."""
        self._moves: dict[PodKind, list[tuple[list[int], int]]] = {}
        """Kind of pods -> row of each, and 1 or -1."""
        self._moved_kinds = label_index.KindIndex()
        """The kinds in ``_moves``."""
        self._followed: dict[PodKind, list[Counts]] = {}
        """Kind of pods -> cached answers that count them."""

    def add(self, tasks: Sequence[entities.Task]) -> None:
        """Count tasks that were placed on their nodes."""
        self._move_all(tasks, 1)

    def remove(self, tasks: Sequence[entities.Task]) -> None:
        """Subtract tasks that were removed from their nodes or are being evicted."""
        self._move_all(tasks, -1)

    def affinity_terms(self, task_class: entities.TaskClass) -> pod_terms.AffinityTerms:
        """The affinity terms of a task class."""
        if task_class.affinity is None:
            return pod_terms.AffinityTerms()
        class_terms = self._terms.get(task_class.number)
        if class_terms is None:
            class_terms = self._terms[task_class.number] = pod_terms.affinity_terms(task_class)
        return class_terms

    def counts(self, *matchers: pod_terms.Matcher) -> Counts:
        """Pods per node that all of the matchers (one or more) select; valid until the next
        placement. The first call costs O(nodes + placements of pods with a label of the matchers).
        """
        tally = self._tallies.get(matchers)
        if tally is None:
            if len(self._tallies) >= self._max_tallies:
                self._tallies.clear()
                self._tally_index.clear()
                self._followed.clear()
            tally = self._tallies[matchers] = self._known.counts(matchers).copy()
            self._tally_index.add(matchers, matchers[0])
            for placed in self._moved_kinds.candidates(matchers):
                if self._known.matches_pod(matchers, placed):
                    self._followed.pop(placed, None)
                    for rows, change in self._moves[placed]:
                        np.add.at(tally, rows, change)
        return tally

    def matches_pod(self, matcher: pod_terms.Matcher, task_class: entities.TaskClass) -> bool:
        """Whether the matcher selects pods of the class that are not being deleted."""
        return self._known.matches_pod((matcher,), PodKind(task_class, alive=True))

    def places(self, key: str) -> tuple[npt.NDArray[np.int32], int]:
        """Each node's domain under a topology key (-1 for none), and the number of domains."""
        codes, values = self.table.labelled.label_codes(key)
        return codes, len(values)

    def domain_totals(self, key: str, counts: Counts | row_counts.RowCounts) -> Counts:
        """For every node the sum over all nodes of its domain; 0 for nodes without a domain."""
        codes, size = self.places(key)
        if isinstance(counts, row_counts.RowCounts):
            rows, counts = counts.rows()
            at = codes[rows]
        else:
            at = codes
        has = at >= 0
        # One slot more than domains: index -1 (no domain) reads the last slot, which stays 0.
        sums = np.bincount(at[has], counts[has], size + 1).astype(np.int64)
        result: Counts = sums[codes]
        return result

    def _move_all(self, tasks: Sequence[entities.Task], change: int) -> None:
        rows: tuple[list[int], list[int]] = ([], [])
        for task, row in zip(tasks, self.table.rows_of([task.node for task in tasks]), strict=True):
            if row >= 0:
                rows[task.pod.metadata.deletion_timestamp is None].append(row)
        for is_alive in (False, True):
            if rows[is_alive]:
                placed = PodKind(tasks[0].task_class, is_alive)
                self._move(placed, rows[is_alive], change)

    def _move(self, placed: PodKind, rows: list[int], change: int) -> None:
        moves = self._moves.get(placed)
        if moves is None:
            moves = self._moves[placed] = []
            self._moved_kinds.add(placed)
        moves.append((rows, change))
        followed = self._followed.get(placed)
        if followed is None:
            followed = self._followed[placed] = [
                self._tallies[matchers]
                for matchers in self._tally_index.candidates(placed.task_class.labels)
                if self._known.matches_pod(matchers, placed)
            ]
        for counts in followed:
            np.add.at(counts, rows, change)
        terms = self.affinity_terms(placed.task_class)
        for row in rows if placed.task_class.affinity is not None else ():
            for term in terms.required_anti_affinity:
                self.anti_affinity_carriers.add(term, row, change)
            for preference in terms.preferences:
                self.preference_carriers.add(preference, row, change)
