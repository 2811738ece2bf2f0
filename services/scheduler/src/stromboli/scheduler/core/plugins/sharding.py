"""The plugin ``sharding``: several schedulers divide the nodes of a cluster.

A NodeShard names the nodes of a scheduler; nodes that another scheduler still uses are left out.
Mode ``hard`` excludes all other nodes; ``soft`` uses them only if no node of the shard is feasible.
Volcano has process flags for both; here they are plugin arguments.
"""

import numpy as np

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points

NAME = "sharding"
OUTSIDE = "node(s) are not in this scheduler's NodeShard"
MODES = ("none", "hard", "soft")
PREFERRED = 2**55
"""More than the sum of all other scores."""


class Plugin:
    """Arguments: ``sharding.mode`` (none, hard, soft) and ``sharding.name``, the NodeShard."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._mode = self._arguments.text("sharding.mode", "none")
        self._name = self._arguments.text("sharding.name", "volcano")

    def open(self, ssn: session.Session) -> None:
        """Find the nodes of this scheduler, and register."""
        ssn.complaints.extend(self._arguments.complaints)
        if self._mode not in MODES:
            ssn.complaints.append(
                f"plugin {NAME}: arguments.sharding.mode: {self._mode!r} is not one of "
                f"{', '.join(MODES)}; 'none' is used"
            )
            return
        if self._mode == "none":
            return
        ours = self._nodes(ssn)
        self._mask = np.array([name in ours for name in ssn.nodes.names], np.bool_)
        if self._mode == "hard":
            ssn.add_predicate(self._check, extension_points.Scope.STATIC)
        else:
            ssn.add_node_order(self._score, extension_points.Scope.STATIC)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _nodes(self, ssn: session.Session) -> set[str]:
        """Return the nodes of the shard without nodes that other schedulers still use; none if
        there is no shard."""
        shards = {shard.metadata.name: shard for shard in ssn.cluster.node_shards}
        own = shards.pop(self._name, None)
        if own is None:
            ssn.complaints.append(f"plugin {NAME}: NodeShard {self._name} does not exist")
            return set()
        used = {name for other in shards.values() for name in other.status.nodes_in_use}
        return set(own.spec.nodes_desired) - used

    def _check(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        # Eviction does not help: the node belongs to another scheduler.
        inside = self._mask[view.rows]
        return [
            extension_points.Check(OUTSIDE, extension_points.Code.ERROR, inside, is_lasting=True)
        ]

    def _score(self, task: entities.Task, view: node_views.NodeView) -> extension_points.Scores:
        scores: extension_points.Scores = self._mask[view.rows].astype(np.int64) * PREFERRED
        return scores
