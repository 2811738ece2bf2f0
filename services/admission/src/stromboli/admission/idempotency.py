"""Requests that are done once however often they are sent: ``Idempotency-Key``.

A good answer stands on ``admission.answers`` for a day before it is given; the same key with the
same request gets it again, also from a restarted server. With another request the key is refused.
Refusals are not kept: nothing was written, so a repetition is judged again.

What was made carries a digest of key and request. So a request whose answer was lost between the
write and the log (we were killed, or the log was away) finds its own work and answers as it would
have.
"""

import asyncio
import collections
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from litestar import Request

from stromboli.admission import keyed_lock
from stromboli.admission.auth import authentication
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port as bus_port
from stromboli.shared.jobspec import redaction
from stromboli.shared.messages.admission import RequestAnswered
from stromboli.shared.runtime import runtime

MEMORY_BYTES = 64 * 1024 * 1024
"""Answers held; the oldest go first, before their day is over if there are very many."""
LOG_TIMEOUT_S = 5.0
"""How long a request waits for a log that is away: shorter than its client waits."""
HEADER = "Idempotency-Key"


class KeyReusedError(Exception):
    """The key came with another request before."""


class IdempotencyCache:
    """The answers of the last day, by key."""

    def __init__(self, clock: runtime.Clock) -> None:
        self._clock = clock
        self._answers: collections.OrderedDict[str, RequestAnswered] = collections.OrderedDict()
        self._bytes = 0
        self._under_way: keyed_lock.KeyedLock[str] = keyed_lock.KeyedLock()
        self._writer: asyncio.Future[bus_port.Writer] | None = None

    def fold(self, record: envelope.Record) -> None:
        """Take in a record of the topic. Raises UndecodableError."""
        message = envelope.decode(record)
        if isinstance(message, RequestAnswered):
            self._keep(record.key, message)

    def open(self, writer: bus_port.Writer) -> None:
        """All answers are folded: from now on keys are known, and answers can be kept."""
        self._opened().set_result(writer)

    async def answer(
        self, key: str, request: str, work: Callable[[], Awaitable[tuple[int, bytes]]]
    ) -> tuple[int, bytes]:
        """What was answered to this request before, or what ``work`` answers now.

        Whoever comes with a key that is under way waits for it. Raises KeyReusedError;
        TransientError when the log cannot be reached; what ``work`` raises.
        """
        async with self._under_way.of(key):
            writer = await self._log()
            known = self._answers.get(key)
            if known is not None:
                if known.request != request:
                    raise KeyReusedError
                return known.status, known.body.encode()
            status, body = await work()
            kept = redaction.redacted(body).decode()
            message = RequestAnswered(request=request, status=status, body=kept)
            await writer.append(
                envelope.Draft(topic=topics.ANSWERS, key=key, message=message, time=self._clock())
            )
            self._keep(key, message)
            return status, body

    async def _log(self) -> bus_port.Writer:
        try:
            async with asyncio.timeout(LOG_TIMEOUT_S):
                return await asyncio.shield(self._opened())
        except TimeoutError:
            why = "what was answered before is not known yet; try again, or leave the key out"
            raise errors.TransientError(HEADER, why) from None

    def _opened(self) -> "asyncio.Future[bus_port.Writer]":
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_future()
        return self._writer

    def _keep(self, key: str, message: RequestAnswered) -> None:
        if (before := self._answers.pop(key, None)) is not None:
            self._bytes -= len(before.body)
        self._answers[key] = message
        self._bytes += len(message.body)
        while self._bytes > MEMORY_BYTES:
            _, oldest = self._answers.popitem(last=False)
            self._bytes -= len(oldest.body)


def digest(*parts: str | bytes) -> str:
    """Of what was asked. Different parts never come together to the same."""
    found = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        found.update(len(raw).to_bytes(8) + raw)
    return found.hexdigest()[:32]


def scoped(key: str, principal: authentication.Principal) -> str:
    """The key as it is stored: with the principal, so that two users never share an answer."""
    return digest(principal.scope, key) if principal.scope else key


async def request_digest(
    request: Request[Any, Any, Any], principal: authentication.Principal, key: str | None
) -> str:
    """The digest of a request with a key; empty without one."""
    if not key:
        return ""
    return digest(scoped(key, principal), request.url.path, await request.body())
