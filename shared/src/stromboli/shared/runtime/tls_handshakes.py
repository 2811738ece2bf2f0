"""TLS handshakes within the limits of an HTTP server.

An event loop that serves TLS passes a connection to its protocol after the handshake. Until then it
is not counted, and a client that opens connections and sends nothing holds each of them for a
minute. This module accepts connections one by one and counts each handshake. Rules:

1. A handshake ends within ``header_timeout_s``. Otherwise the connection is closed.
2. Handshakes in progress and open connections together are at most ``max_connections``. Beyond
   that, ``RESERVED`` handshakes at a time are performed, so that their clients get the response
   503; further connections are closed without a response.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection

from stromboli.shared.runtime import http_protocol, telemetry

RESERVED = 16
"""Number of handshakes that are performed beyond the limit: few, because each only leads to a
503."""
RETRY_S = 1.0
"""Pause in seconds after a connection that cannot be accepted, e.g. because the process has no file
descriptor left."""


class Handshakes:
    """The handshakes of one server. ``connections``: its open connections. ``make_protocol``:
    creates the protocol of a new connection."""

    def __init__(
        self,
        tls: ssl.SSLContext,
        limits: http_protocol.Limits,
        connections: Collection[object],
        make_protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._tls = tls
        self._limits = limits
        self._connections = connections
        self._make_protocol = make_protocol
        self._under_way: set[asyncio.Task[bool]] = set()
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def accepting(self, bound: socket.socket) -> AsyncIterator[None]:
        """Accept connections on a listening socket during the block."""
        loop = asyncio.get_running_loop()
        bound.settimeout(0)
        loop.add_reader(bound, self._accept, bound)
        try:
            yield
        finally:
            self._is_closed = True
            loop.remove_reader(bound)
            if tasks := set(self._under_way):
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def _accept(self, bound: socket.socket) -> None:
        """Accept one connection; the event loop calls again while more are pending."""
        try:
            accepted, _ = bound.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            telemetry.log.warning("connection not accepted", reason=str(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(bound)
            loop.call_later(RETRY_S, self._retry, bound)
            return
        room = max(RESERVED, self._limits.max_connections - len(self._connections))
        if len(self._under_way) >= room:
            accepted.close()
            return
        accepted.settimeout(0)
        task = asyncio.create_task(self._shake_hands(accepted))
        self._under_way.add(task)
        task.add_done_callback(functools.partial(self._end, accepted))

    def _retry(self, bound: socket.socket) -> None:
        if not self._is_closed:
            asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    def _end(self, accepted: socket.socket, task: asyncio.Task[bool]) -> None:
        self._under_way.discard(task)
        if task.cancelled() or not task.result():
            accepted.close()

    async def _shake_hands(self, accepted: socket.socket) -> bool:
        """Perform the handshake. Returns whether the connection now has a protocol, which will
        close it."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.header_timeout_s,
            )
        except OSError:
            return False  # errors by the client: in TLS, of the connection, or a timeout
        except Exception as error:  # one connection must not end the others
            telemetry.log.error("handshake failed", error=type(error).__name__, exc_info=error)
            return False
        return True
