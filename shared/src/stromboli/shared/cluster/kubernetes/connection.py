"""Requests and streams to an API server: bytes in, bytes out, errors translated once.

Reads are retried a few times, writes never: only the caller knows whether a write may be repeated.
"""

import asyncio
import contextlib
import copy
import email.utils
import io
import ipaddress
import random
import socket
import urllib.parse
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import yarl
from aiohttp import helpers

from stromboli.shared import errors
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import status
from stromboli.shared.cluster.kubernetes.credentials import Credentials
from stromboli.shared.cluster.kubernetes.settings import KubernetesSettings
from stromboli.shared.runtime import runtime

READ_TRIES = 3
"""Number of attempts of a read before its error is raised: enough to survive the restart of one
replica."""
PROBE_TIMEOUT_S = 2.0
"""Seconds within which a server must answer its health check to count as reachable."""
BUFFER_BYTES = 1 << 20
"""Read-ahead of a stream in bytes. Objects are tens of KB, so each wake-up handles many events."""
LARGE_BYTES = 1 << 18
"""A body with more bytes than this is sent as a file, in chunks."""
KEPT_OPEN_S = 60.0
"""Seconds for which an idle connection is kept for the next requests. An API server keeps it for 90
s, and a new connection costs both sides a handshake of a few milliseconds.
"""
CLOSE_TIMEOUT_S = 2.0
"""Maximum seconds for which closing waits until its sockets are released, which takes a few
iterations of the event loop."""
_DEAD_PEER = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
"""Idle seconds, interval in seconds and count of TCP keepalive probes: a silent watch whose peer
has vanished is detected after 25 s instead of two hours. Some systems lack these options.
"""
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # inside a cluster, gzip costs more time than it saves
    "User-Agent": "stromboli",  # the field manager of our writes, and shown in audit logs
}

Query = Mapping[str, str]


