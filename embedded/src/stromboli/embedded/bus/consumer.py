"""Reads a topic of the embedded log for a group: implements ``port.GroupConsumer``."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from stromboli.embedded.bus.log import Log
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import fencing


class EmbeddedConsumer:
    """See ``port.GroupConsumer``. Use between ``begin`` and ``end``."""

    def __init__(self, log: Log, topic: topics.Topic, group: str) -> None:
        self._log = log
        self._topic = topic
        self._group = group
        self._fence = fencing.Fence(log.cluster_name)
        self._identity = ""
        self._read: deque[envelope.Record] = deque()
        self._read_to = 0
        self._position = 0
        self._in_hand: dict[
            int, int
        ] = {}  # offset -> highest epoch accepted by then, lowest offset first
        self._committed = 0
        self._is_committing = False

    async def begin(self) -> None:
        """Continue after the group's last commit, and replace any earlier consumer."""
        self._log.open_consumer(self._topic, self._group, self)
        self._identity = self._identity_now()
        at, epoch = await self._log.committed(self._topic, self._group)
        self._position = self._read_to = self._committed = at
        self._fence = fencing.Fence(
            self._log.cluster_name, {self._topic.name: epoch} if epoch >= 0 else {}, {}
        )

    async def end(self) -> None:
        """Commit the finished records, unless the consumer was replaced."""
        if self.lowest_unfinished != self._committed and not self._is_replaced:
            await self._commit_to(self.lowest_unfinished, lambda _: None)

    def __aiter__(self) -> AsyncIterator[envelope.Record]:
        """Iterate over the records in the order of the topic."""
        return self

    async def __anext__(self) -> envelope.Record:
        """The next record; waits for one. Raises ReplacedError."""
        while True:
            if self._is_replaced:
                raise errors.ReplacedError(f"another consumer reads {self._topic.name}")
            self._reset_if_recreated()
            while self._read:
                record = self._read.popleft()
                self._position = record.offset + 1
                accepted, *_ = self._fence.split([record])
                if accepted:
                    self._in_hand[record.offset] = self._epoch
                    return record
            self._position = self._read_to
            positions = {self._topic.name: self._position}
            if self._log.has_more(positions):
                topic_ids = {self._topic.name: self._identity}
                records, reached = await self._log.page(positions, topic_ids)
                self._read.extend(records)
                self._read_to = reached[self._topic.name]
            else:
                await self._log.growth()

    def acknowledge(self, record: envelope.Record) -> None:
        """Mark a record as processed, so that its offset can be committed. Idempotent."""
        self._in_hand.pop(record.offset, None)
        self._commit()

    @property
    def _is_replaced(self) -> bool:
        return self._log.is_replaced(self._topic, self._group, self)

    @property
    def lowest_unfinished(self) -> int:
        """The offset at which a restart of this group would begin, once committed."""
        return next(iter(self._in_hand), self._position)

    @property
    def _accepted_epoch(self) -> int:
        """The highest epoch accepted before ``lowest_unfinished``."""
        return next(iter(self._in_hand.values()), self._epoch)

    @property
    def _epoch(self) -> int:
        return self._fence.accepted.get(self._topic.name, -1)

    def _identity_now(self) -> str:
        return self._log.topic_ids([self._topic.name])[self._topic.name]

    def _reset_if_recreated(self) -> None:
        """Start at offset 0 if the topic was deleted and created again; drop records in flight."""
        if self._identity == self._identity_now():
            return
        self._identity = self._identity_now()
        self._position = self._read_to = self._committed = 0
        self._read.clear()
        self._in_hand.clear()
        self._fence.forget(self._topic)

    def _commit_to(self, position: int, then: Callable[[None], None]) -> asyncio.Future[None]:
        return self._log.commit(
            self._topic, self._group, self._identity, position, self._accepted_epoch, then
        )

    def _commit(self) -> None:
        """Start a commit unless one is in flight; in that case the next commit covers the progress
        made meanwhile.
        """
        reached = self.lowest_unfinished
        if self._is_committing or reached == self._committed or self._is_replaced:
            return
        self._is_committing = True

        def then(_: None) -> None:
            self._is_committing = False
            self._committed = reached
            self._commit()

        self._commit_to(reached, then)
