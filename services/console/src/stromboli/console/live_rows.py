"""Lists that watches of REST keep up to date, with the token of one session.

::

    REST watch ── added, modified, deleted ──▶ reduce to a row ──▶ rows by key, version + 1
    page       ◀── rows of a synced list ─┘                        └──▶ readers of changes

Admission ends a stream when the rights of its token have to be checked again, and refuses the next
one if the token has lost them: then the list ends with that error, and pages show it. Rows of one
session are never used for another one, even with the same rights. A list that no page used for
``UNUSED_S`` is closed. A list beyond the bound of its session, or of all sessions, closes the least
recently used one.
Memory: the rows of ``most`` lists.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import structlog

from stromboli.client import AsyncClient
from stromboli.client.errors import ClientError, UnreachableError
from stromboli.client.operations import calls
from stromboli.shared.runtime import telemetry

MOST_OF_SESSION = 30
"""Maximum lists of one session. Its client has 100 connections: each list takes one of them, and
other requests need some."""
SYNCED_WITHIN_S = 10.0
"""How long a page waits for the first complete list, before it reports an error."""
PARTIAL_AFTER_S = 0.5
"""How long a page that can show a part of a list waits for the rest."""
UNUSED_S = 90.0
"""Time after which an unused list is closed. A page in the background closes its stream, and comes
back soon or not at all."""
TOGETHER_S = 0.25
"""Changes within this time cause one update of a page, so a page has at most four updates per
second."""
FIRST_TOGETHER_S = 0.05
"""The same for the first change after a quiet time, which a page shows sooner: the creation of a
job changes two lists within some milliseconds."""
HEARTBEAT_S = 15.0
_log = structlog.get_logger(__name__)
_changes = telemetry.meter.create_counter(
    "stromboli.console.changes", description="changes of objects that watches delivered"
)
_unread = telemetry.meter.create_counter(
    "stromboli.console.unread", description="objects that could not be decoded and are not shown"
)


class Keyed(Protocol):
    """A row with a key that is unique in its list."""

    @property
    def key(self) -> str:
        """Such as ``namespace/name``."""


R = TypeVar("R", bound=Keyed)
ListKey = tuple[str, Hashable]
"""The id of a session, and the name of a list."""


class Watched(msgspec.Struct, Generic[R], frozen=True):
    """What to watch. ``row`` makes the row of an object, or None for an object that is not shown;
    ``identify`` returns an object's key, also of a deleted object that has no row any more."""

    name: Hashable
    call: calls.Call[Any]
    row: Callable[[Any], R | None]
    identify: Callable[[Any], str]


