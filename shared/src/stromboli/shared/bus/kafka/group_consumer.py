"""Consumes each record of a topic once per consumer group, by the group's committed offset.

The partition is assigned manually; the group only stores the offset. So a restarted process
continues immediately, whereas a group with automatic assignment first waits for the session timeout
of the dead member. Leader election ensures that one process consumes; commits are fenced against a
process that has lost the leadership and has not detected it yet:

1. A commit carries, in Kafka's metadata field, the number of the consumer that wrote it. Opening a
   consumer commits with a number above the stored one, and reads back that it is stored.
2. Before each commit a consumer reads the stored number, and raises ReplacedError if another
   consumer wrote it. So a paused process that resumes cannot move the group's offset, neither back
   (records would be repeated) nor forward past records whose outcome readers dropped (they would be
   lost).
3. A process may be paused between that read and the commit. The offset that it then writes is
   overwritten by the next commit of its successor, within ``commit_again_s``.

Kafka's own generations fence only members of a group with automatic assignment. Transactions would
cost three more requests for each commit and a broker with a transaction log.
"""

import asyncio
import contextlib
import math
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import structlog
from aiokafka import admin

from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.bus.kafka import clients, reader, settings

_log = structlog.get_logger(__name__)


class KafkaGroupConsumer:
    """See ``port.GroupConsumer``. Created by ``consuming``."""

    def __init__(
        self,
        source: reader.Reader,
        client: admin.AIOKafkaAdminClient,
        group: str,
        mend: Callable[[], Awaitable[None]],
    ) -> None:
        self._source = source
        self._client = client
        self._group = group
        self._mend = mend
        ((self._partition, self._topic),) = source.partitions.items()
        self._epoch = -1
        self._ready: deque[envelope.Record] = deque()
        self._unfinished: OrderedDict[int, int] = (
            OrderedDict()
        )  # offset -> highest epoch accepted by then
        self._next = self._committed = 0
        self._committed_at = -math.inf
        self._token = _Token(0, "")
        self._moved = asyncio.Event()
        self.committer: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Seek to the offset after the group's last commit, and replace earlier consumers of the
        group. Waits while the broker is unavailable.
        """
        what = f"open group {self._group}"
        stored = await clients.retry_until_available(what, self._stored)
        await self._source.seek(stored.position)
        position = self._source.position()
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
            self.committer.result()  # raises the error of the commit loop
        read = await self._source.read()
        if read.recreated:  # records in flight belong to the old topic
            self._unfinished.clear()
            self._ready.clear()
            self._epoch = self._committed = -1
        self._next = self._source.position().positions[self._topic.name]
        self._ready.extend(read.accepted)
        for record in read.accepted:
            if record.topic.is_fenced and record.epoch is not None:
                self._epoch = record.epoch
            self._unfinished[record.offset] = self._epoch
        self._moved.set()
        if read.recreated or self._source.is_missing:
            # Last: a commit meanwhile must not name the new topic with offsets of the old one.
            await self._mend()

    def acknowledge(self, record: envelope.Record) -> None:
        """See ``port.GroupConsumer.acknowledge``. Idempotent."""
        self._unfinished.pop(record.offset, None)
        self._moved.set()

    @property
    def lowest_unfinished(self) -> int:
        """The offset at which a restarted consumer of the group would begin, once committed."""
        return next(iter(self._unfinished), self._next)

    async def commit_repeatedly(self, every_s: float, again_s: float) -> None:
        """Commit progress at most every ``every_s`` seconds, and the same offset again after
        ``again_s``: Kafka drops an offset that was not committed for its retention time, and a
        process that was paused during a commit may have overwritten it. Waits while the broker is
        unavailable. Raises ReplacedError and PermanentError.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._committed_at + again_s):
                    await self._moved.wait()
            self._moved.clear()
            try:
                await self.commit(again=_now() >= self._committed_at + again_s)
            except errors.TransientError as error:
                _log.warning("offsets not committed", what=error.what, reason=error.reason)
                self._moved.set()
            await asyncio.sleep(every_s)

    async def commit(self, *, again: bool = False) -> None:
        """Commit the lowest unfinished offset, unless it is already committed and ``again`` is
        false. Raises ReplacedError, TransientError and PermanentError.
        """
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
        """The group's last commit. aiokafka's consumer has no public method that returns the
        metadata. A tool that resets the group's offset writes other metadata, or none.
        """
        partitions = [self._partition]
        offsets = await self._client.list_consumer_group_offsets(self._group, partitions=partitions)
        last_commit = offsets.get(self._partition)
        if last_commit is None or last_commit.offset < 0:
            return _Stored()
        text, topic_id, token, *_ = [*str(last_commit.metadata or "").split(" "), "", ""]
        epoch = decoding.number(text)
        number, _, nonce = token.partition(".")
        name = self._topic.name
        position = port.Position(
            {name: last_commit.offset},
            {} if epoch is None else {name: epoch},
            {name: topic_id} if topic_id else {},
        )
        return _Stored(position, _Token(decoding.number(number) or 0, nonce))


class _Token(msgspec.Struct, frozen=True):
    """Identifies the consumer that wrote a commit. ``number``: one more than its predecessor's;
    ``nonce`` distinguishes two consumers that took the same number at the same time.
    """

    number: int
    nonce: str


class _Stored(msgspec.Struct, frozen=True):
    """A group's last commit: the next offset, and the consumer that wrote it."""

    position: port.Position = port.START
    token: _Token = _Token(0, "")


def _now() -> float:
    return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def consuming(
    kafka: settings.KafkaSettings,
    client: admin.AIOKafkaAdminClient,
    topic: topics.Topic,
    group: str,
    mend: Callable[[], Awaitable[None]],
) -> AsyncIterator[KafkaGroupConsumer]:
    """A consumer of ``topic`` for ``group``, positioned at the group's last commit or, for a new
    group, at the beginning.
    """
    name = f"{kafka.cluster_name}.{group}"
    async with reader.open_reader(kafka, (topic,), name) as source:
        consumer = KafkaGroupConsumer(source, client, name, mend)
        await consumer.open()
        consumer.committer = asyncio.create_task(
            consumer.commit_repeatedly(kafka.commit_every_s, kafka.commit_again_s)
        )
        try:
            yield consumer
        finally:
            await _final_commit(consumer, kafka)


async def _final_commit(consumer: KafkaGroupConsumer, kafka: settings.KafkaSettings) -> None:
    """Commit a last time, within a short timeout."""
    assert consumer.committer is not None
    consumer.committer.cancel()
    await asyncio.gather(consumer.committer, return_exceptions=True)
    try:
        async with asyncio.timeout(kafka.close_timeout_s):
            await consumer.commit()
    except (errors.ExternalError, errors.ReplacedError, TimeoutError) as error:
        _log.warning("last commit failed", reason=str(error) or type(error).__name__)
