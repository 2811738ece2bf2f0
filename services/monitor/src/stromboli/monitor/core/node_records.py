"""The last records that this monitor publishes about nodes from the reports of their agents.

Pure: time is an argument. Only changes are published. If an agent stops reporting, its last report
stays, marked with its time, so that readers know its age. The report of a deleted node is deleted.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from stromboli.shared import envelope, errors, topics
from stromboli.shared.messages import data, node_topology, node_usage

M = TypeVar("M", node_topology.TopologyObserved, data.DataObserved, node_usage.UsageObserved)


class PublishedReport(msgspec.Struct, Generic[M], frozen=True):
    """A node's report on the topic. ``digest``: identifies the report's bytes as received, in
    heartbeats. ``published_at``: when its record was made.
    """

    observed: M
    last_report_at: datetime
    published_at: datetime
    digest: str = ""


class NodeRecords(Generic[M]):
    """The last record of each node on ``topic``. ``silence``: time without a report after which an
    agent counts as silent. A step costs O(1), a tick O(nodes).
    """

    topic: topics.Topic

    def __init__(
        self, message: type[M], silence: timedelta, observed_at: Callable[[M], datetime]
    ) -> None:
        self._message: type[M] = message
        self._silence = silence
        self._observed_at: Callable[[M], datetime] = observed_at
        self._known: dict[str, PublishedReport[M]] = {}
        self._overwritten: set[str] = set()
        """Nodes whose last record in the topic is dropped by readers, or cannot be decoded."""

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
        if isinstance(message, self._message):
            at = self._observed_at(message)
            self._known[record.key] = PublishedReport(message, at, at)
        else:
            self._known.pop(record.key, None)

    def mark_overwritten(self, key: str) -> None:
        """Record that a replaced writer's record is the last one of this key, until we publish it
        again.
        """
        self._overwritten.add(key)

    def open(self, now: datetime) -> None:
        """Start the timeouts of the agents that were not silent in the log, after it has been read.
        They start now, because no monitor received reports meanwhile.
        """
        self._known = {
            node: msgspec.structs.replace(known, last_report_at=now)
            for node, known in self._known.items()
        }

    # --- time ------------------------------------------------------------------------------

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
                    self._draft_change(PublishedReport(observed, known.last_report_at, now), now)
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

    def _draft_change(self, known: PublishedReport[M], now: datetime) -> envelope.Draft:
        node = known.observed.node
        self._known[node] = known
        self._overwritten.discard(node)
        return envelope.Draft(topic=self.topic, key=node, message=known.observed, time=now)

    def _draft_deletion(self, node: str, now: datetime) -> envelope.Draft:
        self._known.pop(node, None)
        self._overwritten.discard(node)
        return envelope.Draft(topic=self.topic, key=node, message=None, time=now)
