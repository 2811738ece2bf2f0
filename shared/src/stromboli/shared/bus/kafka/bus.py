"""The Kafka adapter of ``port.Bus``."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import structlog
from aiokafka import admin

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.bus.kafka import (
    clients,
    group_consumer,
    reader,
    settings,
    topic_provisioning,
    writer,
)
from stromboli.shared.runtime import runtime

_log = structlog.get_logger(__name__)

REACHABLE_WITHIN_S = 1.0
"""A broker counts as unreachable if it takes longer than this to answer a metadata request."""


class KafkaBus:
    """See ``port.Bus``. Entering the context creates missing topics. It raises UnavailableError
    when no broker responds; entering may then be repeated."""

    def __init__(
        self, kafka: settings.KafkaSettings, clock: runtime.Clock = runtime.utc_now
    ) -> None:
        self._given = kafka
        self._clock = clock
        self._admin: admin.AIOKafkaAdminClient | None = None
        self._writers: list[writer.KafkaWriter] = []

    async def __aenter__(self) -> Self:
        what = f"connect to {', '.join(self._given.bootstrap)}"
        client = admin.AIOKafkaAdminClient(**clients.connection(self._given))
        try:
            await client.start()
            await topic_provisioning.ensure_topics(client, self._given)
        except clients.CLIENT_ERRORS as error:
            await clients.close_admin(client, self._given.close_timeout_s)
            raise clients.translate_error(what, error) from error
        except BaseException:
            await clients.close_admin(client, self._given.close_timeout_s)
            raise
        self._admin = client
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        client, self._admin = self._admin, None
        writers, self._writers = self._writers, []
        await asyncio.gather(*(opened.close() for opened in writers))
        if client is not None:
            await clients.close_admin(client, self._given.close_timeout_s)

    async def open_writer(self, service: topics.Service, instance: str) -> writer.KafkaWriter:
        """See ``port.Bus.open_writer``. Raises UnavailableError."""
        opened = await writer.open_writer(service, instance, self._given, self._clock)
        self._writers.append(opened)
        return opened

    async def materialize(
        self,
        wanted: Sequence[topics.Topic],
        start: port.Position = port.START,
        *,
        is_urgent: bool = True,
    ) -> AsyncGenerator[port.Batch, None]:
        """See ``port.Bus.materialize``. Waits while the broker is unavailable."""
        async with reader.open_reader(self._given, wanted, is_urgent=is_urgent) as source:
            await source.seek(start)
            read = reader.EMPTY_RESULT
            caught_up = False
            before: port.Position | None = None
            while True:
                position = source.position()
                is_first = not caught_up and all(
                    position.positions[name] >= end for name, end in source.ends.items()
                )
                caught_up = caught_up or is_first
                # A gap in the offsets or an announcement advances the position without records.
                if is_first or read.accepted or read.fenced or read.recreated or position != before:
                    yield port.Batch(
                        read.accepted,
                        position,
                        caught_up,
                        read.fenced,
                        read.recreated,
                        read.at_end,
                        read.announced,
                    )
                before = position
                read = await source.read()
                if read.recreated or source.is_missing:
                    await self._mend()

    async def _mend(self) -> None:
        """Create topics that were deleted, and restore the settings of recreated ones."""
        assert self._admin is not None, "enter the bus as an async context manager first"
        with contextlib.suppress(*clients.CLIENT_ERRORS, errors.ExternalError):
            await topic_provisioning.ensure_topics(self._admin, self._given)

    def consume(
        self, topic: topics.Topic, group: str
    ) -> AbstractAsyncContextManager[port.GroupConsumer]:
        """See ``port.Bus.consume``. Waits while the broker is unavailable."""
        assert self._admin is not None, "enter the bus as an async context manager first"
        return group_consumer.consuming(self._given, self._admin, topic, group, self._mend)

    async def last_record(self, topic: topics.Topic) -> envelope.Record | None:
        """See ``port.Bus.last_record``. Raises UnavailableError."""
        try:
            async with asyncio.timeout(self._given.append_timeout_s):
                return await reader.newest(self._given, topic)
        except TimeoutError:
            raise errors.UnavailableError(f"read {topic.name}", "the log is unavailable") from None

    async def is_reachable(self) -> bool:
        """See ``port.Bus.is_reachable``."""
        if self._admin is None:
            return False
        with contextlib.suppress(*clients.CLIENT_ERRORS):
            async with asyncio.timeout(REACHABLE_WITHIN_S):
                await self._admin.describe_topics([])
                return True
        return False
