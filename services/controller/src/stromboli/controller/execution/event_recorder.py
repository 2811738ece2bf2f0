"""Writes Kubernetes Events one at a time, with lower priority than all other requests.

A repeated Event is one object whose ``count`` grows, as client-go writes it. ``Scheduled`` Events
of pods have the lowest priority and a rate limit: a gang of thousands must not flood the API server
with information that its pods already show.
"""

import asyncio
import contextlib
from collections import OrderedDict, deque
from datetime import datetime, timedelta

import msgspec
import structlog

from stromboli.controller import isolation
from stromboli.controller.core import commands, manifests
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.shared import decoding, errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import telemetry

_log = structlog.get_logger(__name__)
_written = telemetry.meter.create_counter(
    "stromboli.controller.events", description="Kubernetes Events, by result"
)
GROUP = "$background"
"""Request group of Events, and of conditions of pods by reconciles. Its request count soon exceeds
the count of any job, so under load it gets at most about one request in four."""
MOST_EVENTS = 1000
"""Maximum number of Events that wait to be written. Beyond it the oldest Events are dropped, since
Events are not state."""
MOST_SCHEDULED = 5000
MOST_COUNTED = 4096
"""Number of Events whose count is cached, so that a repetition costs one request; client-go's
number."""


class _Series(msgspec.Struct, rename="camel"):
    """The count and last time of an Event object."""

    count: int | None = None
    last_timestamp: datetime | None = None


_SERIES = decoding.decoder_of(_Series)


class EventRecorder:
    """Writes Events one at a time. ``scheduled_per_s``: rate limit of ``Scheduled`` Events of pods,
    per second; with 0 none is written."""

    def __init__(
        self, cluster: cluster_port.Cluster, limiter: RequestLimiter, scheduled_per_s: float
    ) -> None:
        self._cluster = cluster
        self._limiter = limiter
        self._scheduled_per_s = scheduled_per_s
        self._events: deque[commands.RecordEvent] = deque(maxlen=MOST_EVENTS)
        self._scheduled: deque[commands.RecordEvent] = deque(maxlen=MOST_SCHEDULED)
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._next_at = 0.0
        self._dropped = 0
        """Number of Events dropped since the queue was last empty."""
        self._news = asyncio.Event()
        self._stopping = False

    def record(self, event: commands.RecordEvent) -> None:
        """Queue an Event."""
        if len(self._events) == MOST_EVENTS:
            self._dropped += 1
            _written.add(1, {"result": "dropped"})
            if self._dropped == 1:  # one line for a burst of thousands, and its count at the end
                _log.warning("events dropped: they occur faster than they can be written")
        self._events.append(event)
        self._news.set()

    def record_scheduled(self, event: commands.RecordEvent) -> None:
        """Queue a ``Scheduled`` Event of a pod after all other Events."""
        if self._scheduled_per_s > 0:
            if len(self._scheduled) == MOST_SCHEDULED:
                _written.add(1, {"result": "dropped"})
            self._scheduled.append(event)
            self._news.set()

    def stop(self) -> None:
        """End ``run`` once the queued Events are written, except ``Scheduled`` Events."""
        self._stopping = True
        self._news.set()

    async def run(self) -> None:
        """Write Events until stopped."""
        while True:
            event = self._next()
            if event is not None:
                await isolation.run(lambda of=event: self._write(of), _ignored, "event")  # type: ignore[misc]
            elif self._stopping:
                return
            else:
                await self._wait()

    def _next(self) -> commands.RecordEvent | None:
        if self._events:
            return self._events.popleft()
        if self._dropped:
            _log.warning("events dropped", count=self._dropped)
            self._dropped = 0
        now = asyncio.get_running_loop().time()
        if self._stopping or not self._scheduled or now < self._next_at:
            return None
        self._next_at = max(self._next_at, now - 1.0) + 1 / self._scheduled_per_s
        return self._scheduled.popleft()

    async def _wait(self) -> None:
        self._news.clear()
        wait_s = self._next_at - asyncio.get_running_loop().time() if self._scheduled else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._news.wait()

    async def _write(self, event: commands.RecordEvent) -> None:
        try:
            is_new = await self._count(event)
        except errors.ExternalError as error:
            # Nothing depends on an Event, and a namespace that is being deleted accepts none.
            _log.warning("event not recorded", about=event.name, reason=error.reason)
            _written.add(1, {"result": "refused"})
        else:
            _written.add(1, {"result": "created" if is_new else "counted"})

    async def _create(self, event: commands.RecordEvent) -> bool:
        namespace = manifests.event_namespace(event)
        try:
            async with self._limiter.hold(GROUP):
                await self._cluster.create(kinds.EVENTS, namespace, manifests.event_body(event))
        except errors.AlreadyExistsError:
            await self._count_found(event)
            return False
        self._remember(event, 1)
        return True

    async def _count(self, event: commands.RecordEvent) -> bool:
        count = self._counts.get(_key(event))
        if count is None:
            return await self._create(event)
        try:
            await self._patch(event, count + 1)
        except errors.NotFoundError:
            return await self._create(event)  # it expired
        return False

    async def _count_found(self, event: commands.RecordEvent) -> None:
        """Count an Event of a previous leader, unless it is the same occurrence."""
        # An empty patch reads the Event without a further permission.
        series = _SERIES.decode(await self._send(event, b"{}"))
        count = series.count or 1
        self._remember(event, count)
        last = series.last_timestamp
        pause = timedelta() if event.recurs else commands.REPEATED_AFTER
        if last is None or last + pause < event.at.replace(microsecond=0):
            await self._patch(event, count + 1)

    async def _patch(self, event: commands.RecordEvent, count: int) -> None:
        await self._send(event, manifests.event_recurrence(event, count))
        self._remember(event, count)

    async def _send(self, event: commands.RecordEvent, patch: bytes) -> bytes:
        namespace, name = _key(event)
        async with self._limiter.hold(GROUP):
            return await self._cluster.patch(
                kinds.EVENTS, namespace, name, patch, patch_type="merge"
            )

    def _remember(self, event: commands.RecordEvent, count: int) -> None:
        key = _key(event)
        self._counts.pop(key, None)
        self._counts[key] = count
        if len(self._counts) > MOST_COUNTED:
            self._counts.popitem(last=False)


def _key(event: commands.RecordEvent) -> tuple[str, str]:
    return manifests.event_namespace(event), event.event_name


def _ignored(_: Exception) -> None:
    """Drop an Event whose write failed with an internal error, which was reported."""
