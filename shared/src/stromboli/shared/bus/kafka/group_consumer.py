"""Things to do once: a group's place in a topic.

The reader's partition is assigned by hand and the group only keeps the offset. So a restarted
process goes on at once, where a group that assigns partitions would first wait until the dead
member's session has ended; that there is one active process is the business of leases.
"""

import asyncio
import contextlib
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator

import structlog
from aiokafka import admin, structs

from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.bus.kafka import clients, reader, settings

_log = structlog.get_logger(__name__)


class KafkaGroupConsumer:
    """See ``port.GroupConsumer``. Made by ``working``."""

    def __init__(self, source: reader.Reader, at: int, epoch: int) -> None:
        self._source = source
        ((self._partition, self._topic),) = source.partitions.items()
        self._epoch = epoch
        self._ready: deque[envelope.Record] = deque()
        self._unfinished: OrderedDict[int, int] = OrderedDict()  # offset -> epoch heard by then
        self._next = at
        self._committed = at
        self._committed_at = -math.inf  # at once: the offset may be about to expire
        self._moved = asyncio.Event()
        self.committer: asyncio.Task[None] | None = None

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
        ``again_s``: Kafka forgets an offset that was not committed for its retention, and a paused
        process that wakes up may have committed a place of its own. Waits while the broker is
        away."""
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
        Raises errors of ours."""
        offset = self.lowest_unfinished
        if offset == self._committed and not again:
            return
        epoch = next(iter(self._unfinished.values()), self._epoch)
        note = f"{epoch} {self._source.topic_ids.get(self._topic.name, '')}"
        try:
            await self._source.consumer.commit({self._partition: (offset, note)})
        except clients.CLIENT_ERRORS as error:
            raise clients.translate_error(f"commit {self._partition.topic}", error) from error
        self._committed, self._committed_at = offset, _now()


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
        (partition,) = source.partitions
        committed = await clients.retry_until_available(
            f"find the place of {group}", lambda: _committed(client, name, partition, topic)
        )
        await source.seek(committed)
        position = await source.position()
        epoch = position.epochs.get(topic.name, -1)
        consumer = KafkaGroupConsumer(source, position.positions[topic.name], epoch)
        consumer.committer = asyncio.create_task(
            consumer.commit_for_ever(given.commit_every_s, given.commit_again_s)
        )
        try:
            yield consumer
        finally:
            await _final_commit(consumer, given)


async def _committed(
    client: admin.AIOKafkaAdminClient,
    group: str,
    partition: structs.TopicPartition,
    topic: topics.Topic,
) -> port.Position:
    """Beside the offset, in what Kafka calls metadata, are the epoch and the topic's identity: a
    consumer has no public way to it. An operator's tool that moves the group leaves other words
    there, or none."""
    found = (await client.list_consumer_group_offsets(group, partitions=[partition])).get(partition)
    if found is None or found.offset < 0:
        return port.START
    text, _, topic_id = (found.metadata or "").partition(" ")
    epoch = decoding.number(text)
    epochs = {} if epoch is None else {topic.name: epoch}
    topic_ids = {topic.name: topic_id} if topic_id else {}
    return port.Position({topic.name: found.offset}, epochs, topic_ids)


async def _final_commit(consumer: KafkaGroupConsumer, given: settings.KafkaSettings) -> None:
    """The last commit, if the broker takes it soon."""
    assert consumer.committer is not None
    consumer.committer.cancel()
    await asyncio.gather(consumer.committer, return_exceptions=True)
    try:
        async with asyncio.timeout(given.close_timeout_s):
            await consumer.commit()
    except (errors.ExternalError, TimeoutError) as error:
        _log.warning("last commit failed", reason=str(error) or type(error).__name__)
