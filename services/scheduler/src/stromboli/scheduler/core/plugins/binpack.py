"""The plugin ``binpack``: scores nodes higher the fuller they are."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views, resource_vectors
from stromboli.scheduler.core.placement import extension_points

BEST = 100


class Plugin:
    """Scores nodes by the weighted fraction of resources used once the task is placed."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = arguments = options.typed()
        self._weight = arguments.integer("binpack.weight", 1)
        self._weights = {
            name: arguments.integer(f"binpack.{name}", 1, least=0) for name in ("cpu", "memory")
        }
        for name in arguments.text("binpack.resources", "").split(","):
            if name.strip():
                self._weights[name.strip()] = arguments.integer(
                    f"binpack.resources.{name.strip()}", 1, least=0
                )

    def open(self, ssn: session.Session) -> None:
        """Register, unless the plugin has no weight."""
        ssn.complaints.extend(self._arguments.complaints)
        self._columns = {
            column: weight
            for name, weight in self._weights.items()
            if (column := ssn.resources.known(name)) is not None
        }
        self._nodes = ssn.nodes
        self._packed: dict[tuple[int, ...], _Packed] = {}
        if self._weight != 0:
            ssn.add_node_order(self._score)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _score(
        self, task: entities.Task, view: node_views.NodeView
    ) -> extension_points.Scores | None:
        """Return the scores. A node on which a requested resource overflows has zero: only room
        that is being released makes it a candidate.

        A resource that a node lacks counts as unused.
        """
        requested = tuple(column for column in self._columns if task.request[column] > 0)
        total_weight = sum(self._columns[column] for column in requested)
        if total_weight == 0:
            return None
        packed = self._packed.get(requested)
        if packed is None:
            packed = self._packed[requested] = self._pack(requested)
        columns = list(requested)
        used = view.used[columns] + task.request[columns, np.newaxis]
        allocatable, counts = packed.allocatable[:, view.rows], packed.counts[:, view.rows]
        parts = used * packed.weights
        if packed.is_everywhere:
            parts /= allocatable
            fits = np.logical_and.reduce(used <= allocatable, axis=0)
        else:
            parts = np.divide(parts, allocatable, out=np.zeros(used.shape), where=counts)
            fits = np.all((used <= allocatable) | ~counts, axis=0)
        points = np.add.reduce(parts, axis=0)
        points /= total_weight
        points *= BEST * self._weight
        points *= extension_points.SCORE_UNIT
        scores: extension_points.Scores = np.rint(points, out=points).astype(np.int64)
        scores *= fits
        return scores

    def _pack(self, requested: tuple[int, ...]) -> "_Packed":
        weights = np.array([[self._columns[column]] for column in requested], np.float64)
        allocatable = self._nodes.allocatable[list(requested)]
        counts = (allocatable > 0) & (weights > 0)
        return _Packed(weights, allocatable, counts, bool(counts.all()))


class _Packed(NamedTuple):
    """The part of the scores' input that does not change within a session, for some columns.
    ``counts``: where a node has a resource with a weight; ``is_everywhere``: all nodes have all."""

    weights: npt.NDArray[np.float64]
    allocatable: resource_vectors.Table
    counts: npt.NDArray[np.bool_]
    is_everywhere: bool
