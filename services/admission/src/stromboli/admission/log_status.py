"""The state of the services as the log shows it: the newest record of each topic.

An answer reads one record of each topic and is reused for ``KEPT_S``, so that viewers cannot load
the broker. If a topic cannot be read in time, the answer fails; if Leases cannot be read, the
answer contains a warning.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from stromboli.shared import envelope, errors, topics
from stromboli.shared.api.views import system_health
from stromboli.shared.bus import port
from stromboli.shared.messages import log, scheduling
from stromboli.shared.runtime import runtime

KEPT_S = 2.0
WITHIN_S = 5.0
SHOWN = (
    topics.SYNC,
    topics.JOBS,
    topics.DECISIONS,
    topics.LEASE,
    topics.EXPLANATIONS,
    topics.OUTCOMES,
    topics.BATCH_EVENTS,
    topics.REVIEWS,
    topics.DEAD_LETTERS,
)
"""Topics whose newest records show the activity of the services."""


Leases = Callable[[], Awaitable[tuple[system_health.LeaderStatus, ...]]]
"""Reads the leaders that hold Leases of Kubernetes. Raises ExternalError."""


async def no_leases() -> tuple[system_health.LeaderStatus, ...]:
    """The leaders of a system without leases in the cluster."""
    return ()


class LogStatus:
    """Answers with the state of the log. ``read_up_to``: topic -> the offset up to which this
    process has read the topic. ``leases``: reads the leaders of services whose leases are not in
    the log."""

    def __init__(
        self,
        bus: port.Bus,
        health: runtime.Health,
        read_up_to: Mapping[str, int],
        clock: runtime.Clock,
        leases: Leases = no_leases,
    ) -> None:
        self._leases = leases
        self._bus = bus
        self._health = health
        self._read_up_to = read_up_to
        self._clock = clock
        self._reading = asyncio.Lock()
        self._kept: tuple[float, system_health.SystemHealth] | None = None

    async def read(self) -> system_health.SystemHealth:
        """The state of the log, at most ``KEPT_S`` old. Raises UnavailableError, TransientError."""
        async with self._reading:
            now_s = asyncio.get_running_loop().time()
            if self._kept is None or now_s - self._kept[0] >= KEPT_S:
                self._kept = now_s, await self._read()
            return self._kept[1]

    async def _read(self) -> system_health.SystemHealth:
        try:
            async with asyncio.timeout(WITHIN_S):
                records = await asyncio.gather(*map(self._bus.last_record, SHOWN))
        except TimeoutError:
            reason = f"the log did not answer within {WITHIN_S:g} s"
            raise errors.UnavailableError("system health", reason) from None
        leaders, warning = await self._of_leases()
        newest = {topic: record for topic, record in zip(SHOWN, records, strict=True) if record}
        letters = newest.get(topics.DEAD_LETTERS)
        return system_health.SystemHealth(
            at=self._clock(),
            problems=self._health.problems,
            warnings={**self._health.warnings, **warning},
            topics=tuple(self._topic(topic, newest.get(topic)) for topic in SHOWN),
            leaders=(*self._leaders(newest.get(topics.LEASE)), *leaders),
            dead_letters=0 if letters is None else letters.offset + 1,
            last_dead_letter=None if letters is None else _dead_letter(letters),
        )

    async def _of_leases(
        self,
    ) -> tuple[tuple[system_health.LeaderStatus, ...], dict[str, str]]:
        try:
            async with asyncio.timeout(WITHIN_S):
                return await self._leases(), {}
        except TimeoutError:
            return (), {"leases": f"the API server did not answer within {WITHIN_S:g} s"}
        except errors.ExternalError as error:
            return (), {"leases": f"the leaders of monitor and controller cannot be read: {error}"}

    def _topic(
        self, topic: topics.Topic, last: envelope.Record | None
    ) -> system_health.TopicStatus:
        end = 0 if last is None else last.offset + 1
        read = self._read_up_to.get(topic.name)
        return system_health.TopicStatus(
            name=topic.name,
            writer=topic.writer or "all",
            end=end,
            last_at=None if last is None else last.time,
            last_type="" if last is None else last.type,
            lag=None if read is None else max(0, end - read),
        )

    def _leaders(self, last: envelope.Record | None) -> tuple[system_health.LeaderStatus, ...]:
        message = None if last is None else _decoded(last)
        if last is None or not isinstance(message, scheduling.LeaseRenewed):
            return ()
        ends_at = last.time + timedelta(seconds=message.duration_s)
        return (
            system_health.LeaderStatus(
                service="scheduler",
                holder=message.holder,
                duration_s=message.duration_s,
                renewed_at=last.time,
                is_expired=self._clock() > ends_at,
            ),
        )


def _dead_letter(record: envelope.Record) -> system_health.DeadLetterStatus | None:
    message = _decoded(record)
    if not isinstance(message, log.DeadLetter):
        return None
    return system_health.DeadLetterStatus(
        topic=message.topic,
        offset=message.offset,
        key=message.key,
        reported_by=message.reported_by,
        reason=message.reason,
        at=record.time,
    )


def _decoded(record: envelope.Record) -> object:
    """The message; None for a message of a later version."""
    try:
        return envelope.decode(record)
    except errors.UndecodableError:
        return None
