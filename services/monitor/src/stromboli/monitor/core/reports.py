"""Agents' reports of their nodes' hardware, and what is published on ``cluster.topology``.

Pure: reports and heartbeats in, drafts out; time is an argument. ``node_records`` has the rules of
what is published.
"""

from datetime import datetime, timedelta

import msgspec

from stromboli.monitor.core import node_records
from stromboli.shared import decoding, envelope, topics
from stromboli.shared.messages import base, node_topology


class NodeReports(node_records.NodeRecords[node_topology.TopologyObserved]):
    """The last reports of all node agents. ``silence``: time without a report or heartbeat after
    which an agent counts as silent.
    """

    topic = topics.TOPOLOGY

    def __init__(self, silence: timedelta) -> None:
        super().__init__(node_topology.TopologyObserved, silence, lambda message: message.at)

    def report(
        self, node: str, topology: node_topology.NodeTopology, digest: str, now: datetime
    ) -> envelope.Draft | None:
        """Apply an agent's report; None if it is unchanged."""
        before = self._known.get(node)
        if (
            before is not None
            and before.observed.topology == topology
            and before.observed.silent_since is None
            and node not in self._overwritten
        ):
            self._known[node] = msgspec.structs.replace(before, last_report_at=now, digest=digest)
            return None
        observed = node_topology.TopologyObserved(node=node, at=now, topology=topology)
        return self._draft_change(node_records.PublishedReport(observed, now, now, digest), now)

    def heartbeat(self, node: str, digest: str, now: datetime) -> bool:
        """Apply a heartbeat; returns whether the report it names is the current one, so that it
        need not be sent again.
        """
        known = self._known.get(node)
        if known is None or known.observed.silent_since is not None or known.digest != digest:
            return False
        self._known[node] = msgspec.structs.replace(known, last_report_at=now)
        return True


def read(body: bytes) -> node_topology.NodeTopology:
    """Decode an agent's report. Raises msgspec.DecodeError, also if the report cannot be
    encoded as a record.
    """
    topology = decoding.decode(_DECODER, body)
    try:
        base.encode(topology)
    except (TypeError, ValueError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return topology


_DECODER = decoding.decoder_of(node_topology.NodeTopology)
