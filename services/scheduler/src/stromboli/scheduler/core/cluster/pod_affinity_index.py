"""Which pods lie where, counted for those who want to be near pods or away from them.

Counts are vectors over nodes, taken from the world's census at the first question and kept up to
date by every placement after it. Where no pod has terms and none is asked about, nothing is
counted.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.cluster import pod_index
from stromboli.scheduler.core.model import entities, nodes, pod_terms

Counts = pod_index.Counts


class PodAffinityIndex:
    """The pods on the nodes of a session, foreign ones and promises included.

    ``put`` and ``take`` follow placements and evictions. Rows are those of ``nodes.Nodes``.
    """

    def __init__(self, table: nodes.Nodes, known: pod_index.PodIndex) -> None:
        self.table = table
        self._census = known
        self._wishes: dict[int, pod_terms.AffinityTerms] = {}
        self._tallies: dict[tuple[pod_terms.Matcher, ...], Counts] = {}
        self._carried_away: dict[pod_terms.Term, Counts] | None = None
        self._carried_likes: dict[tuple[int, pod_terms.Term], Counts] | None = None
        self._moves: list[tuple[pod_index.PodKind, list[int], int]] = []
        """(pods of one kind, the row of each, 1 or -1)."""
        self._followed: dict[pod_index.PodKind, list[Counts]] = {}
        """Every vector in which pods of that kind are counted."""

    @property
    def anti_affinity_carriers(self) -> dict[pod_terms.Term, Counts]:
        """Term of anti-affinity -> pods that carry it, per node."""
        if self._carried_away is None:
            self._carried_away = _copied(self._census.anti_affinity_carriers)
            for placed, rows, change in self._moves:
                for term in self.affinity_terms(placed.task_class).required_anti_affinity:
                    np.add.at(self._vector(self._carried_away, term), rows, change)
            self._followed.clear()
        return self._carried_away

    @property
    def preference_carriers(self) -> dict[tuple[int, pod_terms.Term], Counts]:
        """Weighted term of a preference -> pods that carry it, per node."""
        if self._carried_likes is None:
            self._carried_likes = _copied(self._census.preference_carriers)
            for placed, rows, change in self._moves:
                for like in self.affinity_terms(placed.task_class).preferences:
                    np.add.at(self._vector(self._carried_likes, like), rows, change)
            self._followed.clear()
        return self._carried_likes

    def put(self, tasks: Sequence[entities.Task]) -> None:
        """The tasks lie on their nodes."""
        self._move_all(tasks, 1)

    def take(self, tasks: Sequence[entities.Task]) -> None:
        """They do not any more, or are on their way out."""
        self._move_all(tasks, -1)

    def affinity_terms(self, task_class: entities.TaskClass) -> pod_terms.AffinityTerms:
        """What pods of the class want of their neighbours."""
        found = self._wishes.get(task_class.number)
        if found is None:
            found = self._wishes[task_class.number] = pod_terms.affinity_terms(task_class)
        return found

    def counts(self, *matchers: pod_terms.Matcher) -> Counts:
        """Pods per node that all matchers mean. The first question costs O(nodes)."""
        tally = self._tallies.get(matchers)
        if tally is None:
            tally = self._tallies[matchers] = self._census.counts(matchers).copy()
            for placed, rows, change in self._moves:
                if self._census.matches_pod(matchers, placed):
                    np.add.at(tally, rows, change)
            self._followed.clear()
        return tally

    def matches_pod(self, matcher: pod_terms.Matcher, task_class: entities.TaskClass) -> bool:
        """Whether pods of the class, alive, are meant."""
        return self._census.matches_pod((matcher,), pod_index.PodKind(task_class, alive=True))

    def places(self, key: str) -> tuple[npt.NDArray[np.int32], int]:
        """Each node's place under a topology key (-1 for none), and how many places there are."""
        codes, values = self.table.labelled.label_codes(key)
        return codes, len(values)

    def domain_totals(self, key: str, counts: Counts) -> Counts:
        """For every node the sum over all nodes of its place; 0 for nodes without a place."""
        codes, size = self.places(key)
        has = codes >= 0
        # One slot more than places: -1, a node without a place, reads the last, which stays 0.
        sums = np.bincount(codes[has], counts[has], size + 1).astype(np.int64)
        result: Counts = sums[codes]
        return result

    def _move_all(self, tasks: Sequence[entities.Task], change: int) -> None:
        known = self.table.rows
        rows: tuple[list[int], list[int]] = ([], [])
        for task in tasks:
            row = known.get(task.node)
            if row is not None:
                rows[task.pod.metadata.deletion_timestamp is None].append(row)
        for is_alive in (False, True):
            if rows[is_alive]:
                placed = pod_index.PodKind(tasks[0].task_class, is_alive)
                self._move(placed, rows[is_alive], change)

    def _move(self, placed: pod_index.PodKind, rows: list[int], change: int) -> None:
        self._moves.append((placed, rows, change))
        followed = self._followed.get(placed)
        if followed is None:
            followed = self._followed[placed] = list(self._vectors(placed))
        for counts in followed:
            np.add.at(counts, rows, change)

    def _vectors(self, placed: pod_index.PodKind) -> Iterable[Counts]:
        for matchers, tally in self._tallies.items():
            if self._census.matches_pod(matchers, placed):
                yield tally
        affinity_terms = self.affinity_terms(placed.task_class)
        if self._carried_away is not None:
            for term in affinity_terms.required_anti_affinity:
                yield self._vector(self._carried_away, term)
        if self._carried_likes is not None:
            for like in affinity_terms.preferences:
                yield self._vector(self._carried_likes, like)

    def _vector(self, table: dict, key: object) -> Counts:  # type: ignore[type-arg]  # of any key
        if key not in table:
            table[key] = np.zeros(len(self.table), np.int64)
        counts: Counts = table[key]
        return counts


def _copied(table: dict) -> dict:  # type: ignore[type-arg]  # of any key
    return {key: counts.copy() for key, counts in table.items()}
