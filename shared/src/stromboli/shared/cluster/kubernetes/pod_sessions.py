"""``WebSocketPodSessions``: sessions in pods over Kubernetes' WebSocket protocol.

The client of kubernetes-asyncio (``stream.WsApiClient``) negotiates version 4 only, in which stdin
cannot be closed. This adapter uses its credentials and aiohttp's WebSockets.

Run it on asyncio's own event loop. When a server closes a TLS connection, uvloop discards data that
it has received and not yet delivered: the end of an output of more than 100 KiB, with the exit code
(https://github.com/MagicStack/uvloop/pull/661).
"""

import asyncio
import contextlib
import ssl
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import aiohttp
import msgspec
import yarl

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import pod_sessions, session_frames
from stromboli.shared.cluster.kubernetes.credentials import Credentials
from stromboli.shared.cluster.kubernetes.settings import KubernetesSettings

OPEN_WITHIN_S = 30.0
"""The time limit for opening a session, in seconds: the kubelet starts the command before it
responds."""
DISCARDS = "uvloop discards output when a server closes the connection; use asyncio's event loop"
_STREAMS: dict[int, Literal["stdout", "stderr"]] = {
    session_frames.STDOUT: "stdout",
    session_frames.STDERR: "stderr",
}


class Access(Protocol):
    """Provides the address of a server and the credentials of requests."""

    tls: ssl.SSLContext | None

    @property
    def host(self) -> str:
        """Scheme, host and port, possibly with a path prefix."""

    @property
    def request_options(self) -> dict[str, Any]:
        """aiohttp's options for this server."""

    async def headers(self) -> dict[str, str]:
        """The headers of a request."""


class FixedAccess(msgspec.Struct):
    """Access to a server with a fixed address and fixed headers."""

    host: str
    fixed_headers: dict[str, str]
    request_options: dict[str, Any] = {}
    tls: ssl.SSLContext | None = None

    async def headers(self) -> dict[str, str]:
        """The headers of a request."""
        return self.fixed_headers


async def kubeconfig_access(settings: KubernetesSettings | None = None) -> Access:
    """The API server of the kubeconfig, with the user's own rights. Raises ConfigurationError."""
    access = Credentials(settings or KubernetesSettings())
    await access.load()
    return access


class WebSocketPodSessions:
    """Sessions in pods, through an API server or another server with the same paths."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @contextlib.asynccontextmanager
    async def exec(
        self, namespace: str, pod: str, request: pod_sessions.ExecRequest
    ) -> AsyncIterator[pod_sessions.ExecSession]:
        """Run a command in a container."""
        what = f"run a command in Pod {namespace}/{pod}"
        query = [("command", word) for word in request.command]
        query += [("container", request.container)] if request.container else []
        query += [("stdout", "true"), ("stderr", "false" if request.tty else "true")]
        query += [("stdin", "true")] if request.stdin else []
        query += [("tty", "true")] if request.tty else []
        path = kinds.PODS.path(namespace, pod, "exec")
        async with self._open(path, query, session_frames.EXEC_PROTOCOLS, what) as socket:
            yield _RemoteExec(socket, what)

    @contextlib.asynccontextmanager
    async def connect(
        self, namespace: str, pod: str, port: int
    ) -> AsyncIterator[pod_sessions.PodConnection]:
        """Connect to a port of a pod."""
        what = f"connect to port {port} of Pod {namespace}/{pod}"
        path = kinds.PODS.path(namespace, pod, "portforward")
        protocols = (session_frames.FORWARD_PROTOCOL,)
        async with self._open(path, [("ports", str(port))], protocols, what) as socket:
            yield _RemoteConnection(socket, what)

    @contextlib.asynccontextmanager
    async def _open(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str], what: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        url = f"{self._access.host}{urllib.parse.quote(path)}?{urllib.parse.urlencode(query)}"
        connector = aiohttp.TCPConnector(ssl=self._access.tls or True)
        async with contextlib.AsyncExitStack() as stack:
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            opened = session.ws_connect(
                yarl.URL(url, encoded=True),
                headers=_headers(await self._access.headers()),
                protocols=protocols,
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                **self._access.request_options,
            )
            try:
                async with _time_limit(what):
                    socket = await stack.enter_async_context(opened)
            except aiohttp.WSServerHandshakeError as error:
                raise _refusal(error.status, what) from None
            except (aiohttp.ClientError, OSError) as error:
                raise errors.UnavailableError(what, str(error) or type(error).__name__) from None
            yield socket


class _RemoteExec:
    """A command that runs in a container, over a WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, what: str) -> None:
        self._socket = socket
        self._what = what
        self._status: session_frames.Status | None = None

    async def write(self, data: bytes) -> None:
        """Write to stdin."""
        await _send(self._socket, session_frames.frame(session_frames.STDIN, data))

    async def close_stdin(self) -> None:
        """Close stdin. Raises UnsupportedError at an API server without version 5."""
        if self._socket.protocol != session_frames.EXEC_PROTOCOLS[0]:
            reason = "the API server cannot close stdin; Kubernetes can from version 1.30 on"
            raise errors.UnsupportedError(self._what, reason)
        await _send(self._socket, session_frames.close_of(session_frames.STDIN))

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""
        await _send(self._socket, session_frames.resize(columns, rows))

    async def output(self) -> AsyncGenerator[pod_sessions.Chunk, None]:
        """The output until the command has ended."""
        async for data in _messages(self._socket):
            channel = data[0]
            if channel in _STREAMS and len(data) > 1:
                yield pod_sessions.Chunk(_STREAMS[channel], data[1:])
            elif channel == session_frames.ERROR and len(data) > 1:
                with contextlib.suppress(msgspec.DecodeError):
                    self._status = session_frames.status(data[1:])
                return

    def exit_code(self) -> int:
        """The exit code from the command's status."""
        if self._status is None:
            reason = (
                f"the connection was lost before the command ended (code {self._socket.close_code})"
            )
            if type(asyncio.get_running_loop()).__module__.partition(".")[0] == "uvloop":
                reason += f"; {DISCARDS}"
            raise errors.UnavailableError(self._what, reason)
        if (code := self._status.exit_code) is None:
            raise errors.InvalidError(self._what, self._status.message or self._status.reason)
        return code


