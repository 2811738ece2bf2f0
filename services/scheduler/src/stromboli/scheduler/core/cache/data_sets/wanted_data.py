"""The data sets that the cache of each node should contain: the data sets of pods placed on the
node, until they end, and data sets that a session prefetches for pending gangs.

The messages are derived from the cluster model and the newest session; ``published`` has the newest
messages of the topic. Only nodes for which the two may differ are compared.
"""

from collections.abc import Iterable, Mapping

import msgspec

from stromboli.scheduler.core.cluster import cluster_model
from stromboli.scheduler.core.model import entities
from stromboli.shared.messages import data

PLACED = 1000
"""Priority of data sets of placed pods: their containers wait for them."""

Prefetches = Mapping[str, tuple[data.WantedCopy, ...]]
"""Node -> data sets for gangs that may start there."""


class WantedData:
    """The published messages, and the nodes whose message may have to change."""

    def __init__(self) -> None:
        self.published: dict[str, data.DataWanted] = {}
        self._prefetches: Prefetches = {}
        self._changed: set[str] = set()
        self._model: cluster_model.ClusterModel | None = None

    def record(self, node: str, message: msgspec.Struct | None) -> None:
        """Record the newest message of a node on the topic. Any message but a DataWanted counts as
        none."""
        known = self.published.pop(node, None)
        if isinstance(message, data.DataWanted):
            self.published[node] = message
        if known != message:
            self._changed.add(node)

    def prefetch(self, wanted_copies: Prefetches) -> None:
        """Replace the data sets that are prefetched for pending gangs."""
        before, self._prefetches = self._prefetches, wanted_copies
        nodes = before.keys() | wanted_copies.keys()
        self._changed |= {node for node in nodes if before.get(node) != wanted_copies.get(node)}

    def take_changes(self, of: cluster_model.ClusterModel) -> dict[str, data.DataWanted | None]:
        """Node -> the message to publish; None for a node that is gone and has no pods. The
        messages count as published. O(pods with data sets on changed nodes)."""
        index = of.pod_index
        nodes, self._changed = self._changed | index.data_changed, set()
        index.data_changed.clear()
        if self._model is not of:
            self._model = of
            nodes |= self.published.keys() | index.data_tasks.keys() | self._prefetches.keys()
        changes: dict[str, data.DataWanted | None] = {}
        for node in sorted(nodes):
            wanted = self._message(node, of)
            if wanted != self.published.get(node):
                changes[node] = wanted
                self.record(node, wanted)
        self._changed.clear()
        return changes

    def _message(self, node: str, of: cluster_model.ClusterModel) -> data.DataWanted | None:
        tasks = of.pod_index.data_tasks.get(node, {})
        items = {copy.key: copy for copy in self._prefetches.get(node, ())}
        items |= _of_tasks(tasks[key] for key in sorted(tasks, reverse=True))
        if not items and (node not in of.nodes.rows or node not in self.published):
            return None
        return data.DataWanted(node=node, items=tuple(items[key] for key in sorted(items)))


def _of_tasks(tasks: Iterable[entities.Task]) -> dict[str, data.WantedCopy]:
    """The data sets of placed tasks by content key; the reason names the last task."""
    return {
        request.key: data.WantedCopy(
            key=request.key,
            uri=request.uri,
            digest=request.digest,
            bytes=request.bytes,
            priority=PLACED,
            pinned=True,
            reason=f"pod {task.key}",
        )
        for task in tasks
        for request in task.task_class.data_sets
        if request.key
    }
