"""The plugin ``nodeorder``: scores feasible nodes, like the score plugins of kube-scheduler.

Each part of the score is an integer from 0 to 100 per node, multiplied by its weight. Parts that
compare nodes with each other consider only candidates.
"""

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import (
    array_cache,
    entities,
    node_constraints,
    node_views,
    nodes,
)
from stromboli.scheduler.core.placement import affinity, extension_points, scoring, spread
from stromboli.shared.api import core, taints

_MOST = 100
_PREFER = "PreferNoSchedule"
_SMALL_IMAGE, _LARGE_IMAGE = 23 * 2**20, 1000 * 2**20
"""Image sizes in bytes: up to the first one an image scores 0, and from the second one per
container it has the full score."""

Part = Callable[[entities.Task, node_views.NodeView], "extension_points.Scores | None"]


class Plugin:
    """Arguments: the weights of the parts of the score. A part of weight 0 is skipped."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()

    def open(self, ssn: session.Session) -> None:
        """Register parts with a weight, those of one scope as one function."""
        single = _NodeScores(ssn)
        local = self._weighted(
            ("leastrequested.weight", 1, single.least),
            ("mostrequested.weight", 0, single.most),
            ("balancedresource.weight", 1, single.balanced),
            ("imagelocality.weight", 1, single.images),
        )
        ssn.add_node_order(partial(_sum, local), extension_points.Scope.LOCAL)
        among = _RelativeScores(ssn)
        shared = self._weighted(
            ("nodeaffinity.weight", 2, among.preferred),
            ("tainttoleration.weight", 3, among.tolerated),
            ("podaffinity.weight", 2, among.near),
            ("podtopologyspread.weight", 2, among.even),
        )
        ssn.add_node_order(partial(_sum, shared), extension_points.Scope.GLOBAL)

    def close(self, ssn: session.Session) -> None:
        """Report invalid arguments."""
        ssn.complaints.extend(self._arguments.complaints)

    def _weighted(self, *parts: tuple[str, int, Part]) -> list[tuple[int, Part]]:
        weights = [(self._arguments.integer(name, usual), part) for name, usual, part in parts]
        return [(weight, part) for weight, part in weights if weight]


def _sum(
    parts: list[tuple[int, Part]], task: entities.Task, view: node_views.NodeView
) -> extension_points.Scores | None:
    total: extension_points.Scores | None = None
    for weight, part in parts:
        answer = part(task, view)
        if answer is not None:
            scored = answer * (weight * extension_points.SCORE_UNIT)
            total = scored if total is None else total + scored
    return total


class _NodeScores:
    """Parts of the score that depend on one node alone."""

    def __init__(self, ssn: session.Session) -> None:
        self._nodes = ssn.nodes
        self._resources = ssn.resources
        self._balances: dict[tuple[int, ...], _Balance] = {}
        """By columns of the resources."""

    def least(self, task: entities.Task, view: node_views.NodeView) -> extension_points.Scores:
        return scoring.least(
            task.task_class.shape,
            view.allocatable,
            view.assumed_used,
        )

    def most(self, task: entities.Task, view: node_views.NodeView) -> extension_points.Scores:
        shape = task.task_class.shape
        total = parts = np.zeros(1, np.int64)
        for column, request in ((0, shape.assumed_cpu), (1, shape.assumed_memory)):
            has = view.allocatable[column]
            requested = np.minimum(view.assumed_used[column] + request, has)
            total = total + requested * _MOST // np.maximum(has, 1)
            parts = parts + (has > 0)
        score: extension_points.Scores = total // np.maximum(parts, 1)
        return score

    def balanced(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        if task.is_best_effort:
            return None
        among = scoring.balanced_columns(task.task_class.shape, self._resources)
        balance = self._balances.get(among)
        if balance is None:
            balance = self._balances[among] = _Balance(self._nodes, among)
        return balance.score(task, view)

    def images(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """Score the bytes of the task's images on the node. Images on few nodes count less."""
        wanted = task.task_class.images
        sizes_of = [self._nodes.image_sizes(name) for name in wanted]
        known = [sizes for sizes in sizes_of if sizes is not None]
        if not known:
            return None
        size = sum(
            (sizes * np.count_nonzero(sizes) // len(self._nodes) for sizes in known),
            start=np.zeros(len(self._nodes), np.int64),
        )
        most = _LARGE_IMAGE * len(wanted)
        bounded = np.clip(size[view.rows], _SMALL_IMAGE, most)
        score: extension_points.Scores = _MOST * (bounded - _SMALL_IMAGE) // (most - _SMALL_IMAGE)
        return score


class _Balance:
    """Scores the balance of some resources. The evenness of a node without the task is the same for
    all classes, so it is computed once, and again for nodes that changed."""

    def __init__(self, table: nodes.Nodes, columns: tuple[int, ...]) -> None:
        self._table = table
        self._columns = list(columns)
        self._balance = scoring.Balance(table.allocatable[self._columns])
        self._evenness = self._of_rows(node_views.ALL)
        self._seen = len(table.touched)

    def score(self, task: entities.Task, view: node_views.NodeView) -> extension_points.Scores:
        used = view.used[self._columns] + view.pipelined[self._columns]
        if view.added is None:
            before = self._current()[view.rows]
        else:
            before = self._balance.evenness(used, view.rows)
        used += task.request[self._columns, np.newaxis]
        return scoring.improvement(before, self._balance.evenness(used, view.rows))

    def _current(self) -> extension_points.Scores:
        touched = self._table.touched
        if self._seen < len(touched):
            rows = np.unique(touched[self._seen :])
            self._evenness[rows] = self._of_rows(rows)
            self._seen = len(touched)
        return self._evenness

    def _of_rows(self, rows: node_views.Rows) -> extension_points.Scores:
        used, pipelined = self._table.used[:, rows], self._table.pipelined[:, rows]
        return self._balance.evenness(used[self._columns] + pipelined[self._columns], rows)


class _RelativeScores:
    """Parts of the score that compare candidates with each other."""

    def __init__(self, ssn: session.Session) -> None:
        self._labelled = ssn.nodes.labelled
        self._near = affinity.Affinity(ssn.affinity_index)
        checks = ssn.nodes.checks

        def passing(reason: str, task: entities.Task) -> extension_points.Mask:
            return dict(checks.of(task.task_class.shape).checks)[reason]

        self._even = spread.Spread(
            ssn.affinity_index,
            partial(passing, node_constraints.AFFINITY),
            partial(passing, node_constraints.TAINTED),
        )
        self._weights: array_cache.ArrayCache[
            tuple[core.PreferredSchedulingTerm, ...], extension_points.Scores
        ] = array_cache.ArrayCache(8 * len(self._labelled))
        self._taints: array_cache.ArrayCache[
            tuple[core.Toleration, ...], extension_points.Scores
        ] = array_cache.ArrayCache(8 * len(self._labelled.taint_sets))
        self._has_mild_taints = any(
            taint.effect == _PREFER for taints in self._labelled.taint_sets for taint in taints
        )

    def near(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        return self._near.scores(task, view)

    def even(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        return self._even.scores(task, view)

    def preferred(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """Score the sum of weights of matching terms; the best candidate has 100."""
        rules = task.task_class.affinity
        wanted = rules.node_affinity if rules else None
        terms = wanted.preferred_during_scheduling_ignored_during_execution if wanted else ()
        if not terms:
            return None
        weights = self._weights.get(terms, partial(self._matching_weights, terms))
        return _scaled(weights[view.rows])

    def tolerated(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """Score nodes by how few ``PreferNoSchedule`` taints the task does not tolerate; the worst
        has 0."""
        if not self._has_mild_taints:
            return None
        tolerations = task.task_class.shape.constraints.tolerations
        counts = self._taints.get(tolerations, partial(self._intolerable, tolerations))
        return _MOST - _scaled(counts[self._labelled.taints_of[view.rows]])

    def _matching_weights(
        self, terms: tuple[core.PreferredSchedulingTerm, ...]
    ) -> extension_points.Scores:
        weights = np.zeros(len(self._labelled), np.int64)
        for term in terms:
            weights += term.weight * node_constraints.term_matches(self._labelled, term.preference)
        return weights

    def _intolerable(self, tolerations: tuple[core.Toleration, ...]) -> extension_points.Scores:
        """Return the number of ``PreferNoSchedule`` taints that are not tolerated, for each set of
        taints."""
        accepted = [
            msgspec.structs.replace(each, effect="")
            for each in tolerations
            if each.effect in ("", _PREFER)
        ]
        return np.array(
            [
                sum(_repels(taint, accepted) for taint in taints)
                for taints in self._labelled.taint_sets
            ],
            np.int64,
        )


def _repels(taint: core.Taint, accepted: list[core.Toleration]) -> bool:
    """Return whether it is a ``PreferNoSchedule`` taint that no toleration matches."""
    hard = msgspec.structs.replace(taint, effect="NoSchedule")
    return taint.effect == _PREFER and not taints.tolerates(accepted, hard)


def _scaled(raw: extension_points.Scores) -> extension_points.Scores:
    """Scale scores so that the highest is 100, rounded down."""
    most = int(raw.max()) if raw.size else 0
    scaled: extension_points.Scores = raw * _MOST // most if most else raw
    return scaled
