"""History of the snapshot topics, read from ``cluster.changes``, for the replay of sessions.

The history begins with a checkpoint (the content of the compacted topics at that time), followed by
every change. A monitor that restarts repeats records; topic and offset identify them.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from stromboli.shared import envelope, errors, topics
from stromboli.shared.messages import cluster

_TOPICS: Mapping[str, topics.Topic] = {topic.name: topic for topic in topics.MATERIALIZED}


class SnapshotHistory(msgspec.Struct, frozen=True):
    """Records of the snapshot topics.

    ``complete_from``: topic -> offset from which all records are present; of older ones, only the
    last of each key is.
    """

    records: tuple[envelope.Record, ...]
    complete_from: Mapping[str, int]


def read_history(changes: Iterable[envelope.Record]) -> SnapshotHistory:
    """Read the history from the first complete checkpoint; empty if there is none."""
    kept = list(changes)
    first = min((record.offset for record in kept), default=0)
    marks = (mark for record in kept if (mark := _mark(record)) is not None)
    image = next((mark for mark in marks if mark.image_offset >= first), None)
    if image is None:
        return SnapshotHistory((), {})
    found: dict[tuple[str, int], envelope.Record] = {}
    for record in kept:
        if record.offset >= image.image_offset:
            for copy in _original(record):
                found[copy.topic.name, copy.offset] = copy
    ordered = sorted(found.values(), key=lambda each: (each.topic.name, each.offset))
    return SnapshotHistory(tuple(ordered), image.positions)


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
