"""Topology spread constraints, hard and soft.

The rules are those of Kubernetes' PodTopologySpread for constraints of pods. A cluster's default
constraints are not applied, because they depend on Services, which the scheduler does not read.
Pods that are being deleted do not count.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.cluster import pod_affinity_index
from stromboli.scheduler.core.model import entities, node_views, pod_terms
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.api import core

SKEW_TOO_HIGH = "node(s) didn't match pod topology spread constraints"
NO_TOPOLOGY_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
HOSTNAME = "kubernetes.io/hostname"
_MOST = 100

Eligible = Callable[[entities.Task], extension_points.Mask]
"""Task -> mask over all nodes: whether its node selector and required node affinity match, or
whether it tolerates the taints.
"""


class Constraint(NamedTuple):
    """One compiled constraint of a task class."""

    key: str
    pods: pod_terms.Matcher
    max_skew: int
    min_domains: int
    is_hard: bool
    honours_affinity: bool
    honours_taints: bool


class Spread:
    """Checks and scores over all nodes; O(nodes) per constraint, O(1) for pods without any."""

    def __init__(
        self,
        affinity_index: pod_affinity_index.PodAffinityIndex,
        selected: Eligible,
        tolerated: Eligible,
    ) -> None:
        self._board = affinity_index
        self._selected = selected
        self._tolerated = tolerated
        self._constraints: dict[int, tuple[Constraint, ...]] = {}

    def checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """Nodes without the topology key, and nodes whose domain would exceed the allowed skew."""
        hard = [each for each in self._of(task.task_class) if each.is_hard]
        if not hard:
            return []
        placed = self._have_places(hard)
        even = np.ones(len(self._board.table), np.bool_)
        for each in hard:
            eligible = placed & self._counted(each, task)
            even &= ~placed | self._is_even(each, task.task_class, eligible)
        return [
            extension_points.Check(
                NO_TOPOLOGY_LABEL,
                extension_points.Code.UNRESOLVABLE,
                placed[view.rows],
                is_lasting=True,
            ),
            extension_points.Check(
                SKEW_TOO_HIGH, extension_points.Code.UNSCHEDULABLE, even[view.rows]
            ),
        ]

    def scores(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """0 to 100 among the rows, highest where the fewest pods are. None without soft
        constraints."""
        soft = [each for each in self._of(task.task_class) if not each.is_hard]
        if not soft:
            return None
        requested = np.zeros(len(self._board.table), np.bool_)
        requested[view.rows] = True
        placed = self._have_places(soft)
        raw = np.zeros(len(self._board.table), np.float64)
        for each in soft:
            raw += self._crowd(each, task, placed, requested & placed)
        # Rounds half up, as Kubernetes does; scores are whole numbers from here on.
        return _turned(np.floor(raw + 0.5).astype(np.int64)[view.rows], placed[view.rows])

    def _crowd(
        self,
        each: Constraint,
        task: entities.Task,
        placed: extension_points.Mask,
        among: extension_points.Mask,
    ) -> npt.NDArray[np.float64]:
        counts = self._board.counts(each.pods)
        if each.key == HOSTNAME:
            size = int(among.sum())
        else:
            codes, _ = self._board.places(each.key)
            size = len(np.unique(codes[among]))
            counts = self._board.domain_totals(
                each.key, np.where(placed & self._counted(each, task), counts, 0)
            )
        return np.asarray(counts * math.log(size + 2) + (each.max_skew - 1), np.float64)

    def _is_even(
        self, each: Constraint, task_class: entities.TaskClass, eligible: extension_points.Mask
    ) -> extension_points.Mask:
        counts = np.where(eligible, self._board.counts(each.pods), 0)
        sums = self._board.domain_totals(each.key, counts)
        codes, _ = self._board.places(each.key)
        places = len(np.unique(codes[eligible]))
        if not places:
            return np.ones(len(self._board.table), np.bool_)
        fewest = 0 if places < each.min_domains else int(sums[eligible].min())
        own = int(self._board.matches_pod(each.pods, task_class))
        even: extension_points.Mask = sums + own - fewest <= each.max_skew
        return even

    def _have_places(self, constraints: list[Constraint]) -> extension_points.Mask:
        placed = np.ones(len(self._board.table), np.bool_)
        for each in constraints:
            placed &= self._board.places(each.key)[0] >= 0
        return placed

    def _counted(self, each: Constraint, task: entities.Task) -> extension_points.Mask:
        """Nodes whose pods count for the constraint."""
        counted = np.ones(len(self._board.table), np.bool_)
        if each.honours_affinity:
            counted &= self._selected(task)
        if each.honours_taints:
            counted &= self._tolerated(task)
        return counted

    def _of(self, task_class: entities.TaskClass) -> tuple[Constraint, ...]:
        constraints = self._constraints.get(task_class.number)
        if constraints is None:
            constraints = self._constraints[task_class.number] = tuple(
                _constraint(each, task_class) for each in task_class.spread
            )
        return constraints


def _constraint(
    topology_spread_constraint: core.TopologySpreadConstraint, task_class: entities.TaskClass
) -> Constraint:
    pods = pod_terms.selector(
        topology_spread_constraint.label_selector,
        task_class.labels,
        topology_spread_constraint.match_label_keys,
    )
    return Constraint(
        topology_spread_constraint.topology_key,
        pod_terms.Matcher(pods, (task_class.namespace,), alive=True),
        topology_spread_constraint.max_skew,
        topology_spread_constraint.min_domains or 1,
        topology_spread_constraint.when_unsatisfiable == "DoNotSchedule",
        topology_spread_constraint.node_affinity_policy != "Ignore",
        topology_spread_constraint.node_taints_policy == "Honor",
    )


def _turned(raw: extension_points.Scores, placed: extension_points.Mask) -> extension_points.Scores:
    """Invert the counts: the fewest pods get the highest score; 0 for nodes without a domain."""
    if not placed.any():
        return np.zeros_like(raw)
    least, most = int(raw[placed].min()), int(raw[placed].max())
    if most == 0:
        return np.where(placed, _MOST, 0)
    return np.where(placed, _MOST * (most + least - raw) // most, 0)
