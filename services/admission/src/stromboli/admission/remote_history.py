"""The client of the history service: HTTP requests with a token that both services share."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from stromboli.shared import decoding, errors
from stromboli.shared.api.views import accounting

T = TypeVar("T")
ANSWER_WITHIN_S = 30.0
WHAT = "history"


class Refusal(msgspec.Struct, frozen=True):
    """The JSON body of an error response of the history service."""

    what: str = WHAT
    reason: str = "no reason"


class RemoteHistory:
    """``accounting.History`` at a URL. ``token_file`` is read for each request, so that a new token
    needs no restart."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token_file: str) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._token_file = token_file

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        """A page of attempts. Raises InvalidError, UnavailableError."""
        read = decoding.decoder_of(accounting.AttemptPage).decode
        return await self._ask("attempts", query, read)

    async def jobs(self, query: accounting.JobQuery) -> accounting.JobPage:
        """A page of jobs. Raises InvalidError, UnavailableError."""
        return await self._ask("jobs", query, decoding.decoder_of(accounting.JobPage).decode)

    async def evictions(self, query: accounting.EvictionQuery) -> accounting.EvictionPage:
        """A page of evictions. Raises InvalidError, UnavailableError."""
        read = decoding.decoder_of(accounting.EvictionPage).decode
        return await self._ask("evictions", query, read)

    async def changes(self, query: accounting.ChangeQuery) -> accounting.ChangePage:
        """A page of changes of the cluster. Raises InvalidError, UnavailableError."""
        read = decoding.decoder_of(accounting.ChangePage).decode
        return await self._ask("changes", query, read)

    async def explanations(self, query: accounting.ExplanationQuery) -> accounting.ExplanationPage:
        """A page of explanations. Raises InvalidError, UnavailableError."""
        read = decoding.decoder_of(accounting.ExplanationPage).decode
        return await self._ask("explanations", query, read)

    async def usage(self, query: accounting.UsageQuery) -> accounting.UsageReport:
        """A report of usage. Raises InvalidError, UnavailableError."""
        return await self._ask("usage", query, decoding.decoder_of(accounting.UsageReport).decode)

    async def _ask(self, path: str, query: msgspec.Struct, read: Callable[[bytes], T]) -> T:
        try:
            headers = {"content-type": "application/json"}
            if self._token_file:
                text = await asyncio.to_thread(Path(self._token_file).read_text)
                headers["authorization"] = f"Bearer {text.strip()}"
            url, body = f"{self._url}/queries/{path}", msgspec.json.encode(query)
            async with self._session.post(url, data=body, headers=headers) as response:
                raw = await response.read()
            if response.status == 200:
                return read(raw)
            refusal = _refusal(raw)
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
            reason = str(error) or type(error).__name__
            raise errors.UnavailableError(WHAT, reason) from None
        if response.status == 422:
            raise errors.InvalidError(refusal.what, refusal.reason)
        raise errors.UnavailableError(refusal.what, f"{refusal.reason} ({response.status})")


@contextlib.asynccontextmanager
async def connect(url: str, token_file: str, ca_file: str) -> AsyncIterator[RemoteHistory]:
    """A client of the history service, usable inside the context. ``ca_file``: the authority of the
    service's certificate, for https."""
    tls = ssl.create_default_context(cafile=ca_file) if ca_file else True
    timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN_S)
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield RemoteHistory(session, url, token_file)


def _refusal(raw: bytes) -> Refusal:
    try:
        return decoding.from_json(raw, Refusal)
    except msgspec.DecodeError:
        return Refusal()
