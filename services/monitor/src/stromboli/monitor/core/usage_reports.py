"""Agents' reports of the loads of their nodes, and what is published on ``cluster.usage``.

Pure: reports in, drafts out; time is an argument. A load changes with every report. It is published
when it differs noticeably from the published one, at most once in ``LEAST_APART`` for a node: ten
thousand nodes are at most 167 records a second, and far fewer while loads are steady.
"""

from datetime import datetime, timedelta

import msgspec

from stromboli.monitor.core import io_load, node_records
from stromboli.shared import decoding, envelope, topics
from stromboli.shared.messages import base, node_usage

LEAST_APART = timedelta(seconds=60)
"""Minimum time between two records of a node: the period over which loads are averaged."""
LONGEST_NAME = 64
"""Maximum characters of a device's name; Linux allows 32."""


class UsageReports(node_records.NodeRecords[node_usage.UsageObserved]):
    """The last loads of all nodes. ``silence``: time without a report after which an agent counts
    as silent, and its node's loads as unknown."""

    topic = topics.USAGE

    def __init__(self, silence: timedelta) -> None:
        super().__init__(node_usage.UsageObserved, silence, lambda message: message.observed_at)

    def report(self, node: str, usage: node_usage.NodeLoad, now: datetime) -> envelope.Draft | None:
        """Apply a report; None if it is not published, or not yet: agents repeat reports."""
        before = self._known.get(node)
        if (
            before is not None
            and before.observed.silent_since is None
            and node not in self._overwritten
        ):
            is_early = timedelta() <= now - before.published_at < LEAST_APART
            if is_early or not io_load.is_news(before.observed.usage, usage):
                self._known[node] = msgspec.structs.replace(before, last_report_at=now)
                return None
        observed = node_usage.UsageObserved(node=node, observed_at=now, usage=usage)
        return self._draft_change(node_records.PublishedReport(observed, now, now), now)


def read(body: bytes) -> node_usage.NodeLoad:
    """Decode an agent's report. Raises msgspec.DecodeError, also for loads outside of 0 to 100, and
    if the report cannot be encoded as a record."""
    node_load = decoding.decode(_DECODER, body)
    for each in (node_load.disk, node_load.network):
        if each is None:
            continue
        if not 0 <= each.percent <= 100:
            raise msgspec.DecodeError(f"a load of {each.percent} % is not between 0 and 100")
        if len(each.busiest) > LONGEST_NAME:
            raise msgspec.DecodeError(
                f"the name of a device has {len(each.busiest)} characters, at most "
                f"{LONGEST_NAME} are allowed"
            )
    try:
        base.encode(node_load)
    except (TypeError, ValueError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return node_load


_DECODER = decoding.decoder_of(node_usage.NodeLoad)