class Connection:
    """Pooled connections to one API server with the credentials of one account."""

    def __init__(self, settings: KubernetesSettings, spread: random.Random | None) -> None:
        self._settings = settings
        self._spread = spread
        self._access = Credentials(settings)
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._impersonation: tuple[tuple[str, str], ...] = ()
        self._last_date = "", 0.0
        self._places = asyncio.Semaphore(settings.concurrency)
        self._patience = aiohttp.ClientTimeout(
            total=settings.request_timeout_s, sock_connect=settings.connect_timeout_s
        )

    async def open(self) -> None:
        """Read the configuration. Raises ConfigurationError if it is invalid."""
        await self._access.load()
        proxy, proxy_auth = _proxy_of(self._access.host)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                keepalive_timeout=KEPT_OPEN_S,
                limit=0,  # requests are bounded by the semaphore, watches by the number of kinds
                ssl=self._access.tls or True,
                socket_factory=self._make_socket,
            ),
            proxy=proxy,
            proxy_auth=proxy_auth,
            read_bufsize=BUFFER_BYTES,
            headers=_HEADERS,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
            await self._close_sockets()

    async def _close_sockets(self) -> None:
        """Close the sockets that the session left open. Aborted transports close their socket in
        the next iteration of the loop, but the transport of a cancelled request waits up to 30 s
        for the server to close TLS. If the loop is closed before, the socket is never released.
        """
        left = [each for each in self._sockets if each.fileno() >= 0]
        for each in left:
            with contextlib.suppress(OSError):  # the server closed it, or it never connected
                each.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while any(each.fileno() >= 0 for each in left):  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.001)

    def impersonating(self, user: str, groups: Sequence[str]) -> "Connection":
        """The same connections, with requests that impersonate this user.

        This process's account needs the right to impersonate the user and each group. Raises
        PermanentError for a name that no header can carry.
        """
        for name in (user, *groups):
            if not name or not name.isprintable():
                raise errors.PermanentError("impersonate", f"{name!r} is not a user or group name")
        connection = copy.copy(self)
        connection._impersonation = (
            ("Impersonate-User", user),
            *(("Impersonate-Group", group) for group in groups),
        )
        return connection

    async def read(
        self, path: str, what: str, query: Query | None = None, *, at_once: bool = False
    ) -> bytes:
        """GET, attempted up to ``READ_TRIES`` times. ``at_once``: do not wait for a free request
        slot. Raises ExternalError.
        """
        pauses = runtime.Backoff(self._spread)
        for _ in range(READ_TRIES - 1):
            try:
                return await self._call("GET", path, what, query, at_once=at_once)
            except errors.TransientError as error:
                await asyncio.sleep(pauses.next_s(error.retry_after_s))
        return await self._call("GET", path, what, query, at_once=at_once)

    async def write(
        self,
        method: str,
        path: str,
        what: str,
        body: bytes,
        content_type: str,
        *,
        query: Query | None = None,
        at_once: bool = False,
    ) -> bytes:
        """Send a write once, without retries; ``at_once`` as for ``read``. Raises ExternalError;
        after UnavailableError the write may have been executed.
        """
        return await self._call(method, path, what, query, body, content_type, at_once=at_once)

    def server_time(self) -> port.ServerTime | None:
        """The time in the last response; None if that has no valid time."""
        text, arrived_s = self._last_date
        try:
            at = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return None
        return None if at.tzinfo is None else port.ServerTime(at, arrived_s)

    async def answers(self, path: str) -> bool:
        """Whether the server answers within the probe timeout. A rejection is also an answer."""
        patience = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        try:
            async with self._request("GET", path, "probe", timeout=patience) as response:
                return response.status < 500
        except errors.ExternalError:
            return False

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, what: str, query: Query, *, may_be_silent: bool = False
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """The chunks of a long-running GET. Raises ExternalError on opening. Later errors end the
        stream, and so does a pause without data, unless ``may_be_silent``.
        """
        patience = aiohttp.ClientTimeout(
            sock_connect=self._settings.connect_timeout_s,
            sock_read=None if may_be_silent else self._settings.silence_timeout_s,
        )
        async with contextlib.AsyncExitStack() as stack:
            opening = self._request("GET", path, what, query, timeout=patience)
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    response = await stack.enter_async_context(opening)
            except TimeoutError:
                raise errors.UnavailableError(what, "no response in time") from None
            await _raise_for_status(what, response)
            stack.callback(_abort_stream, response)
            chunks = _chunks(response)
            await stack.enter_async_context(contextlib.aclosing(chunks))
            yield chunks

    async def _call(
        self,
        method: str,
        path: str,
        what: str,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = "",
        *,
        at_once: bool,
    ) -> bytes:
        headers = {"Content-Type": content_type} if content_type else {}
        async with contextlib.nullcontext() if at_once else self._places:
            for is_last in (False, True):
                options = {"timeout": self._patience, "data": _payload(body)}
                opened = self._request(method, path, what, query, headers, **options)
                async with opened as response:
                    if response.status == 401 and not is_last:
                        # The request was not executed: authentication failed.
                        await self._access.refresh()
                        continue
                    await _raise_for_status(what, response)
                    return await response.read()
        raise AssertionError("the last attempt returns or raises")

    @contextlib.asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        what: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to a request. Translates errors, also those that occur while the body is
        read.
        """
        if self._session is None:
            raise RuntimeError("enter the cluster as an async context manager first")
        url = self._access.host + urllib.parse.quote(path)
        if query:
            url += "?" + urllib.parse.urlencode(query)
        credentials = await self._access.headers()
        try:
            async with self._session.request(
                method,
                yarl.URL(url, encoded=True),
                headers=[*credentials.items(), *(headers or {}).items(), *self._impersonation],
                allow_redirects=False,
                **self._access.request_options,
                **options,
            ) as response:
                if response.status < 500:  # others may be of a proxy
                    arrived_s = asyncio.get_running_loop().time()
                    self._last_date = response.headers.get("Date", ""), arrived_s
                yield response
        except TimeoutError:  # before ClientError, since aiohttp's timeouts are both
            raise errors.UnavailableError(what, "no response in time") from None
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise errors.UnavailableError(what, reason) from error

    def _make_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        sock = socket.socket(family, kind, protocol)
        self._sockets.add(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _DEAD_PEER:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return sock


async def _raise_for_status(what: str, response: aiohttp.ClientResponse) -> None:
    """Raise the ExternalError for a response with a status above 299."""
    if response.status >= 300:
        body = await response.read()
        after = response.headers.get("Retry-After", "")
        raise status.translate(what, response.status, body, after)


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Chunks until the stream ends for any reason. The caller resumes a broken stream like one that
    ended."""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        async for chunk in response.content.iter_any():
            yield chunk


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """The body as aiohttp should send it: a small body unchanged, a large one as a file, since
    aiohttp warns about large bodies and sends files in chunks."""
    return body if body is None or len(body) <= LARGE_BYTES else io.BytesIO(body)


def _abort_stream(response: aiohttp.ClientResponse) -> None:
    """Abort an endless stream without the TLS close handshake, which may take seconds and outlast
    the event loop.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()


def _proxy_of(host: str) -> tuple[yarl.URL | None, aiohttp.BasicAuth | None]:
    """The proxy that the environment names for a server; none for loopback addresses, as in Go.

    With ``trust_env`` aiohttp would read the environment and ``~/.netrc`` for each request, each in
    a thread, and reject requests to a server that ``~/.netrc`` has a password for.
    """
    if _is_loopback(host):
        return None, None
    try:
        return helpers.get_env_proxy_for_url(yarl.URL(host))
    except LookupError:
        return None, None


def _is_loopback(host: str) -> bool:
    name = urllib.parse.urlsplit(host).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
