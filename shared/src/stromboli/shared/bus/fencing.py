"""Fencing: readers drop records of replaced writers and of other clusters.

A writer's *epoch* is its fencing token: a number in the id of each of its records. Writers and
readers apply the same rules:

1. A writer appends ``opened`` to its main topic. The record carries ``floor``, one more than the
   highest epoch on any topic of that writer. The epoch is max(offset, floor). If another ``opened``
   was appended between reading the floor and its own record, the writer opens again. So each
   ``opened`` in use determines its epoch without the earlier ones, which retention and compaction
   remove.
2. Hence epochs never decrease, even if a topic is deleted and created again: the other topics of
   the same writer still contain the highest epoch.
3. When it opens, the writer announces its epoch on each of its other topics (``EpochAnnounced``),
   and again on a topic that was deleted and created again.
4. Readers drop a record whose epoch is lower than the highest one of its topic (a paused writer
   that resumes), and a record whose epoch is higher but was not announced (garbage or a forgery).
   Where records are missing between two that were read (compaction, retention, a start in the
   middle), an announcement may be among them; a higher epoch is accepted there.
5. Readers reset a topic's epochs only when its topic id has changed: it was deleted and created
   again.
6. Readers drop a record that names another Kubernetes cluster (``ce_cluster``), whatever its epoch:
   so two clusters that share topics by mistake do not affect each other, and ``opened`` of another
   cluster fences no writer of this cluster. Topics of external clients are exempt.

Admission's replicas write concurrently: only rule 6 applies to their topics. A service without a
main topic writes dead letters only, which are not fenced; its epoch, the time at which it opens the
writer, makes the ids of its records unique.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import structlog

from stromboli.shared import envelope, topics
from stromboli.shared.messages import log
from stromboli.shared.runtime import telemetry

_log = structlog.get_logger(__name__)

_foreign_records = telemetry.meter.create_counter(
    "stromboli.log.foreign_records", description="Records of another cluster on topics of this one"
)

_START, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
TAIL_RECORDS = 32
"""Number of records at a topic's end in which an opening writer looks for the highest epoch. A
replaced writer appends only a few records after its successor's before it detects the
replacement."""


class Fence:
    """Decides for each record whether readers accept it. O(1) per record.

    ``cluster_name``: the cluster whose records are accepted. ``epochs``: topic name -> the highest
    epoch accepted so far. ``positions``: topic name -> the offset from which reading continues
    without a gap.
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
        """Reset a topic that was deleted and created again."""
        self._highest.pop(topic.name, None)
        self._next.pop(topic.name, None)

    def accepts(self, record: envelope.Record) -> bool:
        """Whether the record is accepted. A record without a valid epoch is accepted: it does not
        decode as a message, and readers must mark its key as *unknown*."""
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
    ) -> tuple[list[envelope.Record], list[envelope.Record], list[envelope.Record]]:
        """Accepted and dropped records, and announcements, which are in neither of the two."""
        accepted: list[envelope.Record] = []
        fenced: list[envelope.Record] = []
        announced: list[envelope.Record] = []
        for record in records:
            passes = self.accepts(record)
            if is_announcement(record):
                announced.append(record)
            else:
                (accepted if passes else fenced).append(record)
        return accepted, fenced, announced


def is_foreign(record: envelope.Record, cluster_name: str) -> bool:
    """Whether a record on a topic of our services belongs to another Kubernetes cluster."""
    if record.topic.writer == topics.OUTSIDE:
        return False
    return record.cluster_name not in ("", cluster_name)


def announces(record: envelope.Record) -> bool:
    """Whether a record may raise the epoch of its topic."""
    return is_announcement(record) or (record.topic.main and record.type == log.OPENED)


def is_announcement(record: envelope.Record) -> bool:
    """Whether a record announces an epoch. Such a record is not a message of its topic."""
    return record.topic.is_announced and record.type == log.ANNOUNCED


def epoch_floor(records: Iterable[envelope.Record]) -> int:
    """The ``floor`` of a writer's ``opened``, given the last records of all its topics."""
    epochs = (record.epoch for record in records)
    return max((epoch for epoch in epochs if epoch is not None), default=-1) + 1


def opening_draft(
    service: topics.Service, instance: str, at_least: int, now: datetime
) -> envelope.Draft:
    """The draft that opens a writer."""
    return envelope.Draft(
        topic=topics.MAIN[service],
        key=log.OPENED_KEY,
        message=log.Opened(writer=service, instance=instance, floor=at_least),
        time=now,
    )


def unfenced_epoch(now: datetime) -> int:
    """The epoch of a writer without a main topic: microseconds since 1970."""
    return (now - _START) // _MICROSECOND


def announcements(
    wanted: Iterable[topics.Topic], service: topics.Service, instance: str, now: datetime
) -> list[envelope.Draft]:
    """The drafts that precede a writer's first records on topics other than the main one."""
    message = log.EpochAnnounced(writer=service, instance=instance)
    return [
        envelope.Draft(topic=topic, key=log.ANNOUNCED_KEY, message=message, time=now)
        for topic in wanted
    ]
