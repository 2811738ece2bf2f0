"""The state of watches and waits, shared by the blocking and the async client. Pure."""

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import httpx
import msgspec

from stromboli.client import errors, server
from stromboli.client.address import Address
from stromboli.client.events import Change, Event, Parser
from stromboli.client.operations import calls
from stromboli.client.phases import ENDS, phase_of
from stromboli.shared.api import batch

T = TypeVar("T")
SILENCE_S = 45.0
"""Seconds without a byte after which a stream counts as broken: the server sends a heartbeat every
15 s."""
CONNECT_WITHIN_S = 5.0
GRACE_S = 5.0
"""Seconds after the requested end of a stream before it counts as broken."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
"""Delays before a reconnect in seconds: they double from the first to the longest."""


class ResumingWatch(Generic[T]):
    """One watch over several connections.

    A server that was never reached is an error. After that, failures lead to a reconnect, and
    ``on_break`` is called with the first one.
    """

    def __init__(
        self,
        call: calls.Call[T],
        address: Address,
        on_break: Callable[[errors.ClientError], object] | None = None,
    ) -> None:
        self.call = call
        self._address = address
        self._on_break = on_break
        self._was_reached = False
        self._parser = Parser()
        self._failures = 0

    def request(self, left_s: float | None) -> dict[str, Any]:
        """Arguments of httpx's ``stream``, from the position of the last connection. ``left_s`` is
        the longest duration in seconds."""
        headers = {"accept": "text/event-stream", **self.call.headers}
        if self._parser.last_id:
            headers["last-event-id"] = self._parser.last_id
        query = dict(self.call.query)
        silence_s = SILENCE_S
        if left_s is not None:
            query["timeoutSeconds"] = f"{max(left_s, 0.001):.3f}"
            silence_s = min(SILENCE_S, left_s + GRACE_S)
        return {
            **server.request(self.call),
            "params": query or None,
            "headers": headers,
            "timeout": httpx.Timeout(silence_s, connect=CONNECT_WITHIN_S),
        }

    def opened(self, response: httpx.Response) -> bool:
        """Whether the response is a stream; if not, pass its body to ``refuse``."""
        kind = response.headers.get("content-type", "")
        return response.is_success and kind.startswith("text/event-stream")

    def refuse(self, response: httpx.Response, body: bytes) -> None:
        """Handle a response that is not a stream: returns if a retry is useful, else raises."""
        kind = response.headers.get("content-type", "")
        try:
            calls.answer(self.call, response.status_code, kind, body)
        except errors.UnavailableError as error:
            if not self._was_reached:
                raise
            self._failed(error)
        else:
            raise errors.UnreadableError(self.call.what, f"{self.call.path} is not an event stream")

    def broke(self, error: Exception) -> None:
        """Handle a failed connection. Raises UnreachableError if the server was never reached."""
        connection_error = server.unreachable(self._address, error, CONNECT_WITHIN_S)
        if not self._was_reached:
            raise connection_error from None
        self._failed(connection_error)

    def feed(self, line: str) -> Change[T] | None:
        """The change that a line completes. Raises UnreadableError."""
        event = self._parser.feed(line)
        self._was_reached, self._failures = True, 0
        return self._change(event) if event else None

    def pause_s(self) -> float:
        """Seconds to wait before the next connection."""
        self._parser.broken()
        doubled = FIRST_PAUSE_S * 2.0 ** min(self._failures, 10)
        return min(doubled, LONGEST_PAUSE_S)

    def _failed(self, error: errors.ClientError) -> None:
        self._failures += 1
        if self._failures == 1 and self._on_break is not None:
            self._on_break(error)

    def _change(self, event: Event) -> Change[T] | None:
        if event.type in ("added", "modified", "deleted"):
            try:
                api_object = self.call.read(event.data.encode())
            except msgspec.DecodeError as error:
                raise errors.UnreadableError(self.call.what, str(error)) from None
            return Change(event.type, api_object)  # type: ignore[arg-type]  # one of the three
        if event.type in ("reset", "synced"):
            return Change(event.type)  # type: ignore[arg-type]  # the two just named
        return None


class JobWait:
    """The wait for a phase of a job: read the job, watch it for ``left_s``, pause for ``pause_s``,
    and repeat.

    The job is identified by its uid, so a later job with its name ends the wait. Times are seconds
    of a monotonic clock.
    """

    def __init__(
        self,
        what: str,
        wanted: frozenset[str],
        timeout_s: float | None,
        now: float,
        on_change: Callable[[batch.Job], object] | None = None,
        on_break: Callable[[errors.ClientError], object] | None = None,
    ) -> None:
        self._what = what
        self._on_change = on_change
        self._on_break = on_break
        self._wanted = wanted
        self._timeout_s = timeout_s
        self._until = math.inf if timeout_s is None else now + timeout_s
        self._pause_s = FIRST_PAUSE_S
        self._uid = ""
        self._phase = "Pending"
        self._is_there = self._is_broken = False

    def observe_job(self, job: batch.Job) -> batch.Job | None:
        """The job if it is in a wanted phase. Raises GoneError."""
        wanted_job = self.seen(Change("added", job))
        self._is_there = self._is_broken = False  # the watch that follows starts with a list
        return wanted_job

    def seen(self, change: Change[batch.Job]) -> batch.Job | None:
        """The job once it is in a wanted phase or ended. Raises GoneError, NotFoundError."""
        job = change.object
        if change.type == "reset":
            self._is_there = False
        elif change.type == "synced" and not self._is_there:
            raise self._absent()
        elif job is not None:
            if change.type == "deleted" or job.metadata.uid != (self._uid or job.metadata.uid):
                raise errors.GoneError(self._what, "it was deleted during the wait")
            self._uid, self._is_there = job.metadata.uid, True
            self._phase = phase_of(job)
            if self._on_change is not None:
                self._on_change(job)
            if self._phase in self._wanted | ENDS:
                return job
        return None

    def handle_error(self, error: errors.ClientError) -> None:
        """Ignore transient errors once the job was read, and a missing permission to watch it.
        Raises other errors."""
        if isinstance(error, errors.NotFoundError):
            raise self._absent() from None
        is_away = isinstance(error, errors.UnavailableError | errors.UnreachableError)
        if not self._uid or not (is_away or isinstance(error, errors.ForbiddenError)):
            raise error
        if is_away and not self._is_broken and self._on_break is not None:
            self._on_break(error)
        self._is_broken = self._is_broken or is_away

    def left_s(self, now: float) -> float | None:
        """Seconds until the timeout; None without one."""
        return None if self._timeout_s is None else max(self._until - now, 0.0)

    def pause_s(self, now: float) -> float:
        """Seconds to wait before the next read. Raises TimedOutError after the timeout."""
        if now >= self._until:
            reason = f"still {self._phase} after {self._timeout_s:g} s"
            raise errors.TimedOutError(self._what, reason)
        pause_s = min(self._pause_s, self._until - now)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return pause_s

    def _absent(self) -> errors.ClientError:
        if self._uid:
            return errors.GoneError(self._what, "it was deleted during the wait")
        return errors.NotFoundError(self._what, "not found", 404)
