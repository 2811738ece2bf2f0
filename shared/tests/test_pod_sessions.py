"""Sessions at an API server that closes the connection as soon as it has sent everything."""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
import trustme
import uvloop

from stromboli.shared import errors
from stromboli.shared.cluster import session_frames
from stromboli.shared.cluster.kubernetes.pod_sessions import FixedAccess, WebSocketPodSessions
from stromboli.shared.cluster.pod_sessions import ExecRequest
from stromboli.testkit import records

AUTHORITY = trustme.CA()
CLIENT = ssl.create_default_context()
AUTHORITY.configure_trust(CLIENT)
OUTPUT = 3_000_000
CHUNK = b"\0" * 30_000
STATUS = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
WEB_SOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Of RFC 6455, section 1.3."""


@contextlib.contextmanager
def api_server() -> Iterator[str]:
    """The address of a server that answers one command, written as Go's crypto/tls closes: an alert
    and the end of the stream, without waiting for the client."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost").configure_cert(tls)
    with socket.create_server(("localhost", 0)) as listening:
        listening.settimeout(records.DEADLINE_S)
        thread = threading.Thread(target=_answer, args=(listening, tls))
        thread.start()
        yield f"https://localhost:{listening.getsockname()[1]}"
        thread.join()


def _answer(listening: socket.socket, tls: ssl.SSLContext) -> None:
    accepted, _ = listening.accept()
    with tls.wrap_socket(accepted, server_side=True) as connection:
        connection.settimeout(records.DEADLINE_S)
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65536)
        (key,) = re.findall(rb"(?i)sec-websocket-key: (\S+)", request)
        accept = base64.b64encode(hashlib.sha1(key + WEB_SOCKET).digest())
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        for _ in range(OUTPUT // len(CHUNK)):
            connection.sendall(_message(session_frames.STDOUT, CHUNK))
        connection.sendall(_message(session_frames.ERROR, json.dumps(STATUS).encode()))
        connection.settimeout(0)
        with contextlib.suppress(ssl.SSLWantReadError):
            connection.unwrap()  # the alert is sent; the client's is not waited for


def _message(channel: int, data: bytes) -> bytes:
    """A binary message in one frame with a length of two bytes."""
    return struct.pack(">BBHB", 0x82, 126, len(data) + 1, channel) + data


async def slowly_read(url: str) -> tuple[int, int]:
    """Bytes of output, and the exit code."""
    sessions = WebSocketPodSessions(FixedAccess(url, {}, tls=CLIENT))
    size = 0
    async with (
        asyncio.timeout(records.DEADLINE_S),
        sessions.exec("default", "p", ExecRequest(command=("any",))) as session,
    ):
        async for chunk in session.output():
            size += len(chunk.data)
            await asyncio.sleep(0.01)
    return size, session.exit_code()


def run(loop: Callable[[], asyncio.AbstractEventLoop]) -> tuple[int, int]:
    with api_server() as url, asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(slowly_read(url))


def test_output_and_exit_code_arrive_behind_the_end_of_the_connection() -> None:
    assert run(asyncio.SelectorEventLoop) == (OUTPUT, 3)


def test_an_event_loop_that_discards_output_is_named() -> None:
    with pytest.raises(errors.UnavailableError, match="uvloop discards"):
        run(uvloop.new_event_loop)
