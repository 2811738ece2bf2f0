"""An index of the hardware of nodes, as reported by the nodes' agents."""

from collections.abc import Iterator

from stromboli.controller.core.store import job_relations
from stromboli.shared import envelope, errors, snapshot
from stromboli.shared.api import kinds, meta
from stromboli.shared.messages import node_topology


class HardwareIndex:
    """The newest report of each node, from ``cluster.topology``."""

    def __init__(self) -> None:
        self._observed: dict[str, node_topology.TopologyObserved] = {}

    def of(self, node: str) -> node_topology.TopologyObserved | None:
        """The last report of a node; None without one."""
        return self._observed.get(node)

    def items(self) -> Iterator[job_relations.ReconcileKey]:
        """All keys to reconcile after a start."""
        return (job_relations.ReconcileKey("numatopology", node) for node in sorted(self._observed))

    def apply(self, record: envelope.Record) -> tuple[tuple[job_relations.ReconcileKey, ...], str]:
        """Apply a record. Returns the keys to reconcile, and why it could not be decoded. An
        unreadable report changes no object."""
        self._observed.pop(record.key, None)
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            return (), error.reason
        if not isinstance(message, node_topology.TopologyObserved):
            return (), ""
        self._observed[record.key] = message
        return (job_relations.ReconcileKey("numatopology", record.key),), ""

    def follow(self, change: snapshot.Change) -> Iterator[job_relations.ReconcileKey]:
        """Apply a change of the cache. Returns the keys to reconcile."""
        if change.key not in self._observed:
            return
        if change.kind is kinds.NUMA_TOPOLOGIES or (
            change.kind is kinds.NODES and _uid(change.before) != _uid(change.after)
        ):
            yield job_relations.ReconcileKey("numatopology", change.key)


def _uid(state: snapshot.State) -> str:
    return state.metadata.uid if isinstance(state, meta.Object) else ""
