"""Decides which reports of nodes' data caches are published on ``cluster.data``.

Pure: reports in, drafts out; time is an argument. A change that matters for placement is published
immediately: another state, size or digest of a copy, or a removed copy. The progress of fetches,
rates and sizes of the cache change with every report and are published at most every
``PROGRESS``.
"""

from datetime import datetime, timedelta

import msgspec

from stromboli.monitor.core import node_records
from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.messages import base, data

PROGRESS = timedelta(seconds=10)
"""Minimum time between two records of a node that differ only in progress: a thousand nodes that
fetch are a hundred records a second."""
MOST_COPIES = 4096
"""Copies in a report: its record takes about a megabyte."""


class DataReports(node_records.NodeRecords[data.DataObserved]):
    """The last reports of the data caches of all nodes. ``silence``: time without a report after
    which a cache counts as silent."""

    topic = topics.DATA

    def __init__(self, silence: timedelta) -> None:
        super().__init__(data.DataObserved, silence, lambda message: message.observed_at)

    def report(
        self, node: str, observed: data.DataObserved, now: datetime
    ) -> envelope.Draft | None:
        """Apply a cache's report; None if it is not published, or not yet: caches repeat
        their reports. The monitor sets node and time, since it does not trust agents' clocks."""
        fresh = msgspec.structs.replace(observed, node=node, observed_at=now, silent_since=None)
        before = self._known.get(node)
        if before is not None and node not in self._overwritten:
            is_same = _at(before.observed, now) == fresh
            is_early = timedelta() <= now - before.published_at < PROGRESS
            if is_same or (is_early and _essentials(before.observed) == _essentials(fresh)):
                self._known[node] = msgspec.structs.replace(before, last_report_at=now)
                return None
        return self._draft_change(node_records.PublishedReport(fresh, now, now), now)


class WantedData:
    """The data that the scheduler wants on each node, from ``scheduling.data``. A record that
    cannot be decoded changes nothing: an unknown list is not an empty one."""

    def __init__(self) -> None:
        self._wanted: dict[str, data.DataWanted] = {}
        self.unreadable: dict[str, str] = {}
        """Node -> why its last record cannot be decoded."""

    def apply(self, record: envelope.Record) -> None:
        """Apply an accepted record. Call it in the order of the topic."""
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            self.unreadable[record.key] = error.reason
            return
        self.unreadable.pop(record.key, None)
        if isinstance(message, data.DataWanted):
            self._wanted[record.key] = message
        elif message is None:
            self._wanted.pop(record.key, None)

    def of(self, node: str) -> data.DataWanted | None:
        """The data that a node should have; None if unknown, because its record is unreadable and
        no earlier one is known."""
        known = self._wanted.get(node)
        if known is None and node in self.unreadable:
            return None
        return known or data.DataWanted(node=node)


def read(node: str, body: bytes) -> data.DataObserved:
    """Decode the report of a node's cache. Raises msgspec.DecodeError, also if the report
    is about another node, has too many copies, or cannot be encoded as a record."""
    data_observed = decoding.decode(_DECODER, body)
    if data_observed.node != node:
        raise msgspec.DecodeError(
            f"it is about node {data_observed.node[:253]!r}, not about {node}"
        )
    if len(data_observed.copies) > MOST_COPIES:
        raise msgspec.DecodeError(
            f"it has {len(data_observed.copies)} copies, at most {MOST_COPIES} are allowed"
        )
    try:
        base.encode(data_observed)
    except (TypeError, ValueError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return data_observed


def _at(observed: data.DataObserved, now: datetime) -> data.DataObserved:
    return msgspec.structs.replace(observed, observed_at=now)


def _essentials(observed: data.DataObserved) -> tuple[object, ...]:
    """The part of a report that matters for placement, without progress, rates and sizes."""
    copies = tuple(
        (
            copy.key, copy.uri, copy.digest, copy.bytes, copy.state, copy.in_use,
            copy.reason if copy.state == "Failed" else "",
        )
        for copy in observed.copies
    )  # fmt: skip
    return observed.silent_since, copies


_DECODER = decoding.decoder_of(data.DataObserved)
