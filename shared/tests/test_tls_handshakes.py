"""TLS handshakes over real sockets: bounded in number and time, and requests behind them work."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme
from litestar import Litestar

from shared.tests.test_http_limits import answer, connected, size
from stromboli.shared.runtime import http, http_protocol, tls_handshakes
from stromboli.testkit import records

REQUEST = b"POST /size HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
AUTHORITY = trustme.CA()
CLIENT = ssl.create_default_context()
AUTHORITY.configure_trust(CLIENT)


@contextlib.asynccontextmanager
async def served(limits: http_protocol.Limits) -> AsyncIterator[int]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("localhost").configure_cert(tls)
    app = Litestar([size], openapi_config=None, logging_config=None)
    async with http.serving(app, http.listen("127.0.0.1", 0), tls=tls, limits=limits) as port:
        yield port


@contextlib.asynccontextmanager
async def secured(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(records.DEADLINE_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=CLIENT, server_hostname="localhost"
        )
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def test_requests_behind_a_handshake_are_answered_on_one_connection() -> None:
    async with served(http_protocol.Limits()) as port, secured(port) as (reader, writer):
        for _ in range(2):
            writer.write(REQUEST)
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(1) == b"2"


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"])
async def test_a_handshake_that_does_not_go_on_is_closed(sent: bytes) -> None:
    limits = http_protocol.Limits(header_timeout_s=0.1)
    async with served(limits) as port, connected(port, sent) as (reader, _):
        with contextlib.suppress(ConnectionError):
            assert not (await answer(reader)).startswith(b"HTTP")


async def test_handshakes_beyond_the_limit_are_closed_and_an_ended_one_makes_room() -> None:
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(served(http_protocol.Limits(max_connections=1)))
        silent = [
            await stack.enter_async_context(connected(port)) for _ in range(tls_handshakes.RESERVED)
        ]
        with contextlib.suppress(ConnectionError):
            async with connected(port) as (reader, _):
                assert await answer(reader) == b""
        assert not any(reader.at_eof() for reader, _ in silent)
        silent[0][1].transport.abort()
        async with asyncio.timeout(records.DEADLINE_S):
            while True:  # until the server has noticed the end
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    async with secured(port) as (reader, writer):
                        writer.write(REQUEST)
                        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                        return


async def test_a_client_beyond_the_limit_of_connections_gets_503() -> None:
    limits = http_protocol.Limits(max_connections=1)
    async with served(limits) as port, secured(port) as (first, writer):
        writer.write(REQUEST)
        assert b" 200 " in await first.readuntil(b"\r\n\r\n")
        async with secured(port) as (reader, _):
            assert (await answer(reader)).startswith(b"HTTP/1.1 503 ")


async def test_a_server_stops_while_handshakes_are_under_way() -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with served(http_protocol.Limits()) as port:
            reader, _ = await stack.enter_async_context(connected(port))
        with contextlib.suppress(ConnectionError):
            assert await answer(reader) == b""
