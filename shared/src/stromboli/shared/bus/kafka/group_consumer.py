"""Processes each record of a topic once: the committed offset of a consumer group.

The partition is assigned by hand, and the group only keeps the offset. So a restarted process
continues immediately, where a group that assigns partitions first waits for the session timeout of
the dead member. That one process consumes is the business of leader election; commits are fenced
against a process that lost it and does not know yet:

1. A commit carries, in Kafka's metadata field, the number of the consumer that wrote it. Opening a
   consumer commits with a number above the stored one, and reads back that it is there.
2. Before each commit a consumer reads the stored number, and stops with ReplacedError when it is
   not its own. So a paused process that wakes up cannot move the group's offset, neither back
   (records would be repeated) nor forward past records whose outcome readers dropped (they would
   be lost).
3. Between that reading and the commit a process may still be paused. The offset that it then
   writes is overwritten by the next commit of its successor, within ``commit_again_s``.

Kafka's own generations fence only members of a group that assigns partitions, and transactions
would cost three more requests for each commit and a broker with a transaction log.
"""

import asyncio
import contextlib
import math
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator

import msgspec
import structlog
from aiokafka import admin

from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.bus.kafka import clients, reader, settings

_log = structlog.get_logger(__name__)


class KafkaGroupConsumer:
    """See ``port.GroupConsumer``. Made by ``consuming``."""

    def __init__(
        self, source: reader.Reader, client: admin.AIOKafkaAdminClient, group: str
    ) -> None:
        self._source = source
        self._client = client
        self._group = group
        ((self._partition, self._topic),) = source.partitions.items()
        self._epoch = -1
        self._ready: deque[envelope.Record] = deque()
        self._unfinished: OrderedDict[int, int] = OrderedDict()  # offset -> epoch heard by then
        self._next = self._committed = 0
        self._committed_at = -math.inf
        self._token = _Token(0, "")
        self._moved = asyncio.Event()
        self.committer: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Continue behind the group's last commit, and take over the group from earlier consumers.
        Waits while the broker is unavailable."""
        what = f"open group {self._group}"
        stored = await clients.retry_until_available(what, self._stored)
        await self._source.seek(stored.position)
        position = await self._source.position()
        self._epoch = position.epochs.get(self._topic.name, -1)
        self._next = position.positions[self._topic.name]
        while True:
            self._token = _Token(stored.token.number + 1, uuid.uuid4().hex[:8])
            await clients.retry_until_available(what, self._commit_now)
            stored = await clients.retry_until_available(what, self._stored)
            if stored.token == self._token:
                return

    def __aiter__(self) -> AsyncIterator[envelope.Record]:
        return self

    async def __anext__(self) -> envelope.Record:
        while not self._ready:
            await self._refill()
        return self._ready.popleft()

    async def _refill(self) -> None:
        if self.committer is not None and self.committer.done():
            self.committer.result()  # raises why commits are refused
        read = await self._source.read()
        if read.recreated:  # what was in hand is of another topic
            self._unfinished.clear()
            self._ready.clear()
            self._epoch = self._committed = -1
        self._next = await self._source.consumer.position(self._partition)
        self._ready.extend(read.accepted)
        for record in read.accepted:
            if record.topic.is_fenced and record.epoch is not None:
                self._epoch = record.epoch
            self._unfinished[record.offset] = self._epoch
        self._moved.set()

    def done(self, record: envelope.Record) -> None:
        """See ``port.GroupConsumer.done``; repeating it changes nothing."""
        self._unfinished.pop(record.offset, None)
        self._moved.set()

    @property
    def lowest_unfinished(self) -> int:
        """Where a restart of this group would begin, once committed."""
        return next(iter(self._unfinished), self._next)

    async def commit_for_ever(self, every_s: float, again_s: float) -> None:
        """Commit what moved, at most every ``every_s`` seconds, and the same again after
        ``again_s``: Kafka drops an offset that was not committed for its retention, and a process
        that was paused in the middle of a commit may have overwritten it. Waits while the broker is
        unavailable. Raises ReplacedError and PermanentError."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._committed_at + again_s):
                    await self._moved.wait()
            self._moved.clear()
            try:
                await self.commit(again=_now() >= self._committed_at + again_s)
            except errors.TransientError as error:
                _log.warning("commit failed", what=error.what, reason=error.reason)
                self._moved.set()
            await asyncio.sleep(every_s)

    async def commit(self, *, again: bool = False) -> None:
        """Commit the lowest unfinished offset, unless it is committed and not wanted ``again``.
        Raises ReplacedError, TransientError and PermanentError."""
        if self.lowest_unfinished == self._committed and not again:
            return
        try:
            stored = await self._stored()
            if stored.token.number and stored.token != self._token:
                raise errors.ReplacedError(
                    f"another process consumes {self._partition.topic} as {self._group}"
                )
            await self._commit_now()
        except clients.CLIENT_ERRORS as error:
            raise clients.translate_error(f"commit {self._partition.topic}", error) from error

    async def _commit_now(self) -> None:
        offset = self.lowest_unfinished
        epoch = next(iter(self._unfinished.values()), self._epoch)
        topic_id = self._source.topic_ids.get(self._topic.name, "")
        note = f"{epoch} {topic_id} {self._token.number}.{self._token.nonce}"
        await self._source.consumer.commit({self._partition: (offset, note)})
        self._committed, self._committed_at = offset, _now()

    async def _stored(self) -> "_Stored":
        """The group's last commit. A consumer has no public way to the metadata. A tool of an
        operator that moves the group writes other metadata, or none."""
        partitions = [self._partition]
        offsets = await self._client.list_consumer_group_offsets(self._group, partitions=partitions)
        found = offsets.get(self._partition)
        if found is None or found.offset < 0:
            return _Stored()
        text, topic_id, token, *_ = [*str(found.metadata or "").split(" "), "", ""]
        epoch = decoding.number(text)
        number, _, nonce = token.partition(".")
        name = self._topic.name
        position = port.Position(
            {name: found.offset},
            {} if epoch is None else {name: epoch},
            {name: topic_id} if topic_id else {},
        )
        return _Stored(position, _Token(decoding.number(number) or 0, nonce))


