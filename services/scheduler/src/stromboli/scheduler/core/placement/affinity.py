"""Affinity and anti-affinity between pods.

The rules are those of Kubernetes' InterPodAffinity. A required affinity holds in domains with a pod
that all required terms select; the first pod of a group that selects itself may start anywhere.
Anti-affinity holds both ways: a pod avoids pods that it selects and pods that select it. Unlike
Volcano, placements of the same session count.
"""

import numpy as np

from stromboli.scheduler.core.cluster import pod_affinity_index, row_counts
from stromboli.scheduler.core.model import entities, node_views, pod_terms
from stromboli.scheduler.core.placement import extension_points

AFFINITY_NOT_MET = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_NOT_MET = "node(s) didn't match pod anti-affinity rules"
REFUSED_BY_PLACED_PODS = "node(s) didn't satisfy existing pods anti-affinity rules"
_MOST = 100


class Affinity:
    """Checks and scores over all nodes; O(nodes) per term that concerns the class."""

    def __init__(self, affinity_index: pod_affinity_index.PodAffinityIndex) -> None:
        self._board = affinity_index
        self._shunned_by: dict[int, tuple[int, list[pod_terms.Term]]] = {}
        self._liked_by: dict[int, tuple[int, list[tuple[int, pod_terms.Term]]]] = {}

    def checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """The required terms of the task and of pods on nodes.

        A rule without terms for this class has no check.
        """
        affinity_terms = self._board.affinity_terms(task.task_class)
        unschedulable, unresolvable = (
            extension_points.Code.UNSCHEDULABLE,
            extension_points.Code.UNRESOLVABLE,
        )
        node_checks = []
        if affinity_terms.required_affinity:
            required_affinity = self._is_near(task.task_class, affinity_terms.required_affinity)
            node_checks.append(
                extension_points.Check(
                    AFFINITY_NOT_MET, unresolvable, required_affinity[view.rows], is_lasting=True
                )
            )
        if affinity_terms.required_anti_affinity:
            required_anti_affinity = np.ones(len(self._board.table), np.bool_)
            for term in affinity_terms.required_anti_affinity:
                required_anti_affinity &= self._sums(term, self._board.counts(term.pods)) <= 0
            node_checks.append(
                extension_points.Check(
                    ANTI_AFFINITY_NOT_MET, unschedulable, required_anti_affinity[view.rows]
                )
            )
        shunning = self._required_by_placed_pods(task.task_class)
        if shunning:
            free = np.ones(len(self._board.table), np.bool_)
            for term in shunning:
                free &= self._sums(term, self._board.anti_affinity_carriers[term]) <= 0
            node_checks.append(
                extension_points.Check(REFUSED_BY_PLACED_PODS, unschedulable, free[view.rows])
            )
        return node_checks

    def scores(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """0 to 100 among the rows: how well the preferred terms of the task and of pods on nodes
        are met. None without such terms.
        """
        total = np.zeros(len(self._board.table), np.int64)
        likes = self._board.affinity_terms(task.task_class).preferences
        for weight, term in likes:
            total += weight * self._sums(term, self._board.counts(term.pods))
        liking = self._preferred_by_placed_pods(task.task_class)
        for weight, term in liking:
            total += weight * self._sums(term, self._board.preference_carriers[weight, term])
        if not likes and not liking:
            return None
        return normalised(total[view.rows])

    def _is_near(
        self, task_class: entities.TaskClass, required_affinity: tuple[pod_terms.Term, ...]
    ) -> extension_points.Mask:
        meant = self._board.counts(*(term.pods for term in required_affinity))
        has_places = np.ones(len(self._board.table), np.bool_)
        has_pods = has_places.copy()
        is_first = all(self._board.matches_pod(term.pods, task_class) for term in required_affinity)
        for term in required_affinity:
            placed = self._board.places(term.topology_key)[0] >= 0
            has_places &= placed
            has_pods &= self._sums(term, meant) > 0
            is_first = is_first and not np.any(meant[placed] > 0)
        return has_places if is_first else has_places & has_pods

    def _sums(
        self, term: pod_terms.Term, counts: pod_affinity_index.Counts | row_counts.RowCounts
    ) -> pod_affinity_index.Counts:
        return self._board.domain_totals(term.topology_key, counts)

    def _required_by_placed_pods(self, task_class: entities.TaskClass) -> list[pod_terms.Term]:
        """Anti-affinity terms of pods on nodes that select this class; updated when terms are
        added.
        """
        carried = self._board.anti_affinity_carriers
        kept = self._shunned_by.get(task_class.number)
        if kept is None or kept[0] != len(carried):
            meant = [
                term
                for term in carried.candidates(task_class.labels)
                if self._board.matches_pod(term.pods, task_class)
            ]
            kept = self._shunned_by[task_class.number] = (len(carried), meant)
        return kept[1]

    def _preferred_by_placed_pods(
        self, task_class: entities.TaskClass
    ) -> list[tuple[int, pod_terms.Term]]:
        carried = self._board.preference_carriers
        kept = self._liked_by.get(task_class.number)
        if kept is None or kept[0] != len(carried):
            meant = [
                like
                for like in carried.candidates(task_class.labels)
                if self._board.matches_pod(like[1].pods, task_class)
            ]
            kept = self._liked_by[task_class.number] = (len(carried), meant)
        return kept[1]


def normalised(raw: extension_points.Scores) -> extension_points.Scores:
    """Scale linearly so that the lowest value becomes 0 and the highest 100, rounded down; all 0 if
    all are equal."""
    if not raw.size:
        return raw
    least, most = int(raw.min()), int(raw.max())
    if least == most:
        return np.zeros_like(raw)
    scores: extension_points.Scores = (raw - least) * _MOST // (most - least)
    return scores
