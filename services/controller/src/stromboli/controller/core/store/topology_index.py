"""The network topology: an index of nodes' labels and HyperNodes' specs.

Statuses are ignored: they change often, and the topology does not depend on them.
"""

from collections.abc import Iterator, Mapping

from stromboli.controller.core.store import job_relations
from stromboli.shared import network_topology, snapshot
from stromboli.shared.api import core, kinds, topology

STATUS = job_relations.ReconcileKey("hyper nodes", "")
"""The reconcile key for the status of all HyperNodes, since one node can change many of them."""


class TopologyIndex:
    """The labels of nodes and the specs of HyperNodes, and the tree that results from them."""

    def __init__(self) -> None:
        self._labels: dict[str, network_topology.Labels] = {}
        self._hyper_nodes: dict[str, topology.HyperNode] = {}
        self._layout: network_topology.Layout | None = None

    @property
    def labels(self) -> Mapping[str, network_topology.Labels]:
        """Labels of every readable node."""
        return self._labels

    @property
    def layout(self) -> network_topology.Layout:
        """The tree of HyperNodes. After a change it is rebuilt in O(HyperNodes log HyperNodes +
        members)."""
        if self._layout is None:
            self._layout = network_topology.layout(self._hyper_nodes.values(), self._labels)
        return self._layout

    def follow(self, change: snapshot.Change) -> Iterator[job_relations.ReconcileKey]:
        """Apply a change of the cache. Returns the keys to reconcile."""
        if change.kind is kinds.NODES:
            after = change.after
            labels = (after.metadata.labels or {}) if isinstance(after, core.Node) else None
            if _set(self._labels, change.key, labels):
                self._layout = None
                yield STATUS
                yield from (
                    job_relations.ReconcileKey("discovery", source)
                    for source in job_relations.SOURCES
                )
        elif change.kind is kinds.HYPER_NODES:
            hyper_node = change.after if isinstance(change.after, topology.HyperNode) else None
            before = self._hyper_nodes.get(change.key)
            _set(self._hyper_nodes, change.key, hyper_node)
            if before is None or hyper_node is None or before.spec != hyper_node.spec:
                self._layout = None
                yield from (
                    job_relations.ReconcileKey("discovery", source)
                    for source in job_relations.SOURCES
                )
            yield STATUS


def _set(known: dict[str, job_relations.T], key: str, now: job_relations.T | None) -> bool:
    """Set or delete an entry. Returns whether it changed."""
    before = known.pop(key, None)
    if now is not None:
        known[key] = now
    return before != now