class _Token(msgspec.Struct, frozen=True):
    """Which consumer of a group wrote a commit. ``number``: one more than its predecessor's;
    ``nonce`` tells two consumers apart that took the same number at the same time."""

    number: int
    nonce: str


class _Stored(msgspec.Struct, frozen=True):
    """A group's last commit: where to continue, and which consumer wrote it."""

    position: port.Position = port.START
    token: _Token = _Token(0, "")


def _now() -> float:
    return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def consuming(
    given: settings.KafkaSettings,
    client: admin.AIOKafkaAdminClient,
    topic: topics.Topic,
    group: str,
) -> AsyncIterator[KafkaGroupConsumer]:
    """A group's work on ``topic``, from its last commit; from the beginning for a new group."""
    name = f"{given.cluster_name}.{group}"
    async with reader.open_reader(given, (topic,), name) as source:
        consumer = KafkaGroupConsumer(source, client, name)
        await consumer.open()
        consumer.committer = asyncio.create_task(
            consumer.commit_for_ever(given.commit_every_s, given.commit_again_s)
        )
        try:
            yield consumer
        finally:
            await _final_commit(consumer, given)


async def _final_commit(consumer: KafkaGroupConsumer, given: settings.KafkaSettings) -> None:
    """The last commit, if the broker takes it soon."""
    assert consumer.committer is not None
    consumer.committer.cancel()
    await asyncio.gather(consumer.committer, return_exceptions=True)
    try:
        async with asyncio.timeout(given.close_timeout_s):
            await consumer.commit()
    except (errors.ExternalError, errors.ReplacedError, TimeoutError) as error:
        _log.warning("last commit failed", reason=str(error) or type(error).__name__)
