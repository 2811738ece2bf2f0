"""Slow and too many clients over real sockets: each is answered and closed in bounded time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvicorn
from litestar import Litestar, Request, post
from uvicorn.server import ServerState

from stromboli.shared.runtime import http, http_protocol
from stromboli.testkit import records

FAST = http_protocol.Limits(header_timeout_s=0.1, body_timeout_s=0.1)
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@post("/size", status_code=200)
async def size(request: Request[Any, Any, Any]) -> int:
    return len(await request.body())


@contextlib.asynccontextmanager
async def served(limits: http_protocol.Limits) -> AsyncIterator[int]:
    app = Litestar([size], openapi_config=None, logging_config=None)
    async with http.serving(app, http.listen("127.0.0.1", 0), limits=limits) as port:
        yield port


@contextlib.asynccontextmanager
async def connected(port: int, *sent: bytes) -> AsyncIterator[Pair]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for each in sent:
            writer.write(each)
            await writer.drain()
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """All that the server sends until it closes the connection."""
    async with asyncio.timeout(records.DEADLINE_S):
        return await reader.read()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /size HTTP/1.1\r\nHost: a\r\n",
        b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12",
        b"POST /size HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
    ],
    ids=["nothing", "half of the headers", "half of the body", "a chunk"],
)
async def test_a_stalled_request_gets_408_and_is_closed(sent: bytes) -> None:
    async with served(FAST) as port, connected(port, sent) as (reader, _):
        assert (await answer(reader)).startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_sends_byte_after_byte_is_cut_off() -> None:
    async with (
        served(FAST) as port,
        connected(port, b"POST /size HTTP/1.1\r\nHost: a\r\n") as (reader, writer),
    ):

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                while not writer.is_closing():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(records.DEADLINE_S):
            # A byte that arrives at the same time resets the connection behind the answer.
            assert b" 408 " in await reader.readline()
        dripping.cancel()


class Timer:
    """A timer of ``ManualTimers``."""

    def __init__(self, due_s: float, expire: Callable[[], object]) -> None:
        self.due_s, self.expire, self.is_cancelled = due_s, expire, False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualTimers:
    """The running event loop; its timers are due when the test moves the clock."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._timers: list[Timer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio.get_running_loop(), name)

    def call_later(self, delay_s: float, expire: Callable[[], object]) -> Timer:
        self._timers.append(Timer(self._now_s + delay_s, expire))
        return self._timers[-1]

    def advance(self, seconds: float) -> None:
        until_s = self._now_s + seconds
        while due := [timer for timer in self._timers if timer.due_s <= until_s]:
            first = min(due, key=lambda timer: timer.due_s)
            self._timers.remove(first)
            self._now_s = first.due_s
            if not first.is_cancelled:
                first.expire()
        self._now_s = until_s


class Peer(asyncio.Transport):
    """The transport of a connection, which keeps what the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.has_grown = asyncio.Event()
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)
        self.has_grown.set()

    def close(self) -> None:
        self._is_closing = True

    async def until(self, end: bytes) -> None:
        """Return when the response ends like this."""
        while not self.written.endswith(end):
            self.has_grown.clear()
            await self.has_grown.wait()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def accepted() -> tuple[http_protocol.LimitedProtocol, Peer, ManualTimers]:
    """A connection with the limits ``FAST``, in the time of the test."""
    app = Litestar([size], openapi_config=None, logging_config=None)
    config = uvicorn.Config(app, log_config=None, lifespan="off")
    timers: Any = ManualTimers()
    protocol = http_protocol.limited(FAST)(config, ServerState(), {}, timers)
    peer = Peer()
    protocol.connection_made(peer)
    return protocol, peer, timers


async def test_the_second_request_of_a_connection_has_the_same_time() -> None:
    protocol, peer, timers = accepted()
    protocol.data_received(b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab")
    await peer.until(b"\r\n\r\n2")
    assert peer.written.startswith(b"HTTP/1.1 200 ")
    protocol.data_received(b"POST /size")
    timers.advance(FAST.header_timeout_s * 0.9)
    assert b" 408 " not in peer.written
    timers.advance(FAST.header_timeout_s * 0.2)
    assert b" 408 " in peer.written
    assert peer.is_closing()


async def test_a_request_that_is_read_late_is_answered() -> None:
    """After the machine has stopped for seconds, timers may fire before the loop reads what had
    arrived: the client would be told that no server answers."""
    protocol, peer, timers = accepted()
    protocol.data_received(b"POST /size HTTP/1.1\r\nHost: a\r\n")
    timers.advance(FAST.header_timeout_s)
    assert not peer.is_closing()
    protocol.data_received(b"Content-Length: 2\r\n\r\nab")
    await peer.until(b"\r\n\r\n2")
    assert peer.written.startswith(b"HTTP/1.1 200 ")
    timers.advance(protocol.timeout_keep_alive)
    assert not peer.is_closing()
    protocol.data_received(b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
    await peer.until(b"\r\n\r\n3")
    assert peer.written.count(b"HTTP/1.1 200 ") == 2
    timers.advance(1.1 * protocol.timeout_keep_alive)
    assert peer.is_closing(), "no further request came"


async def test_a_body_that_makes_progress_may_exceed_the_timeout() -> None:
    parts, part = 5, b"x" * 1024
    head = b"POST /size HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    protocol, peer, timers = accepted()
    protocol.data_received(head % (parts * len(part)))
    for _ in range(parts):
        protocol.data_received(part)
        timers.advance(FAST.body_timeout_s * 0.6)
    await peer.until(str(parts * len(part)).encode())
    assert peer.written.startswith(b"HTTP/1.1 200 ")


async def test_a_connection_beyond_the_limit_gets_503_and_others_stay() -> None:
    limits = http_protocol.Limits(max_connections=1)
    request = b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
    async with served(limits) as port, connected(port, request) as (reader, writer):
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        async with connected(port, request) as (refused, _):
            said = await answer(refused)
            assert said.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1" in said
        writer.write(request)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
