"""The port to the log.

Promises of every adapter, held by the contract suite ``stromboli.testkit.contracts.bus``:

* A topic keeps the order in which its records were acknowledged. What ``append`` returned for is
  durable. Records appended through one writer stand in the order of the calls.
* ``open_writer`` appends ``opened`` to the service's main topic; its offset is the *epoch* and
  stands in the id of every record of that writer. Readers drop a record whose epoch is lower than
  one they already saw on the same topic, so a paused writer that wakes up is not heard.
* ``fold`` reads from the start (or a given place) to the end offsets noted when it began, says so
  by ``caught_up``, and goes on for ever. ``caught_up`` is decided by position, never by a record:
  compaction may have removed the last one.
* ``work`` gives every record of a topic at least once to a group; what was finished without a gap
  is committed, so a restart begins at the lowest unfinished offset.
* Whoever goes on somewhere knows who had been heard there: a place and a commit carry the epochs
  with the offsets, so a replaced writer is not believed because its reader was away.
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


class Place(msgspec.Struct, frozen=True):
    """Where a fold stands or is to begin, by topic name. ``positions``: the next offset; a topic
    that is not named begins at its start. ``epochs``: the highest that was heard before it."""

    positions: Mapping[str, int] = msgspec.field(default_factory=dict)
    epochs: Mapping[str, int] = msgspec.field(default_factory=dict)


START = Place()
"""Everything from the start."""


class Batch(msgspec.Struct, frozen=True):
    """Records in order of their topics' offsets. ``place``: where to go on behind them.

    A batch may be empty: it then reports its place or ``caught_up`` only. ``unheard``: records of
    replaced writers, dropped from ``records``. Only the topic's writer looks at them: compaction
    keeps a key's last record, so it has to say again what they hide.
    """

    records: tuple[envelope.Record, ...]
    place: Place
    caught_up: bool
    unheard: tuple[envelope.Record, ...] = ()

    @property
    def positions(self) -> Mapping[str, int]:
        """Topic name -> next offset."""
        return self.place.positions


class Writer(Protocol):
    """The one appender of a service, from ``open_writer`` until its process ends."""

    @property
    def epoch(self) -> int:
        """Offset of this writer's ``opened`` on its main topic."""

    async def append(self, *drafts: envelope.Draft) -> tuple[Appended, ...]:
        """Append in order; returns when all are acknowledged.

        Raises TransientError when the log does not take them now, or was left: some may stand there
        all the same, so repeating is at least once. Raises TooLargeError, and appends none, if one
        draft is over ``topics.RECORD_BYTES``; ValueError for another service's topic.
        """


class Work(Protocol):
    """A group's records of one topic, each to be answered by ``done``."""

    def __aiter__(self) -> AsyncIterator[envelope.Record]:
        """Records in order. Several may be in hand at once."""

    def done(self, record: envelope.Record) -> None:
        """This record is finished. Committed soon after all before it are finished, too."""

    @property
    def lowest_unfinished(self) -> int:
        """Where a restart of this group would begin, once committed."""


class Bus(Protocol):
    """A connection to the log of one cell. Use as an async context manager."""

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

    def fold(
        self, wanted: Sequence[topics.Topic], start: Place = START
    ) -> AsyncGenerator[Batch, None]:
        """State: everything from ``start``, and on."""

    def work(self, topic: topics.Topic, group: str) -> AbstractAsyncContextManager[Work]:
        """Things to do once."""

    async def last(self, topic: topics.Topic) -> envelope.Record | None:
        """The newest record of a topic, None if it is empty."""

    async def is_reachable(self) -> bool:
        """Whether the log answers now; for readiness, never raises."""


class Fence:
    """Drops records of writers that a later one has replaced. O(1) a record.

    ``heard``: topic name -> the highest epoch heard already.
    """

    def __init__(self, heard: Mapping[str, int] | None = None) -> None:
        self._highest = dict(heard or {})

    @property
    def heard(self) -> dict[str, int]:
        """Topic name -> the highest epoch heard so far."""
        return dict(self._highest)

    def forget(self, topic: topics.Topic) -> None:
        """The topic has lost its tail: epochs are offsets, and begin again below what was heard."""
        self._highest.pop(topic.name, None)

    def passes(self, record: envelope.Record) -> bool:
        """Whether the record counts. A record without an epoch of ours passes: it will not decode
        as one of our messages and makes its key unknown, which must not go unseen."""
        epoch = record.epoch
        if epoch is None or record.topic.writer in topics.UNREPLACED:
            return True
        highest = self._highest.get(record.topic.name, -1)
        if epoch < highest:
            return False
        self._highest[record.topic.name] = epoch
        return True