class _RemoteConnection:
    """A connection to a port of a pod, over a WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, what: str) -> None:
        self._messages = _messages(socket)
        self._socket = socket
        self._what = what
        self._opened: set[int] = set()

    async def read(self) -> bytes:
        """The next bytes, without the first message of each channel, which only contains the
        port."""
        async for data in self._messages:
            channel, content = data[0], data[1:]
            if channel not in self._opened:
                self._opened.add(channel)
            elif channel == session_frames.FORWARD_ERROR and content:
                raise errors.InvalidError(self._what, content.decode(errors="replace").strip())
            elif channel == session_frames.DATA and content:
                return content
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        await _send(self._socket, session_frames.frame(session_frames.DATA, data))


async def _messages(socket: aiohttp.ClientWebSocketResponse) -> AsyncGenerator[bytes, None]:
    """The messages of a socket as bytes; text messages are encoded."""
    async for message in socket:
        if message.type == aiohttp.WSMsgType.BINARY and message.data:
            yield message.data
        elif message.type == aiohttp.WSMsgType.TEXT and message.data:
            yield message.data.encode()


async def _send(socket: aiohttp.ClientWebSocketResponse, data: bytes) -> None:
    with contextlib.suppress(aiohttp.ClientError, OSError):
        await socket.send_bytes(data)


def _headers(credentials: Mapping[str, str]) -> dict[str, str]:
    return {**credentials, "User-Agent": "stromboli"}


@contextlib.asynccontextmanager
async def _time_limit(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(OPEN_WITHIN_S):
            yield
    except TimeoutError:
        raise errors.UnavailableError(what, f"no response within {OPEN_WITHIN_S:g} s") from None


def _refusal(status: int, what: str) -> errors.ExternalError:
    """The error for a rejected session, from the HTTP status alone: aiohttp does not keep the body
    of the response."""
    match status:
        case 401:
            return errors.ForbiddenError(what, "the server rejected the credentials")
        case 403:
            reason = "you lack the right to create pods/exec or pods/portforward in this namespace"
            return errors.ForbiddenError(what, reason)
        case 404:
            return errors.NotFoundError(what, "the pod does not exist")
        case 400 | 409 | 422:
            return errors.InvalidError(what, "the container does not exist or is not running")
        case 501:
            return errors.UnsupportedError(
                what, "the pod's node does not support commands in containers"
            )
        case _:
            return errors.UnavailableError(what, f"the server answered with status {status}")
