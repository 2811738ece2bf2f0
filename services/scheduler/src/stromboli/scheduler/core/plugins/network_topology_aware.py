"""The plugin ``network-topology-aware``: fills topology domains one after another and keeps gangs
together.

Hard topology constraints are enforced without the plugin. With it, soft constraints are met as far
as possible, the fullest domain with enough room is tried first, tasks join the domain of their
gang, and pods without a constraint fill domains that are in use already.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import (
    entities,
    node_views,
    queue_usage,
    resource_vectors,
    topology_domains,
)
from stromboli.scheduler.core.placement import extension_points

BEST = 100
_TIE = extension_points.SCORE_UNIT // 10**4
"""Weight of placed tasks of the gang in a score: in total at most a hundredth of a point, so that
they only break ties."""


class Plugin:
    """Arguments: ``weight``, ``hypernode.binpack.cpu`` and ``.memory``, ``.resources`` with
    ``.resources.<name>``; for pods without a topology constraint
    ``hypernode.binpack.normal-pod.enable`` and ``.fading``;
    ``hypernode.gradient.evict.max-hypernodes``."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = arguments = options.typed()
        self._weight = arguments.integer("weight", 1)
        prefix = "hypernode.binpack"
        self._weights = {
            name: arguments.integer(f"{prefix}.{name}", 1, least=0) for name in ("cpu", "memory")
        }
        for name in arguments.text(f"{prefix}.resources", "").split(","):
            if name.strip():
                self._weights[name.strip()] = arguments.integer(
                    f"{prefix}.resources.{name.strip()}", 1, least=0
                )
        self._scores_others = arguments.boolean(f"{prefix}.normal-pod.enable", default=True)
        self._most_evicted_in = arguments.integer("hypernode.gradient.evict.max-hypernodes", 8)
        self._fading = arguments.number(f"{prefix}.normal-pod.fading", 0.8)

    def open(self, ssn: session.Session) -> None:
        """Register."""
        ssn.complaints.extend(self._arguments.complaints)
        self._session = ssn
        self._columns = {
            column: weight
            for name, weight in self._weights.items()
            if (column := ssn.resources.known(name)) is not None and weight > 0
        }
        ssn.topology.most_evicted_in = max(1, self._most_evicted_in)
        ssn.add_soft_topology()
        if self._weight != 0:
            ssn.add_domain_order(self._score_domains)
            ssn.add_node_order(self._score_nodes, extension_points.Scope.GLOBAL)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    # Domains --------------------------------------------------------------------------------

    def _score_domains(
        self, tasks: Sequence[entities.Task], requested: npt.NDArray[np.intp]
    ) -> extension_points.Scores:
        request = queue_usage.sum_of_requests(tasks, len(tasks[0].request))
        return self._scaled(self._packed(request)[requested])

    def _packed(
        self, request: resource_vectors.Vector | resource_vectors.Sum
    ) -> npt.NDArray[np.float64]:
        """Return the weighted fraction of each domain that is used once the request is placed in
        it, from 0 to 1; 0 where it does not fit."""
        nodes, tree = self._session.nodes, self._session.topology.tree
        columns = [column for column in self._columns if request[column] > 0]
        if not columns:
            return np.zeros(len(tree))
        allocatable = tree.large_sums(nodes.allocatable[columns])
        more = request[columns][:, np.newaxis].astype(np.float64)
        used = tree.large_sums(nodes.used[columns]) + more
        weights = np.array([[self._columns[column]] for column in columns], np.float64)
        counts = allocatable > 0
        parts = np.divide(used * weights, allocatable, out=np.zeros(used.shape), where=counts)
        fits = np.all(used <= allocatable, axis=0)
        packed: npt.NDArray[np.float64] = parts.sum(axis=0) / weights.sum()
        return np.where(fits, packed, 0.0)

    # Nodes ----------------------------------------------------------------------------------

    def _score_nodes(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        topology = self._session.topology
        tree = topology.tree
        if tree.is_flat:
            return None
        job = self._session.jobs.get(task.job)
        if job is not None and topology.is_constrained(job):
            return self._distance_scores(job, task, tree.homes[view.rows])
        if not self._scores_others:
            return None
        return self._scaled(self._surrounding_scores(task)[tree.homes[view.rows]])

    def _distance_scores(
        self, job: entities.Job, task: entities.Task, homes: npt.NDArray[np.intp]
    ) -> extension_points.Scores | None:
        """Score nodes by their distance to the gang's domain: the higher the tier of their lowest
        common domain, the lower the score."""
        topology = self._session.topology
        subjob = job.subjobs.get(task.subjob)
        home = topology.current_domain(job, subjob)
        if home < 0:
            return None
        tree = topology.tree
        distinct, which = np.unique(homes, return_inverse=True)
        highest, lowest = int(tree.tiers[topology_domains.ROOT_INDEX]), tree.lowest_tier
        scores = np.zeros(len(distinct), np.int64)
        for at, each in enumerate(distinct.tolist()):
            tier = int(tree.tiers[tree.common((each, home))])
            raw = 1.0 if each == home else (highest - tier) / (highest - lowest)
            there = topology.placed_in(job, each) / max(len(job.tasks), 1)
            scores[at] = round(raw * BEST * extension_points.SCORE_UNIT) + round(
                there * _TIE * BEST
            )
        weighted: extension_points.Scores = scores[which] * self._weight
        return weighted

    def _surrounding_scores(self, task: entities.Task) -> npt.NDArray[np.float64]:
        """Score the nodes of each lowest domain by how full the domains above are, with less weight
        per tier.

        A tier without a domain for the node counts as full: nodes that no gang with a constraint
        can use are used first.
        """
        tree = self._session.topology.tree
        packed = self._packed(task.request)
        tiers = sorted(set(tree.tiers[1:].tolist()))
        weights = {tier: self._fading ** (tier - tiers[0]) for tier in tiers}
        total = sum(weights.values())
        missing = np.full(len(tree), total)
        sums = np.zeros(len(tree))
        for each in range(1, len(tree)):  # Preorder: a parent comes before its children.
            parent, weight = tree.parents[each], weights[int(tree.tiers[each])]
            sums[each] = sums[parent] + weight * packed[each]
            missing[each] = missing[parent] - weight
        faded: npt.NDArray[np.float64] = (sums + missing) / total
        return faded

    def _scaled(self, raw: npt.NDArray[np.float64]) -> extension_points.Scores:
        scores: extension_points.Scores = np.rint(
            raw * (BEST * self._weight * extension_points.SCORE_UNIT)
        ).astype(np.int64)
        return scores
