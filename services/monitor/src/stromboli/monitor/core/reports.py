"""Agents' reports of their nodes, and what is published on ``cluster.topology``.

Pure: reports and heartbeats in, drafts out; time is an argument. Only changes are published. The
last report of an agent that stops sending heartbeats stays, marked with the time of its last
heartbeat, so that readers know its age. The report of a deleted node is deleted.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.messages import base, node_topology


class PublishedReport(msgspec.Struct, frozen=True):
    """A node's report on the topic. ``digest``: of the report's bytes as received, which heartbeats
    contain.
    """

    observed: node_topology.TopologyObserved
    last_report_at: datetime
    digest: str = ""


class NodeReports:
    """The last reports of all node agents. ``silence``: time without a report or heartbeat after
    which an agent counts as silent. A step costs O(1), a tick O(nodes).
    """

    topic = topics.TOPOLOGY

    def __init__(self, silence: timedelta) -> None:
        self._silence = silence
        self._known: dict[str, PublishedReport] = {}
        self._overwritten: set[str] = set()
        """Nodes whose last record in the topic is one that readers drop, or that cannot be
        decoded.
        """

    # --- the log ---------------------------------------------------------------------------

    def apply(self, record: envelope.Record) -> None:
        """Apply an accepted record. Call it in the order of the topic."""
        self._overwritten.discard(record.key)
        try:
            message = envelope.decode(record)
        except errors.UndecodableError:
            self._known.pop(record.key, None)
            self._overwritten.add(record.key)
            return
        if isinstance(message, node_topology.TopologyObserved):
            self._known[record.key] = PublishedReport(message, message.at)
        else:
            self._known.pop(record.key, None)

    def overwrite(self, key: str) -> None:
        """Record that a replaced writer's record is the last one of this key, until we publish it
        again.
        """
        self._overwritten.add(key)

    def open(self, now: datetime) -> None:
        """Start the timeouts of the agents that were not silent in the log, after it has been read.
        They start now, because no monitor received heartbeats meanwhile.
        """
        self._known = {
            node: msgspec.structs.replace(known, last_report_at=now)
            for node, known in self._known.items()
        }

    # --- agents ----------------------------------------------------------------------------

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
            self._known[node] = PublishedReport(before.observed, now, digest)
            return None
        observed = node_topology.TopologyObserved(node=node, at=now, topology=topology)
        return self._draft_change(PublishedReport(observed, now, digest), now)

    def heartbeat(self, node: str, digest: str, now: datetime) -> bool:
        """Apply a heartbeat; returns whether the report it names is the current one, so that it
        need not be sent again.
        """
        known = self._known.get(node)
        if known is None or known.observed.silent_since is not None or known.digest != digest:
            return False
        self._known[node] = msgspec.structs.replace(known, last_report_at=now)
        return True

    def tick(self, now: datetime, is_there: Callable[[str], bool]) -> list[envelope.Draft]:
        """The drafts of agents that became silent, of deleted nodes, and of overwritten keys.
        ``is_there``: false only if the node is known to be absent.
        """
        drafts = []
        for node in sorted(self._known.keys() | self._overwritten):
            known = self._known.get(node)
            if known is None or not is_there(node):
                drafts.append(self._draft_deletion(node, now))
            elif known.observed.silent_since is None and now - known.last_report_at > self._silence:
                observed = msgspec.structs.replace(
                    known.observed, silent_since=known.last_report_at
                )
                drafts.append(
                    self._draft_change(PublishedReport(observed, known.last_report_at), now)
                )
            elif node in self._overwritten:
                drafts.append(self._draft_change(known, now))
        return drafts

    def silent(self) -> dict[str, datetime]:
        """Nodes whose agents are silent, and since when."""
        return {
            node: known.observed.silent_since
            for node, known in sorted(self._known.items())
            if known.observed.silent_since is not None
        }

    def _draft_change(self, known: PublishedReport, now: datetime) -> envelope.Draft:
        node = known.observed.node
        self._known[node] = known
        self._overwritten.discard(node)
        return envelope.Draft(topic=self.topic, key=node, message=known.observed, time=now)

    def _draft_deletion(self, node: str, now: datetime) -> envelope.Draft:
        self._known.pop(node, None)
        self._overwritten.discard(node)
        return envelope.Draft(topic=self.topic, key=node, message=None, time=now)


def read(body: bytes) -> node_topology.NodeTopology:
    """Decode an agent's report. Raises msgspec.DecodeError, also for one that no record can
    hold.
    """
    found = decoding.decode(_DECODER, body)
    try:
        base.encode(found)
    except (TypeError, ValueError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return found


_DECODER = msgspec.json.Decoder(node_topology.NodeTopology)
