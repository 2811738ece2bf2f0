"""Reading what stands on our own topics: first to know it, then to see who else writes there."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping

import structlog

from stromboli.monitor.core.picture import Picture
from stromboli.monitor.core.reports import Reports
from stromboli.monitor.outbox import LogLostError
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster

OWN: tuple[topics.Topic, ...] = (*topics.SNAPSHOTS.values(), topics.TOPOLOGY, topics.SYNC)

_log = structlog.get_logger(__name__)


class ReplacedError(Exception):
    """A later monitor has opened: nobody listens to this one any more."""


class OwnLog:
    """Folds into pictures and reports up to the barrier; behind it, follows."""

    def __init__(
        self,
        fold: AsyncGenerator[port.Batch, None],
        epoch: int,
        pictures: Iterable[Picture],
        reports: Reports,
    ) -> None:
        self._fold = fold
        self._epoch = epoch
        self._by_plural = {picture.kind.plural: picture for picture in pictures}
        self._by_topic: dict[str, Picture | Reports] = {
            picture.topic.name: picture for picture in self._by_plural.values()
        }
        self._by_topic[reports.topic.name] = reports
        self._positions: dict[str, int] = {}
        self._moved = asyncio.Condition()

    async def fold(self) -> Mapping[str, int]:
        """Take in everything up to our own beginning; topic name -> next offset.

        Raises ReplacedError.
        """
        async for batch in self._fold:
            for record, is_heard in self._news(batch):
                self._check(record)
                if record.topic == topics.SYNC:
                    if is_heard:
                        self._fold_sync(record)
                elif is_heard:
                    self._by_topic[record.topic.name].fold(record)
                else:
                    self._by_topic[record.topic.name].overwrite(record.key)
            self._positions = dict(batch.positions)
            if batch.caught_up:
                return batch.positions
        raise AssertionError("a fold goes on for ever")

    async def follow(self) -> None:
        """Go on for ever: mark what others hide. Raises ReplacedError, LogLostError."""
        async for batch in self._fold:
            for record, _ in self._news(batch):
                self._look_at(record)
            for name, position in batch.positions.items():
                if position < self._positions[name]:
                    raise LogLostError(
                        f"{name}: read up to {self._positions[name]}, now {position}"
                    )
            async with self._moved:
                self._positions = dict(batch.positions)
                self._moved.notify_all()

    async def reached(self, topic: topics.Topic, position: int) -> None:
        """Return when everything before ``position`` of a topic has been looked at."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._positions[topic.name] >= position)

    def _news(self, batch: port.Batch) -> list[tuple[envelope.Record, bool]]:
        """Records as they stand in their topics, each with whether it is heard.

        Without those that come a second time: they would look like somebody else's later ones.
        """
        either = [(record, True) for record in batch.records]
        either += [(record, False) for record in batch.unheard]
        if batch.unheard:
            either.sort(key=lambda pair: pair[0].offset)
        return [
            (record, is_heard)
            for record, is_heard in either
            if record.offset >= self._positions.get(record.topic.name, 0)
        ]

    def _look_at(self, record: envelope.Record) -> None:
        self._check(record)
        if record.epoch != self._epoch and record.topic != topics.SYNC:
            _log.warning("overwritten", topic=record.topic.name, key=record.key, by=record.id)
            self._by_topic[record.topic.name].overwrite(record.key)

    def _check(self, record: envelope.Record) -> None:
        if record.epoch is not None and record.epoch > self._epoch:
            raise ReplacedError(f"{record.topic.name}@{record.offset} is by {record.id}")

    def _fold_sync(self, record: envelope.Record) -> None:
        picture = self._by_plural.get(record.key)
        if picture is None:
            return
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            _log.warning("sync not readable", kind=record.key, reason=error.reason)
            message = None
        synced = message if isinstance(message, cluster.KindSynced) else None
        picture.fold_sync(synced, -1 if record.epoch is None else record.epoch)
