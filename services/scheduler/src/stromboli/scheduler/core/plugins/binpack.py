"""The plugin ``binpack``: scores nodes higher the fuller they are."""

import numpy as np

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points

BEST = 100


class Plugin:
    """Scores nodes by the weighted fraction of resources used once the task is placed."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = arguments = options.typed()
        self._weight = arguments.integer("binpack.weight", 1)
        self._weights = {
            name: _not_negative(arguments.integer(f"binpack.{name}", 1))
            for name in ("cpu", "memory")
        }
        for name in arguments.text("binpack.resources", "").split(","):
            if name.strip():
                weight = arguments.integer(f"binpack.resources.{name.strip()}", 1)
                self._weights[name.strip()] = _not_negative(weight)

    def open(self, ssn: session.Session) -> None:
        """Register, unless the plugin has no weight."""
        ssn.complaints.extend(self._arguments.complaints)
        self._columns = {
            column: weight
            for name, weight in self._weights.items()
            if (column := ssn.resources.known(name)) is not None
        }
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
        asked = [column for column in self._columns if task.request[column] > 0]
        total_weight = sum(self._columns[column] for column in asked)
        if total_weight == 0:
            return None
        allocatable = view.allocatable[asked]
        used = view.used[asked] + task.request[asked][:, np.newaxis]
        weights = np.array([[self._columns[column]] for column in asked], np.float64)
        counts = (allocatable > 0) & (weights > 0)
        parts = np.divide(used * weights, allocatable, out=np.zeros(used.shape), where=counts)
        fits = np.all((used <= allocatable) | ~counts, axis=0)
        points_each = parts.sum(axis=0) / total_weight * (BEST * self._weight)
        scores: extension_points.Scores = np.rint(points_each * extension_points.SCORE_UNIT).astype(
            np.int64
        )
        return np.where(fits, scores, 0)


def _not_negative(weight: int) -> int:
    """Return the weight; 1 for a negative one, which is invalid."""
    return weight if weight >= 0 else 1
