"""Connections to one server: its address, credentials and time limits; requests and streams."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from stromboli.client import credentials, server
from stromboli.client.address import Address
from stromboli.client.operations import calls
from stromboli.shared.formats import warning_header

T = TypeVar("T")


class Connection:
    """Sends requests to one server and waits for each response. ``Client`` describes the
    arguments."""

    def __init__(
        self,
        url: str | Address | None = None,
        *,
        token: credentials.Token | None = None,
        token_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        response_timeout_s: float = server.ANSWER_WITHIN_S,
        transport: httpx.BaseTransport | None = None,
        on_warning: Callable[[str], object] = server.log_warning,
    ) -> None:
        self.address = server.address(url)
        self._on_warning = on_warning
        self.response_timeout_s = response_timeout_s
        files = server.credential_files(self.address, token, token_file, ca_file)
        self._http = httpx.Client(
            **server.httpx_options(self.url, response_timeout_s, **files),
            transport=transport,
        )

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return self.address.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def send(self, call: calls.Call[T]) -> T:
        """Send a request once, without retries; returns the decoded response. Raises
        ClientError."""
        response = self._send(call, server.timeout_s(call, self.response_timeout_s))
        kind = response.headers.get("content-type", "")
        answer = calls.answer(call, response.status_code, kind, response.content)
        for warning in warning_header.decode(response.headers.get(warning_header.NAME, "")):
            self._on_warning(warning)
        return answer

    def readiness(self, within_s: float = 2.0) -> tuple[bool, dict[str, dict[str, str]]]:
        """Whether the server is ready, and service -> fact -> its problem or warning. Raises
        ClientError."""
        response = self._send(calls.readiness(), within_s)
        problems_by_service = calls.answer(calls.readiness(), 200, calls.JSON, response.content)
        return response.is_success, problems_by_service

    def _send(self, call: calls.Call[Any], within_s: float) -> httpx.Response:
        try:
            return self._http.request(**server.request(call), timeout=within_s)
        except server.TROUBLE as error:
            raise server.unreachable(self.address, error, within_s) from None

    @contextlib.contextmanager
    def stream(self, call: calls.Call[Any]) -> Iterator[Iterator[bytes]]:
        """The response in chunks. A broken connection ends them without an error.

        Entering raises ClientError.
        """
        timeout = httpx.Timeout(self.response_timeout_s, read=None)
        with contextlib.ExitStack() as stack:
            try:
                opened = self._http.stream(**server.request(call), timeout=timeout)
                response = stack.enter_context(opened)
                if not response.is_success:
                    kind = response.headers.get("content-type", "")
                    calls.answer(call, response.status_code, kind, response.read())
            except server.TROUBLE as error:
                raise server.unreachable(self.address, error, self.response_timeout_s) from None
            yield _chunks(response)


class AsyncConnection:
    """Sends requests to one server, as coroutines. ``AsyncClient`` describes the arguments."""

    def __init__(
        self,
        url: str | Address | None = None,
        *,
        token: credentials.Token | None = None,
        token_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        response_timeout_s: float = server.ANSWER_WITHIN_S,
        transport: httpx.AsyncBaseTransport | None = None,
        on_warning: Callable[[str], object] = server.log_warning,
    ) -> None:
        self.address = server.address(url)
        self._on_warning = on_warning
        self.response_timeout_s = response_timeout_s
        files = server.credential_files(self.address, token, token_file, ca_file)
        self._http = httpx.AsyncClient(
            **server.httpx_options(self.url, response_timeout_s, **files),
            transport=transport,
        )

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return self.address.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def send(self, call: calls.Call[T]) -> T:
        """Send a request once, without retries; returns the decoded response. Raises
        ClientError."""
        response = await self._send(call, server.timeout_s(call, self.response_timeout_s))
        kind = response.headers.get("content-type", "")
        answer = calls.answer(call, response.status_code, kind, response.content)
        for warning in warning_header.decode(response.headers.get(warning_header.NAME, "")):
            self._on_warning(warning)
        return answer

    async def readiness(self, within_s: float = 2.0) -> tuple[bool, dict[str, dict[str, str]]]:
        """Whether the server is ready, and service -> fact -> its problem or warning. Raises
        ClientError."""
        response = await self._send(calls.readiness(), within_s)
        problems_by_service = calls.answer(calls.readiness(), 200, calls.JSON, response.content)
        return response.is_success, problems_by_service

    async def _send(self, call: calls.Call[Any], within_s: float) -> httpx.Response:
        try:
            return await self._http.request(**server.request(call), timeout=within_s)
        except server.TROUBLE as error:
            raise server.unreachable(self.address, error, within_s) from None

    @contextlib.asynccontextmanager
    async def stream(self, call: calls.Call[Any]) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """The response in chunks. A broken connection ends them without an error.

        Entering raises ClientError.
        """
        timeout = httpx.Timeout(self.response_timeout_s, read=None)
        async with contextlib.AsyncExitStack() as stack:
            try:
                opened = self._http.stream(**server.request(call), timeout=timeout)
                response = await stack.enter_async_context(opened)
                if not response.is_success:
                    kind = response.headers.get("content-type", "")
                    calls.answer(call, response.status_code, kind, await response.aread())
            except server.TROUBLE as error:
                raise server.unreachable(self.address, error, self.response_timeout_s) from None
            yield _async_chunks(response)


def _chunks(response: httpx.Response) -> Iterator[bytes]:
    with contextlib.suppress(*server.TROUBLE):
        yield from response.iter_raw()


async def _async_chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    with contextlib.suppress(*server.TROUBLE):
        async for chunk in response.aiter_raw():
            yield chunk
