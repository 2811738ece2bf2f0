"""Shared by writers and readers: connections, error translation, and closing in bounded time."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import aiokafka
import aiokafka.errors as kafka_errors
import structlog
from aiokafka import admin, helpers

from stromboli.shared import errors
from stromboli.shared.bus.kafka import settings
from stromboli.shared.runtime import runtime

T = TypeVar("T")
PARTITION = 0
"""The only partition in use of every topic."""
RETRY_MS = 100
"""Milliseconds between aiokafka's retries."""
CLOSE_TIMEOUT_S = 0.02
"""How long a closed connection may wait for the TLS close notification."""

_log = structlog.get_logger(__name__)
# aiokafka logs a line at every retry while a broker is unavailable, ten per second and client.
# We log one line when the broker becomes unavailable and one when it is available again.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

_FORBIDDEN = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.AuthenticationFailedError,
    kafka_errors.SaslAuthenticationFailed,
)
_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
CLIENT_ERRORS = (kafka_errors.KafkaError, OSError, TimeoutError)
"""The errors that aiokafka raises for external failures."""


def connection(kafka: settings.KafkaSettings) -> dict[str, Any]:
    """The arguments that all aiokafka clients get, from the settings."""
    return {
        "bootstrap_servers": list(kafka.bootstrap),
        "client_id": f"stromboli-{kafka.cluster_name}",
        "request_timeout_ms": int(kafka.request_timeout_s * 1000),
        "retry_backoff_ms": RETRY_MS,
        "security_protocol": kafka.security,
        "ssl_context": _tls(kafka) if kafka.security.endswith("SSL") else None,
        "sasl_mechanism": kafka.sasl_mechanism,
        "sasl_plain_username": kafka.sasl_username or None,
        "sasl_plain_password": kafka.sasl_password or None,
    }


def _tls(kafka: settings.KafkaSettings) -> ssl.SSLContext:
    context: ssl.SSLContext = helpers.create_ssl_context(
        cafile=kafka.tls_ca_file or None,
        certfile=kafka.tls_certificate_file or None,
        keyfile=kafka.tls_key_file or None,
    )
    return context


def is_permanent(error: BaseException) -> bool:
    """Whether the broker rejected the request and would reject a retry, too."""
    return isinstance(error, (*_FORBIDDEN, *_TOO_LARGE))


def translate_error(what: str, error: BaseException) -> errors.ExternalError:
    """The ExternalError for an error of aiokafka. ``what`` names the operation."""
    reason = str(error) or type(error).__name__
    if isinstance(error, _FORBIDDEN):
        return errors.ForbiddenError(what, reason)
    if isinstance(error, _TOO_LARGE):
        return errors.TooLargeError(what, reason)
    if isinstance(error, kafka_errors.InvalidReplicationFactorError):
        few = "the Kafka cluster has fewer brokers than STROM_KAFKA_REPLICATION_FACTOR"
        return errors.PermanentError(what, f"{few}: {reason}")
    return errors.UnavailableError(what, reason)


async def retry_until_available(what: str, call: Callable[[], Awaitable[T]]) -> T:
    """The result of ``call``, which is retried while the broker is unavailable.

    Raises ForbiddenError and other permanent errors.
    """
    backoff = runtime.Backoff()
    is_away = False
    while True:
        try:
            result = await call()
        except CLIENT_ERRORS as error:
            trouble = translate_error(what, error)
            if isinstance(trouble, errors.PermanentError):
                raise trouble from error
            if not is_away:
                is_away = True
                _log.warning("log unavailable", what=what, reason=trouble.reason)
            await asyncio.sleep(backoff.next_s())
        else:
            if is_away:
                _log.info("log available again", what=what)
            return result


async def stop_consumer(consumer: aiokafka.AIOKafkaConsumer, timeout_s: float) -> None:
    """Close a consumer. After ``timeout_s``, or when cancelled, its connections are aborted."""
    if await _finish_within(consumer.stop(), consumer._client, timeout_s) is not None:
        _log.info("reader aborted")


async def close_admin(client: admin.AIOKafkaAdminClient, timeout_s: float) -> None:
    """Close an admin client. After ``timeout_s`` its connections are aborted."""
    await _finish_within(client.close(), client._client, timeout_s)


async def discard_producer(producer: aiokafka.AIOKafkaProducer, timeout_s: float) -> None:
    """Close a producer so that none of its records reaches the log later, even when cancelled.

    The producer may deliver its pending records within ``timeout_s``; then its connections are
    aborted.
    """
    is_closed = False
    try:
        reason = await _finish_within(producer.stop(), producer.client, timeout_s)
        is_closed = reason is None
        if reason is not None:
            _log.warning("writer aborted", reason=reason)
    finally:
        if not is_closed:
            await _abort_producer(producer)


async def _abort_producer(producer: aiokafka.AIOKafkaProducer) -> None:
    # An idempotent producer retries its records until the broker is available, and aiokafka has
    # no public way to end that. The first cancellation ends its loop, which then waits for
    # requests in flight; the next cancellations end those.
    task = producer._sender.sender_task
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.1)
    await _abort_connections(producer.client)


async def _finish_within(
    end: Coroutine[Any, Any, None], client: Any, timeout_s: float
) -> str | None:
    """Close ``client`` by awaiting ``end``. Returns None, or why the client was aborted.

    ``end`` runs in its own task: aiokafka lets the cancellation of its inner tasks escape while a
    fetch waits for its next retry, which the caller must not mistake for its own cancellation. Over
    TLS, aiokafka waits for a close notification that the broker does not send, so connections that
    are closing are aborted after ``CLOSE_TIMEOUT_S``.
    """
    ending = asyncio.ensure_future(end)
    lines = _transports(client)
    now = asyncio.get_running_loop().time
    until = now() + timeout_s
    try:
        while not ending.done() and now() < until:
            await asyncio.wait([ending], timeout=CLOSE_TIMEOUT_S)
            for line in lines:
                if line.is_closing():
                    line.abort()
    finally:
        is_over = ending.done()
        if not is_over or ending.cancelled() or ending.exception():
            ending.cancel()
            await asyncio.wait([ending])
            await _abort_connections(client)
    if not is_over:
        return f"not done within {timeout_s} s"
    if ending.cancelled():
        return "cancelled by the client"
    error = ending.exception()
    return None if error is None else str(error) or type(error).__name__


async def _abort_connections(client: Any) -> None:
    """Abort all connections immediately, also those that aiokafka is still closing."""
    lines = _transports(client)
    closing = asyncio.ensure_future(client.close())
    for line in lines:
        line.abort()
    await asyncio.wait([closing])
    if not closing.cancelled():
        closing.exception()  # retrieved, so that asyncio does not log it


def _transports(client: Any) -> list[asyncio.WriteTransport]:
    return [line._writer.transport for line in client._conns.values() if line._writer is not None]
