"""Mirrors one kind: lists and watches it, publishes changes, and marks how far it is synced."""

import asyncio
import contextlib

import structlog

from stromboli.monitor.core.reflector_state import ReflectorState, SyncPoint
from stromboli.monitor.outbox import Outbox
from stromboli.monitor.own_topics import OwnTopicsReader
from stromboli.shared import envelope, errors
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port, watches
from stromboli.shared.messages import cluster as messages
from stromboli.shared.runtime import runtime, telemetry

SLICE = 200
"""Objects of a list that are processed before other tasks run: a few milliseconds."""
NEVER = "0"
"""The version of a collection that does not exist."""
SERVED_LOOK_S = 10.0
"""Interval of checks whether a missing kind is served: definitions may be installed later."""

_log = structlog.get_logger(__name__)
_isolated = telemetry.meter.create_counter(
    "stromboli.monitor.isolated",
    description="Failures that were isolated to one object, or to one kind",
)


class Reflector:
    """Mirrors one kind into its snapshot topic. Two loops share its state: ``read`` and
    ``publish_sync_markers``."""

    def __init__(
        self,
        state: ReflectorState,
        outbox: Outbox,
        own_reader: OwnTopicsReader,
        writer: bus_port.Writer,
        cluster: port.Cluster,
        health: runtime.Health,
        clock: runtime.Clock,
    ) -> None:
        self.due = asyncio.Event()
        """When set, a sync marker is published as soon as possible."""
        self._state = state
        self._outbox = outbox
        self._own_log = own_reader
        self._writer = writer
        self._cluster = cluster
        self._health = health
        self._clock = clock
        self._fact = state.kind.plural
        self._watching: object = None  # the open stream, or why it cannot be opened
        self._saying = asyncio.Lock()
        self._backoff = runtime.Backoff()

    # --- reading ---------------------------------------------------------------------------

    async def read(self) -> None:
        """List if needed and watch, indefinitely. External errors make the monitor not ready and
        are retried.
        """
        while True:
            try:
                if self._state.state != "watching":
                    await self._list()
                await self._watch()
            except errors.ExpiredError as error:
                _log.info("watch expired", kind=self._fact, reason=error.reason)
                self._state.expired()
                await asyncio.sleep(self._backoff.next_s())  # a list alone does not end the error
            except errors.NotFoundError as error:
                if self._state.kind in kinds.OPTIONAL:
                    await self._do_without(error)
                else:
                    await self._back_off(error)
            except errors.ExternalError as error:
                await self._back_off(error)
            except errors.InvariantError:
                raise
            except Exception as error:
                # Other kinds continue. The state of this one is not trusted.
                _log.exception("kind isolated", kind=self._fact, exc_info=error)
                _isolated.add(1, {"kind": self._fact})
                self._state.expired()
                problem = f"{type(error).__name__}: {error}"
                await self._back_off(errors.TransientError(f"read {self._fact}", problem))

    async def _back_off(self, error: errors.ExternalError) -> None:
        """Wait after an error, also for a missing right or definition: it may be added later, and
        other kinds continue.
        """
        self._health.set(self._fact, str(error))
        await asyncio.sleep(self._backoff.next_s(error.retry_after_s))

    async def _do_without(self, error: errors.NotFoundError) -> None:
        """The API server does not serve this kind: publish that there are no objects of it, until
        it does.
        """
        _log.info("kind not served", kind=self._fact, reason=error.reason)
        self._state.list_begins()
        for draft in self._state.list_ends(NEVER, self._clock()):
            self._put(draft)
        self._watching = error
        self.due.set()
        try:
            while True:
                await asyncio.sleep(SERVED_LOOK_S)
                with contextlib.suppress(errors.ExternalError):
                    await self._cluster.list(self._state.kind)
                    return
        finally:
            self._watching = None
            self._state.expired()

    async def _list(self) -> None:
        self._state.list_begins()
        self._health.set(self._fact, "being listed")
        await self._draft_change(self._state.sync_point(self._clock()), 0)
        listing = await self._cluster.list(self._state.kind)
        for place, raw in enumerate(listing.items):
            if place % SLICE == SLICE - 1:
                await asyncio.sleep(0)
                await self._outbox.room()
            self._put(self._state.upsert(raw, self._clock()))
        for draft in self._state.list_ends(listing.resource_version, self._clock()):
            self._put(draft)
        _log.info("listed", kind=self._fact, objects=len(listing.items))
        self.due.set()

    async def _watch(self) -> None:
        """Watch until the server ends the stream."""
        stream = self._cluster.watch(self._state.kind, self._state.version)
        async with watches.closing(stream, self._backoff) as events:
            self._watching = stream
            self.due.set()
            try:
                async for event in events:
                    self._backoff.reset()
                    self._apply(event)
                    await self._outbox.room()
            finally:
                self._watching = None

    def _apply(self, event: port.WatchEvent) -> None:
        match event.type:
            case "BOOKMARK":
                self._state.bookmark(event.object)
                self.due.set()
            case "DELETED":
                self._put(self._state.delete(event.object, self._clock()))
            case _:
                self._put(self._state.upsert(event.object, self._clock()))

    def _put(self, draft: envelope.Draft | None) -> None:
        if draft is not None and isinstance(draft.message, messages.Unreadable):
            _isolated.add(1, {"kind": self._fact})
            _log.warning(
                "object not readable", kind=self._fact, key=draft.key, reason=draft.message.reason
            )
        self._outbox.put(draft)

    # --- sync markers --------------------------------------------------------------------------

    async def publish_sync_markers(self) -> None:
        """When due, publish overwritten keys again, then a sync marker."""
        while True:
            await self.due.wait()
            self.due.clear()
            await self._restore()
            await self._publish_if_synced()

    async def _restore(self) -> None:
        for key in self._state.overwritten:
            namespace, _, name = key.rpartition("/")
            raw: bytes | None = None
            try:
                raw = await self._cluster.get(self._state.kind, namespace, name)
            except errors.NotFoundError:
                pass
            except errors.ExternalError as error:
                _log.warning("not restored", kind=self._fact, key=key, reason=str(error))
                return
            self._put(self._state.restore(key, raw, self._clock()))

    async def _publish_if_synced(self) -> None:
        """Publish ``synced``, but only while a watch is open, and once the log has been read up to
        the sync point and has no overwritten keys: otherwise a restart would resume from a version
        whose records are missing.
        """
        watching = self._watching
        if watching is None:
            return
        mark = self._state.sync_point(self._clock())
        position = await self._outbox.settled()
        await self._own_log.reached(self._state.topic, position)
        if self._watching is watching and not self._state.overwritten:
            await self._draft_change(mark, position)
            self._health.set(self._fact, None)

    async def _draft_change(self, mark: SyncPoint, position: int) -> None:
        draft = self._state.sync_marker(mark, position)
        async with self._saying:  # a repeated "synced" must not follow a later "listing"
            await runtime.retry_until_available(
                lambda: self._writer.append(draft), "log", self._health
            )
