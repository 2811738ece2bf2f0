"""Where nodes lie on the network, as HyperNodes say: an index of the cache.

Only what places hang on is kept: a node's labels and a HyperNode's spec. Their statuses change all
the time, and nothing is made anew for them.
"""

from collections.abc import Iterator, Mapping

from stromboli.controller.core.store import job_relations
from stromboli.shared import network_topology, snapshot
from stromboli.shared.api import core, kinds, topology

STATUS = job_relations.ReconcileKey("hyper nodes", "")
"""What stands in the status of all HyperNodes is looked at as one: one node can change many."""


class TopologyIndex:
    """Follows nodes and HyperNodes."""

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
        """The tree; made anew after a change in O(HyperNodes log HyperNodes + members)."""
        if self._layout is None:
            self._layout = network_topology.layout(self._hyper_nodes.values(), self._labels)
        return self._layout

    def follow(self, change: snapshot.Change) -> Iterator[job_relations.ReconcileKey]:
        """Take in a change of the cache: what is to be looked at for it."""
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
            found = change.after if isinstance(change.after, topology.HyperNode) else None
            before = self._hyper_nodes.get(change.key)
            _set(self._hyper_nodes, change.key, found)
            if before is None or found is None or before.spec != found.spec:
                self._layout = None
                yield from (
                    job_relations.ReconcileKey("discovery", source)
                    for source in job_relations.SOURCES
                )
            yield STATUS


def _set(known: dict[str, job_relations.T], key: str, now: job_relations.T | None) -> bool:
    """Whether it changed."""
    before = known.pop(key, None)
    if now is not None:
        known[key] = now
    return before != now
