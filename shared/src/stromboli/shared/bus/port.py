"""The port to the log.

Promises of every adapter, held by the contract suite ``stromboli.testkit.contracts.bus``:

* A topic keeps the order in which its records were acknowledged. What ``append`` returned for is
  durable. Records appended through one writer stand in the order of the calls.
* ``open_writer`` appends ``opened`` to the service's main topic; it determines the writer's
  *epoch*, which is in the id of each of its records and never goes back, also where a topic was
  deleted and created again. Readers drop a record whose epoch is lower than the highest one of its
  topic, so a paused writer that wakes up is fenced, and one whose epoch was not announced; see
  ``fencing``.
* ``fold`` reads from the start (or a given place) to the end offsets noted when it began, says so
  by ``caught_up``, and goes on for ever. ``caught_up`` is decided by position, never by a record:
  compaction may have removed the last one.
* ``consume`` gives every record of a topic at least once to a group; what was finished without a
  gap is committed, so a restart begins at the lowest unfinished offset. Opening a consumer replaces
  the earlier ones of its group: their commits are refused, and they end with ReplacedError.
* A place and a commit carry the epochs with the offsets, so a replaced writer is not believed
  because its reader was away; and the topics' identities, so that a reader which goes on in a topic
  that was deleted and created again begins at its start.
* A topic that is deleted and created again while it is read is read from its start, and its name
  is in ``Batch.recreated``: what was derived from the records before is void.
* What others append to a topic of theirs is read as it stands, whatever its headers say.
* Order across topics is not promised.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

import msgspec

from stromboli.shared import envelope, topics


class Appended(msgspec.Struct, frozen=True):
    """Where a draft came to stand, and its event id."""

    offset: int
    id: str


class Position(msgspec.Struct, frozen=True):
    """Where a fold stands or is to begin, by topic name. ``positions``: the next offset; a topic
    that is not named begins at its start. ``epochs``: the highest that was heard before it.
    ``identities``: what tells the topic from a later one of the same name; where it is not named
    the position is taken to be of the topic that is there."""

    positions: Mapping[str, int] = msgspec.field(default_factory=dict)
    epochs: Mapping[str, int] = msgspec.field(default_factory=dict)
    topic_ids: Mapping[str, str] = msgspec.field(default_factory=dict)

    def valid_in(self, topic_ids: Mapping[str, str]) -> "Position":
        """Without the topics that are others now, to be read from their start."""
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
"""Everything from the start."""


class Batch(msgspec.Struct, frozen=True):
    """Records in order of their topics' offsets. ``place``: where to go on behind them.

    A batch may be empty: it then reports its place or ``caught_up`` only. ``unheard``: records of
    replaced writers, dropped from ``records``. Only the topic's writer looks at them: compaction
    keeps a key's last record, so it has to say again what they hide. ``recreated``: topics that
    were deleted and created again since the batch before, or that lost their tail; they are read
    from their start again, and what was derived from them is void. ``at_end``: topic name -> when,
    by the event loop's clock, the reader had last read all of that topic, before it read this
    batch; so the records of the batch were appended after that. Not named: never.
    """

    records: tuple[envelope.Record, ...]
    position: Position
    caught_up: bool
    fenced: tuple[envelope.Record, ...] = ()
    recreated: frozenset[str] = frozenset()
    at_end: Mapping[str, float] = msgspec.field(default_factory=dict)

    @property
    def positions(self) -> Mapping[str, int]:
        """Topic name -> next offset."""
        return self.position.positions


class Writer(Protocol):
    """The one appender of a service, from ``open_writer`` until its process ends."""

    @property
    def epoch(self) -> int:
        """The fencing token in the ids of all its records."""

    @property
    def opened_at(self) -> int:
        """Offset of this writer's ``opened`` on its main topic."""

    async def append(self, *drafts: envelope.Draft) -> tuple[Appended, ...]:
        """Append in order; returns when all are acknowledged.

        Raises TransientError when the log does not take them now, or was left: some may stand there
        all the same, so repeating is at least once. Raises LogLostError when the main topic was
        deleted and created again: open another writer. Raises TooLargeError, and appends none, if
        one draft is over ``topics.RECORD_BYTES``; ValueError for another service's topic.
        """


class GroupConsumer(Protocol):
    """A group's records of one topic, each to be answered by ``done``."""

    def __aiter__(self) -> AsyncIterator[envelope.Record]:
        """Records in order; several may be in flight. Raises ReplacedError once a later consumer of
        the group was opened, TransientError, PermanentError."""

    def done(self, record: envelope.Record) -> None:
        """This record is finished. Committed soon after all before it are finished, too."""

    @property
    def lowest_unfinished(self) -> int:
        """Where a restart of this group would begin, once committed."""


class Bus(Protocol):
    """A connection to the log of one Kubernetes cluster. Use as an async context manager."""

    async def __aenter__(self) -> Self:
        """Connect, and create the topics that are missing with the settings they should have."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect; commits what is finished."""

    async def open_writer(self, service: topics.Service, instance: str) -> Writer:
        """Begin a new epoch of ``service``. ``instance`` names this process for people."""

    def materialize(
        self, wanted: Sequence[topics.Topic], start: Position = START
    ) -> AsyncGenerator[Batch, None]:
        """State: everything from ``start``, and on."""

    def consume(
        self, topic: topics.Topic, group: str
    ) -> AbstractAsyncContextManager[GroupConsumer]:
        """Things to do once."""

    async def last(self, topic: topics.Topic) -> envelope.Record | None:
        """The newest record of a topic, None if it is empty. What announces a writer's epoch is
        none: the log keeps that to itself."""

    async def is_reachable(self) -> bool:
        """Whether the log answers now; for readiness, never raises."""
