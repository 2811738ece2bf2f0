"""Watches over the event history of the embedded cluster."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import msgspec

from stromboli.embedded.cluster.state import State, resource_of
from stromboli.shared import errors
from stromboli.shared.cluster import port


class Watches:
    """All watches read the same event history, each from its own position; one that lags too far
    expires."""

    def __init__(self, state: State, bookmark_after_s: float) -> None:
        self._state = state
        self._bookmark_after_s = bookmark_after_s
        self._bookmarks_asked = 0
        self.is_open = False

    def bookmark(self) -> None:
        """Make every watch send a bookmark."""
        self._bookmarks_asked += 1
        self._state.wake()

    async def watch(
        self, kind: port.AnyKind, version: str, what: str
    ) -> AsyncGenerator[port.WatchEvent, None]:
        """Yield changes of a kind after a version. Raises ExpiredError if changes after it are no
        longer kept, and UnavailableError if the cluster is closed, so that a client that restarts
        ended watches does not loop.
        """
        if not self.is_open:
            raise errors.UnavailableError(what, "the cluster is closed")
        behind = _number(version, what)
        if not self._state.oldest <= behind <= self._state.version:
            raise errors.ExpiredError(what, f"version {version} is not in the history; list again")
        index = self._state.index_behind(behind)
        resource = resource_of(kind)
        answered = self._bookmarks_asked
        silent_until = self._silence()
        while self.is_open:
            fresh = self._state.events_from(index)
            if fresh is None:
                raise errors.ExpiredError(what, "the watch lags behind the oldest kept event")
            index += len(fresh)
            reached = fresh[-1].version if fresh else self._state.version
            for event in fresh:
                if event.key.resource == resource:
                    yield port.WatchEvent(event.type, event.stored.raw)
                    silent_until = self._silence()
            if self._state.version != reached:
                continue
            is_asked = answered < self._bookmarks_asked
            if is_asked or asyncio.get_running_loop().time() >= silent_until:
                answered = self._bookmarks_asked
                yield _bookmark(kind, reached)
                silent_until = self._silence()
            else:
                await self._grows(resource, silent_until)

    def _silence(self) -> float:
        """Return the loop time until which an idle watch sends no bookmark."""
        return asyncio.get_running_loop().time() + self._bookmark_after_s

    async def _grows(self, resource: str, until: float) -> None:
        """Wait until events may be available, or a bookmark is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._state.growth(resource)


def _number(version: str, what: str) -> int:
    if version in ("", "0"):
        raise errors.UnsupportedError(f"{what} from the beginning", "list first")
    if not version.isdecimal():
        raise errors.InvalidError(what, f"{version!r} is not a version")
    return int(version)


def _bookmark(kind: port.AnyKind, version: int) -> port.WatchEvent:
    return port.WatchEvent(
        "BOOKMARK",
        msgspec.json.encode(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"resourceVersion": str(version)},
            }
        ),
    )
