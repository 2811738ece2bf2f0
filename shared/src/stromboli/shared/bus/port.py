"""The port to the log.

Every adapter provides these guarantees; the contract suite ``stromboli.testkit.contracts.bus``
tests them.

* A topic keeps the order in which its records were acknowledged. Records for which ``append`` has
  returned are durable. Records of one writer are in the order of the calls.
* ``open_writer`` appends ``opened`` to the main topic of the service, if it has one. It determines
  the writer's *epoch*, which is part of the id of each of its records and never decreases, even
  where a topic was deleted and created again. Readers drop records with an epoch below the
  highest one of the topic, so a paused writer is fenced, and records with an epoch that was not
  announced; see ``fencing``.
* ``materialize`` reads from the start (or from a given position) to the end offsets at the time of
  the call, sets ``caught_up``, and continues. ``caught_up`` depends on positions, never on a
  record, because compaction may have removed the last one.
* ``consume`` gives every record of a topic to a group at least once. The committed offset is the
  lowest unfinished one, at which a restart begins. Opening a consumer replaces the earlier
  consumers of its group: their commits are rejected, and they end with ReplacedError.
* Positions and commits contain epochs, so that a reader that resumes does not accept a replaced
  writer. They contain topic ids, so that a reader that resumes on a topic that was deleted and
  created again begins at its start.
* A topic that is deleted and created again while it is read is read from its start, and its name is
  in ``Batch.recreated``: state derived from the earlier records is void. A reader recreates its
  topics if they are deleted.
* Records of external clients on their own topics are returned unchanged, whatever their headers.
* There is no order across topics.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

import msgspec

from stromboli.shared import envelope, topics


class Appended(msgspec.Struct, frozen=True):
    """The offset and the event id of an appended draft."""

    offset: int
    id: str


class Position(msgspec.Struct, frozen=True):
    """A position in several topics, by topic name.

    ``positions``: the next offset; a topic without an entry is read from its start. ``epochs``: the
    highest epoch accepted before that offset. ``topic_ids``: distinguishes a topic from a later one
    of the same name; without an entry the position applies to the current topic.
    """

    positions: Mapping[str, int] = msgspec.field(default_factory=dict)
    epochs: Mapping[str, int] = msgspec.field(default_factory=dict)
    topic_ids: Mapping[str, str] = msgspec.field(default_factory=dict)

    def valid_in(self, topic_ids: Mapping[str, str]) -> "Position":
        """The position without topics whose id has changed; they are read from their start."""
        gone = {
            name
            for name, identity in self.topic_ids.items()
            if topic_ids.get(name, identity) != identity
        }
        kept = (
            {name: value for name, value in each.items() if name not in gone}
            for each in (self.positions, self.epochs, self.topic_ids)
        )
        return Position(*kept)  # type: ignore[arg-type]  # two of numbers, one of names


START = Position()
"""The start of all topics."""


class Batch(msgspec.Struct, frozen=True):
    """Records in order of the offsets of their topics.

    ``position``: where to continue. A batch may be empty and only report its position or
    ``caught_up``. ``fenced``: records of replaced writers and of other clusters, which are not in
    ``records``. Only the topic's writer uses them: compaction keeps the last record of a key, so
    the writer has to repeat the records that they replaced. ``announced``: announcements of epochs,
    which are not messages; a copy of a topic must record their offsets. ``recreated``: topics that
    were deleted and created again since the previous batch, or that lost their tail; they are read
    from their start again, and state derived from them is void. ``at_end``: topic name -> the time,
    by the clock of the event loop, at which the reader had read the whole topic before it read this
    batch; records of the batch were appended after that time. A topic without an entry was never
    read to its end.
    """

    records: tuple[envelope.Record, ...]
    position: Position
    caught_up: bool
    fenced: tuple[envelope.Record, ...] = ()
    recreated: frozenset[str] = frozenset()
    at_end: Mapping[str, float] = msgspec.field(default_factory=dict)
    announced: tuple[envelope.Record, ...] = ()

    @property
    def positions(self) -> Mapping[str, int]:
        """Topic name -> next offset."""
        return self.position.positions


class Writer(Protocol):
    """The single writer of a service, from ``open_writer`` until its process ends."""

    @property
    def epoch(self) -> int:
        """The writer's epoch: the fencing token in the ids of all its records."""

    @property
    def opened_at(self) -> int:
        """Offset of this writer's ``opened`` on its main topic; -1 without a main topic."""

    async def append(self, *drafts: envelope.Draft) -> tuple[Appended, ...]:
        """Append in order; returns when all records are acknowledged.

        Raises TransientError if the log is unavailable or the bus was closed. Some records may
        have been appended nevertheless, so retrying is at least once. Raises LogLostError when the
        main topic was deleted and created again: open another writer. Raises TooLargeError, and
        appends nothing, if one draft exceeds ``topics.RECORD_BYTES``. Raises ValueError for the
        topic of another service.
        """


class GroupConsumer(Protocol):
    """The records of one topic for a group; the caller acknowledges each."""

    def __aiter__(self) -> AsyncIterator[envelope.Record]:
        """Records in order; several may be in flight. Raises TransientError, PermanentError, and
        ReplacedError once a later consumer of the group was opened."""

    def acknowledge(self, record: envelope.Record) -> None:
        """Mark a record as processed. Its offset is committed after those of earlier records."""

    @property
    def lowest_unfinished(self) -> int:
        """The offset at which a restarted consumer of the group would begin, once committed."""


class Bus(Protocol):
    """A connection to the log of one Kubernetes cluster. Use as an async context manager."""

    async def __aenter__(self) -> Self:
        """Connect, and create missing topics with their settings."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit finished records and disconnect."""

    async def open_writer(self, service: topics.Service, instance: str) -> Writer:
        """Open a writer with a new epoch of ``service``. ``instance`` names the process in logs."""

    def materialize(
        self, wanted: Sequence[topics.Topic], start: Position = START, *, is_urgent: bool = True
    ) -> AsyncGenerator[Batch, None]:
        """Read all records from ``start``, then new ones, to build state from them.

        Without ``is_urgent``, new records may arrive a quarter of a second late, in larger batches,
        which cost the broker and the process less.
        """

    def consume(
        self, topic: topics.Topic, group: str
    ) -> AbstractAsyncContextManager[GroupConsumer]:
        """Process each record of ``topic`` once for ``group``."""

    async def last_record(self, topic: topics.Topic) -> envelope.Record | None:
        """The newest record of a topic, ignoring epoch announcements; None if there is none."""

    async def is_reachable(self) -> bool:
        """Whether the log responds now; for readiness, never raises."""
