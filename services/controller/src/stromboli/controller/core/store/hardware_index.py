"""What nodes' agents say of their machines: an index of the cache."""

from collections.abc import Iterator

from stromboli.controller.core.store import job_relations
from stromboli.shared import envelope, errors, snapshot
from stromboli.shared.api import kinds, meta
from stromboli.shared.messages import node_topology


class HardwareIndex:
    """Follows ``cluster.topology``, and the objects that hang on it."""

    def __init__(self) -> None:
        self._observed: dict[str, node_topology.TopologyObserved] = {}

    def of(self, node: str) -> node_topology.TopologyObserved | None:
        """What was last said of a node."""
        return self._observed.get(node)

    def items(self) -> Iterator[job_relations.ReconcileKey]:
        """Everything to look at after a start."""
        return (job_relations.ReconcileKey("numatopology", node) for node in sorted(self._observed))

    def apply(self, record: envelope.Record) -> tuple[tuple[job_relations.ReconcileKey, ...], str]:
        """Fold a record: what is to be looked at, and why it could not be read. Of what cannot be
        read nothing is known, so that nothing is written for it."""
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
        """Take in a change of the cache: what is to be looked at for it."""
        if change.key not in self._observed:
            return
        if change.kind is kinds.NUMA_TOPOLOGIES or (
            change.kind is kinds.NODES and _uid(change.before) != _uid(change.after)
        ):
            yield job_relations.ReconcileKey("numatopology", change.key)


def _uid(state: snapshot.State) -> str:
    return state.metadata.uid if isinstance(state, meta.Object) else ""
