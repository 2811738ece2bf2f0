"""``Idempotency-Key``: a request is executed once, however often it is sent.

A successful response is appended to ``admission.answers`` before it is returned, and kept for a
day; the same key with the same request gets it again, also from a restarted server. With a
different request the key is rejected. Rejections are not kept: nothing was written, so a repetition
is validated again.

Created objects carry a digest of key and request. So a request whose response was lost between the
write and the append (the process was killed, or the log was unavailable) recognizes its own objects
and returns the same response.
"""

import asyncio
import collections
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from litestar import Request

from stromboli.admission import keyed_lock
from stromboli.admission.auth import authentication
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port as bus_port
from stromboli.shared.jobspec import redaction
from stromboli.shared.messages.admission import RequestAnswered
from stromboli.shared.runtime import runtime

MEMORY_BYTES = 64 * 1024 * 1024
"""Cached responses; the oldest are dropped first, possibly before a day has passed."""
LOG_TIMEOUT_S = 5.0
"""How long a request waits for an unavailable log: shorter than its client's timeout."""
HEADER = "Idempotency-Key"


class Answer(NamedTuple):
    """A successful response: HTTP status, JSON body, and warnings for the client."""

    status: int
    body: bytes
    warnings: tuple[str, ...] = ()


class KeyReusedError(Exception):
    """The key was used with a different request before."""


class IdempotencyCache:
    """The responses of the last day, by key."""

    def __init__(self, clock: runtime.Clock) -> None:
        self._clock = clock
        self._answers: collections.OrderedDict[str, RequestAnswered] = collections.OrderedDict()
        self._bytes = 0
        self._under_way: keyed_lock.KeyedLock[str] = keyed_lock.KeyedLock()
        self._writer: asyncio.Future[bus_port.Writer] | None = None

    def fold(self, record: envelope.Record) -> None:
        """Apply a record of the topic. Raises UndecodableError."""
        message = envelope.decode(record)
        if isinstance(message, RequestAnswered):
            self._keep(record.key, message)

    def open(self, writer: bus_port.Writer) -> None:
        """Start to answer requests with keys: all earlier responses have been read, and ``writer``
        can record new ones."""
        self._opened().set_result(writer)

    async def answer(self, key: str, request: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The earlier response to this request, or the response of ``work``.

        Concurrent requests with the same key wait for the first. Raises KeyReusedError;
        TransientError when the log is unavailable; what ``work`` raises.
        """
        async with self._under_way.of(key):
            writer = await self._log()
            known = self._answers.get(key)
            if known is not None:
                if known.request != request:
                    raise KeyReusedError
                return Answer(known.status, known.body.encode(), known.warnings)
            answer = await work()
            kept = redaction.redacted(answer.body).decode()
            message = RequestAnswered(
                request=request, status=answer.status, body=kept, warnings=answer.warnings
            )
            await writer.append(
                envelope.Draft(topic=topics.ANSWERS, key=key, message=message, time=self._clock())
            )
            self._keep(key, message)
            return answer

    async def _log(self) -> bus_port.Writer:
        try:
            async with asyncio.timeout(LOG_TIMEOUT_S):
                return await asyncio.shield(self._opened())
        except TimeoutError:
            why = "earlier responses are not loaded yet; try again, or leave the key out"
            raise errors.TransientError(HEADER, why) from None

    def _opened(self) -> "asyncio.Future[bus_port.Writer]":
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_future()
        return self._writer

    def _keep(self, key: str, message: RequestAnswered) -> None:
        if (before := self._answers.pop(key, None)) is not None:
            self._bytes -= _size(before)
        self._answers[key] = message
        self._bytes += _size(message)
        while self._bytes > MEMORY_BYTES:
            _, oldest = self._answers.popitem(last=False)
            self._bytes -= _size(oldest)


def _size(message: RequestAnswered) -> int:
    return len(message.body) + sum(map(len, message.warnings))


def digest(*parts: str | bytes) -> str:
    """Digest of several parts. Different parts never give the same digest by concatenation."""
    hasher = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        hasher.update(len(raw).to_bytes(8) + raw)
    return hasher.hexdigest()[:32]


def scoped(key: str, principal: authentication.Principal) -> str:
    """The key as stored: with the principal, so that two users never share a response."""
    return digest(principal.scope, key) if principal.scope else key


async def request_digest(
    request: Request[Any, Any, Any], principal: authentication.Principal, key: str | None
) -> str:
    """The digest of a request with a key; empty without one."""
    if not key:
        return ""
    return digest(scoped(key, principal), request.url.path, await request.body())
