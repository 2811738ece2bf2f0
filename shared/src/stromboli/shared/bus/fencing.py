"""Fencing: readers drop the records of a writer that a later one has replaced.

A writer's *epoch* is its fencing token: a number in the id of each of its records. Rules, which
writers and readers compute alike:

1. A writer appends ``opened`` to its main topic. The record carries ``floor``, one more than the
   highest epoch on any topic of that writer. The epoch is max(offset, floor). A writer that finds
   another ``opened`` between its reading of the floor and its own record opens again, so each
   ``opened`` that is used determines its epoch without its predecessors, which retention and
   compaction remove.
2. So epochs never go back, also where a topic was deleted and created again: another topic of the
   same writer still shows the highest one.
3. As it opens, the writer announces its epoch on each of its other topics (``EpochAnnounced``),
   and again where a topic was deleted and created again.
4. Readers drop a record whose epoch is lower than the highest one of its topic (a paused writer
   that wakes up), and one whose epoch is higher but not announced (garbage, or a forgery): either
   would otherwise decide who is read. Where records are missing between two that were read
   (compaction, retention, a start in the middle), an announcement may be among them; there a
   higher epoch is accepted.
5. Readers begin anew with a topic only when its identity has changed: it was deleted and created
   again.

6. Readers drop a record that names another Kubernetes cluster (``ce_cluster``), whatever its
   epoch: two clusters that were given the same name's topics by mistake do not mix, and a foreign
   ``opened`` replaces no writer of ours. Topics that external clients write are exempt.

Admission's replicas act side by side: on their topics only rule 6 applies.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import structlog

from stromboli.shared import envelope, topics
from stromboli.shared.messages import log
from stromboli.shared.runtime import telemetry

_log = structlog.get_logger(__name__)

_foreign_records = telemetry.meter.create_counter(
    "stromboli.log.foreign_records", description="Records of another cluster on topics of this one"
)

TAIL_RECORDS = 32
"""Records at a topic's end in which an opening writer looks for the highest epoch: what a replaced
writer appends behind its successor is a few records, until it notices."""


class Fence:
    """Decides record by record. O(1).

    ``cluster_name``: the cluster whose records are accepted.
    ``epochs``: topic name -> the highest epoch accepted already. ``positions``: topic name -> the
    offset from which reading goes on without a gap.
    """

    def __init__(
        self,
        cluster_name: str,
        epochs: Mapping[str, int] | None = None,
        positions: Mapping[str, int] | None = None,
    ) -> None:
        self._cluster_name = cluster_name
        self._highest = dict(epochs or {})
        self._next = dict(positions or {})

    @property
    def accepted(self) -> dict[str, int]:
        """Topic name -> the highest epoch accepted so far."""
        return dict(self._highest)

    def forget(self, topic: topics.Topic) -> None:
        """The topic is another one than before under the same name."""
        self._highest.pop(topic.name, None)
        self._next.pop(topic.name, None)

    def passes(self, record: envelope.Record) -> bool:
        """Whether the record counts. A record without an epoch of ours passes: it will not decode
        as one of our messages and makes its key unknown, which must not go unnoticed."""
        topic = record.topic
        if is_foreign(record, self._cluster_name):
            _foreign_records.add(1, {"topic": topic.name})
            _log.warning(
                "record of another cluster",
                topic=topic.name,
                offset=record.offset,
                id=record.id,
                cluster=record.cluster_name,
            )
            if self._next.get(topic.name) == record.offset:
                self._next[topic.name] = record.offset + 1
            return False
        if not topic.is_fenced:
            return True
        has_gap = self._next.get(topic.name) != record.offset
        self._next[topic.name] = record.offset + 1
        epoch = record.epoch
        if epoch is None:
            return True
        highest = self._highest.get(topic.name)
        if highest is not None and epoch < highest:
            return False
        if highest is not None and epoch > highest and not has_gap and not announces(record):
            _log.warning(
                "epoch was not announced",
                topic=topic.name,
                offset=record.offset,
                id=record.id,
                highest=highest,
            )
            return False
        self._highest[topic.name] = epoch
        return True

    def split(
        self, records: Iterable[envelope.Record]
    ) -> tuple[list[envelope.Record], list[envelope.Record]]:
        """Records that count, and those that do not; announcements are in neither."""
        accepted: list[envelope.Record] = []
        fenced: list[envelope.Record] = []
        for record in records:
            passes = self.passes(record)
            if not is_announcement(record):
                (accepted if passes else fenced).append(record)
        return accepted, fenced


def is_foreign(record: envelope.Record, cluster_name: str) -> bool:
    """Whether a record on a topic of our services is of another Kubernetes cluster."""
    if record.topic.writer == topics.OUTSIDE:
        return False
    return record.cluster_name not in ("", cluster_name)


def announces(record: envelope.Record) -> bool:
    """Whether a record may raise the epoch of its topic."""
    return is_announcement(record) or (record.topic.main and record.type == log.OPENED)


def is_announcement(record: envelope.Record) -> bool:
    """Whether a record is the log's own business and no message of its topic."""
    return record.topic.is_announced and record.type == log.ANNOUNCED


def floor(records: Iterable[envelope.Record]) -> int:
    """What a writer's ``opened`` has to say, given the last records of all its topics."""
    epochs = (record.epoch for record in records)
    return max((epoch for epoch in epochs if epoch is not None), default=-1) + 1


def opening(service: topics.Service, instance: str, at_least: int, now: datetime) -> envelope.Draft:
    """The draft that opens a writer."""
    return envelope.Draft(
        topic=topics.MAIN[service],
        key=log.OPENED_KEY,
        message=log.Opened(writer=service, instance=instance, floor=at_least),
        time=now,
    )


def announcements(
    wanted: Iterable[topics.Topic], service: topics.Service, instance: str, now: datetime
) -> list[envelope.Draft]:
    """The drafts that go before a writer's first records on other topics than the main one."""
    message = log.EpochAnnounced(writer=service, instance=instance)
    return [
        envelope.Draft(topic=topic, key=log.ANNOUNCED_KEY, message=message, time=now)
        for topic in wanted
    ]
