"""Slow and too many clients over real sockets: each is answered and closed in bounded time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from litestar import Litestar, Request, post

from stromboli.shared.runtime import http, http_protocol

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
    async with asyncio.timeout(10):
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
        assert b" 408 " in await answer(reader)
        dripping.cancel()


async def test_the_second_request_of_a_connection_has_the_same_time() -> None:
    first = b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
    async with served(FAST) as port, connected(port, first) as (reader, writer):
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"POST /size")
        assert b" 408 " in await answer(reader)


async def test_a_body_that_makes_progress_may_exceed_the_timeout() -> None:
    parts, part = 5, b"x" * 1024
    head = b"POST /size HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    async with (
        served(FAST) as port,
        connected(port, head % (parts * len(part))) as (reader, writer),
    ):
        for _ in range(parts):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(FAST.body_timeout_s * 0.6)
        assert (await answer(reader)).endswith(str(parts * len(part)).encode())


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