class LiveRows(Generic[R]):
    """The rows of one list by key. ``version``: counts updates; ``error``: why the list ended;
    ``is_broken``: the watch has lost its connection, so that rows may be old."""

    def __init__(self, client: AsyncClient, watched: Watched[R]) -> None:
        self.rows: dict[str, R] = {}
        self.version = 0
        self.error: ClientError | None = None
        self.is_broken = False
        self.used_at = time.monotonic()
        self._changed = asyncio.Event()
        self._begun = asyncio.Event()
        self._synced = asyncio.Event()
        self._watched = watched
        self._task = asyncio.create_task(self._follow(client))

    @property
    def is_loading(self) -> bool:
        """Whether the first list is not complete yet."""
        return not self._synced.is_set()

    async def synced(self) -> None:
        """Wait until the list is complete. Raises ClientError if it ended or takes too long."""
        await self._wait_for(self._synced)

    async def begun(self) -> None:
        """Waits for the first row, then at most ``PARTIAL_AFTER_S`` for the complete list. Raises
        ClientError like ``synced``."""
        await self._wait_for(self._begun)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PARTIAL_AFTER_S):
                await self._synced.wait()
        if self.error is not None:
            raise self.error

    async def _wait_for(self, event: asyncio.Event) -> None:
        self.used_at = time.monotonic()
        try:
            async with asyncio.timeout(SYNCED_WITHIN_S):
                await event.wait()
        except TimeoutError:
            what = self._watched.call.what
            why = f"not complete after {SYNCED_WITHIN_S:g} s"
            raise UnreachableError(what, why) from None
        if self.error is not None:
            raise self.error

    async def changed(self, since: int) -> None:
        """Wait until the version differs, or the list ended."""
        while self.version == since and self.error is None:
            await self._changed.wait()

    async def close(self) -> None:
        """Ends the watch, and the streams of pages that follow it; such pages open it again."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._end(UnreachableError(self._watched.call.what, "its list was closed"))

    async def _follow(self, client: AsyncClient) -> None:
        call = msgspec.structs.replace(self._watched.call, read=self._read)
        incoming: dict[str, R] | None = self.rows
        try:
            watch = client.watch(call, on_break=self._broke)
            async with contextlib.aclosing(watch) as changes:
                async for change in changes:
                    self.is_broken = False
                    if change.type == "reset":
                        incoming = {}  # pages show the rows so far until the next `synced`
                    elif change.type == "synced":
                        self.rows = self.rows if incoming is None else incoming
                        incoming = None
                        self._synced.set()
                    elif change.object is not None:
                        rows = self.rows if incoming is None else incoming
                        key, row = change.object
                        if change.type == "deleted" or row is None:
                            rows.pop(key, None)
                        else:
                            rows[key] = row
                    _changes.add(1)
                    self._begun.set()
                    if incoming is None:
                        self._notify()
        except ClientError as error:
            self._end(error)

    def _end(self, error: ClientError) -> None:
        self.error = self.error or error
        self._begun.set()
        self._synced.set()
        self._notify()

    def _read(self, raw: bytes) -> tuple[str, R | None] | None:
        """The key and row of an object; None if decoding it or making its row fails, so that a
        defect hides one object only."""
        try:
            obj = self._watched.call.read(raw)
            return self._watched.identify(obj), self._watched.row(obj)
        except Exception as error:
            _unread.add(1)
            _log.warning("object is not shown", what=self._watched.call.what, error=repr(error))
            return None

    def _broke(self, error: ClientError) -> None:
        self.is_broken = True
        self._notify()

    def _notify(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()


class LiveLists:
    """The lists of all sessions: at most ``most`` in total, and ``MOST_OF_SESSION`` of a session. A
    new list beyond a bound closes the least recently used one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lists: dict[ListKey, LiveRows[Any]] = {}

    async def open(
        self, owner: str, client: AsyncClient, watched: Watched[R], *, may_be_partial: bool = False
    ) -> LiveRows[R]:
        """Returns a list of a session, opened if necessary, once it is complete. With
        ``may_be_partial``, a large new list is returned with its first rows, while it
        ``is_loading``. Raises ClientError."""
        key = (owner, watched.name)
        while (surplus := self._surplus(key)) is not None:
            await self._close(surplus)
        # No await between this lookup and the new list: two requests would open it twice.
        live_rows = self._lists.get(key)
        if live_rows is None or live_rows.error is not None:
            live_rows = self._lists[key] = LiveRows(client, watched)
        try:
            await (live_rows.begun() if may_be_partial else live_rows.synced())
        except ClientError:
            if self._lists.get(key) is live_rows and live_rows.error is not None:
                del self._lists[key]
            raise
        return live_rows

    async def close(self, owner: str) -> None:
        """Close the lists of a session."""
        for key in self._keys(owner):
            await self._close(key)

    async def close_unused(self) -> None:
        """Close the lists that no page used lately."""
        limit = time.monotonic() - UNUSED_S
        for key in [key for key, live_rows in self._lists.items() if live_rows.used_at < limit]:
            await self._close(key)

    async def close_all(self) -> None:
        """Closes the lists of all sessions."""
        for key in list(self._lists):
            await self._close(key)

    def __len__(self) -> int:
        return len(self._lists)

    def _surplus(self, key: ListKey) -> ListKey | None:
        """The list to close before this one is opened; None if there is room."""
        if key in self._lists:
            return None
        candidates = self._keys(key[0])
        if len(candidates) < MOST_OF_SESSION:
            candidates = list(self._lists)
            if len(candidates) < self._most:
                return None
        return min(candidates, key=lambda each: self._lists[each].used_at)

    def _keys(self, owner: str) -> list[ListKey]:
        return [key for key in self._lists if key[0] == owner]

    async def _close(self, key: ListKey) -> None:
        live_rows = self._lists.pop(key, None)  # another task may have closed it meanwhile
        if live_rows is not None:
            await live_rows.close()


def collecting_s(quiet_s: float) -> float:
    """How long changes are collected, ``quiet_s`` after the last group of changes."""
    return max(FIRST_TOGETHER_S, TOGETHER_S - quiet_s)


async def ticks(lists: Sequence[LiveRows[Any]]) -> AsyncIterator[bool]:
    """Yields True after each group of changes in any of the lists, and False as a heartbeat. Ends
    when a list ends."""
    versions = [it.version for it in lists]
    reported_at = -TOGETHER_S
    while True:
        for it in lists:
            it.used_at = time.monotonic()
        waits = [
            asyncio.ensure_future(it.changed(since))
            for it, since in zip(lists, versions, strict=True)
        ]
        try:
            done, _ = await asyncio.wait(
                waits, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()
        if done:
            await asyncio.sleep(collecting_s(time.monotonic() - reported_at))
            reported_at = time.monotonic()
        versions = [it.version for it in lists]
        yield bool(done)
        if any(it.error is not None for it in lists):
            return
