"""HTTP/1.1 connections with limits: uvicorn's protocol plus timeouts and a connection limit.

uvicorn bounds only the idle time between two requests. A client that sends its headers or its body
byte by byte would hold a connection indefinitely (*slow loris*). Rules:

1. A request's headers arrive within ``header_timeout_s`` after the connection opens, or after the
   first byte of a later request. Otherwise the answer is 408, and the connection is closed.
2. A request's body makes progress: in each period of ``body_timeout_s`` at least
   ``MIN_BODY_BYTES_PER_S`` arrive on average, or the body ends. Periods in which the server itself
   paused reading do not count.
3. If ``max_connections`` connections are open, a new one is answered with 503 and closed.
4. What arrived before a time limit counts, even if it is read later: after the machine has stopped
   for seconds, timers may fire before the event loop reads. So each timer that would end a
   connection lets the loop read first.

A response of any length may take any time: watches stream for hours.
"""

import asyncio
from typing import ClassVar

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MIN_BODY_BYTES_PER_S = 256
"""Minimum average rate: far below that of any real network, and far above that of a client that
sends one byte per second."""

READ_FIRST_S = 0.001
"""From a timer to the end of its connection: the event loop reads at least once meanwhile."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one HTTP server."""

    header_timeout_s: float = 15.0
    """Seconds for the headers of a request, and for the TLS handshake before
    (``tls_handshakes``)."""
    body_timeout_s: float = 30.0
    """Seconds within which a request's body has to make progress."""
    max_connections: int = 2_000
    """Maximum number of open connections; each takes about 50 kB."""


class LimitedProtocol(H11Protocol):
    """One connection. Subclasses set ``limits``."""

    limits: ClassVar[Limits] = Limits()
    _timer: asyncio.TimerHandle | None = None
    _is_body_timer = False
    _body_bytes = 0
    _was_paused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and wait for its first request."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, "too many connections", (b"retry-after", b"1"))
            return
        self._watch_progress()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process the data, and note progress."""
        if self.transport.is_closing():
            return
        self._body_bytes += len(data)
        super().data_received(data)
        self._was_paused |= self.flow.read_paused
        self._watch_progress()

    def timeout_keep_alive_handler(self) -> None:
        """Close the idle connection, unless its next request is read first."""
        close = super().timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(READ_FIRST_S, close)

    @property
    def _current_cycle(self) -> RequestResponseCycle | None:
        """The last request; None before the first one."""
        return self.cycle

    def _watch_progress(self) -> None:
        """Set the timer for the state of the request: for its headers, for its body, or none."""
        cycle = self._current_cycle
        waits_for_headers = self.conn.their_state is h11.IDLE and (
            cycle is None or cycle.response_complete
        )
        waits_for_body = self.conn.their_state is h11.SEND_BODY
        if not (waits_for_headers or waits_for_body) or self.transport.is_closing():
            self._stop_timer()
        elif self._timer is None or self._is_body_timer != waits_for_body:
            self._start_timer(is_body=waits_for_body)

    def _start_timer(self, *, is_body: bool) -> None:
        self._stop_timer()
        self._is_body_timer = is_body
        self._body_bytes, self._was_paused = 0, False
        timeout = self.limits.body_timeout_s if is_body else self.limits.header_timeout_s
        self._timer = self.loop.call_later(timeout, self._read_first)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read_first(self) -> None:
        self._timer = self.loop.call_later(READ_FIRST_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        expected = self.limits.body_timeout_s * MIN_BODY_BYTES_PER_S
        if self._is_body_timer and (self._was_paused or self._body_bytes >= expected):
            self._start_timer(is_body=True)
            return
        what = "body" if self._is_body_timer else "headers"
        self._refuse(408, f"the request's {what} did not arrive in time")

    def _refuse(self, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
        """Send an error response, if no response has begun, and close the connection."""
        cycle, has_begun = self._current_cycle, False
        if cycle is not None and not cycle.response_complete:
            has_begun = cycle.response_started
            cycle.disconnected = True  # the application writes nothing after this response
            cycle.message_event.set()
        if not has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = f"{reason}\n".encode()
            fields = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            fields += [(b"content-length", str(len(body)).encode()), *headers]
            for event in (
                h11.Response(status_code=status, headers=fields),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def limited(limits: Limits) -> type[LimitedProtocol]:
    """A protocol class with these limits, for uvicorn."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
