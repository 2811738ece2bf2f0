"""A log in memory for tests of pure materialization: drafts become records with offsets, topic by
topic."""

from collections.abc import Sequence

from stromboli.shared import envelope, topics
from stromboli.shared.api import meta
from stromboli.testkit import builders


class TopicLog:
    """The log. Keeps all appended records in order."""

    def __init__(self) -> None:
        self.records: list[envelope.Record] = []
        self._ends: dict[str, int] = {}

    def append(self, draft: envelope.Draft, epoch: int = 0) -> envelope.Record:
        """The draft as a record at the end of its topic."""
        record = builders.make_record(draft, self._next(draft.topic), epoch=epoch)
        self.records.append(record)
        return record

    def see(self, *objects: meta.Object) -> list[envelope.Record]:
        """Append the monitor's snapshots of these objects."""
        return [self.append(builders.snapshot_of(obj)) for obj in objects]

    def lose(self, *objects: meta.Object) -> list[envelope.Record]:
        """Append the monitor's tombstones of these objects."""
        return [self.append(builders.tombstone_of(made)) for made in objects]

    def garble(self, topic: topics.Topic, key: str) -> envelope.Record:
        """Append a record that cannot be decoded."""
        record = builders.undecodable_record(topic, key, self._next(topic))
        self.records.append(record)
        return record

    def _next(self, topic: topics.Topic) -> int:
        offset = self._ends.get(topic.name, 0)
        self._ends[topic.name] = offset + 1
        return offset


def interleave(records: Sequence[envelope.Record], choices: Sequence[int]) -> list[envelope.Record]:
    """The same records in another order across topics; within each topic they stay in order.

    ``choices`` picks the topic of each next record, cyclically.
    """
    queues: dict[str, list[envelope.Record]] = {}
    for record in records:
        queues.setdefault(record.topic.name, []).append(record)
    for queue in queues.values():
        queue.reverse()
    mixed: list[envelope.Record] = []
    turn = 0
    while queues:
        names = sorted(queues)
        name = names[(choices[turn % len(choices)] if choices else 0) % len(names)]
        mixed.append(queues[name].pop())
        if not queues[name]:
            del queues[name]
        turn += 1
    return mixed
