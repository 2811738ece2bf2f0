"""History of compacted topics, read from ``cluster.changes``, for the replay of sessions.

The history begins with a checkpoint (the content of the topics at that time), followed by every
change. A monitor that restarts repeats records; topic and offset identify them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from stromboli.shared import envelope, errors, topics
from stromboli.shared.messages import cluster

_TOPICS: Mapping[str, topics.Topic] = {topic.name: topic for topic in topics.COPIED}


class SnapshotHistory(msgspec.Struct, frozen=True):
    """Records of the topics that ``cluster.changes`` has copies of.

    ``complete_from``: topic -> offset from which all records are present; of older records, only
    the last record of each key is. ``begins``: the time of the first complete state; None if there
    is none. ``unread``: topic -> ordered offsets of records that no service reads and that are not
    copied, such as announcements of epochs.
    """

    records: tuple[envelope.Record, ...]
    complete_from: Mapping[str, int]
    begins: datetime | None = None
    unread: Mapping[str, Sequence[int]] = {}


EMPTY = SnapshotHistory((), {})


def read_history(changes: Iterable[envelope.Record]) -> SnapshotHistory:
    """Read the history from the first complete checkpoint; empty if there is none."""
    kept = list(changes)
    first = min((record.offset for record in kept), default=0)
    marks = [(mark, record) for record in kept if (mark := _mark(record)) is not None]
    found_image = next((each for each in marks if each[0].image_offset >= first), None)
    if found_image is None:
        return EMPTY
    image, begun = found_image
    records: dict[tuple[str, int], envelope.Record] = {}
    for record in kept:
        if record.offset >= image.image_offset:
            for copy in _original(record):
                # Each day has a new image: the first copy has the time of the change.
                records.setdefault((copy.topic.name, copy.offset), copy)
    ordered = sorted(records.values(), key=lambda each: (each.topic.name, each.offset))
    unread: dict[str, set[int]] = {}
    for mark, record in marks:
        if record.offset >= image.image_offset:
            for name, offsets in mark.unread.items():
                unread.setdefault(name, set()).update(offsets)
    return SnapshotHistory(
        tuple(ordered),
        image.positions,
        begun.time,
        {name: sorted(offsets) for name, offsets in unread.items()},
    )


def _mark(record: envelope.Record) -> cluster.HistoryCheckpointed | None:
    try:
        message = envelope.decode(record)
    except errors.UndecodableError:
        return None
    return message if isinstance(message, cluster.HistoryCheckpointed) else None


def _original(record: envelope.Record) -> Iterator[envelope.Record]:
    name, _, key = record.key.partition("/")
    topic, position = _TOPICS.get(name), record.headers.get("ce_position", "")
    if topic is not None and position.isdecimal():
        headers = {**record.headers, "ce_id": record.cause}
        yield envelope.Record(topic, int(position), key, record.value, headers)
