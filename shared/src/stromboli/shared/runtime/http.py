"""HTTP of every process: ``/livez``, ``/readyz``, ``/metrics``, and what a service adds."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence

import prometheus_client
import uvicorn
from litestar import Litestar, MediaType, Response, get
from litestar.params import FromQuery
from litestar.types import ControllerRouterHandler

from stromboli.shared.runtime import http_protocol, runtime

HEAD_BYTES = 1024 * 1024
"""The longest request line with headers: as much as an API server takes, so that what is too long
in it is refused by name and not as unreadable."""


def health_routes(healths: Sequence[runtime.Health]) -> list[ControllerRouterHandler]:
    """The three routes that operators know, over all services of this process: the probes, and
    ``/metrics``."""

    @get("/metrics", media_type=MediaType.TEXT, include_in_schema=False, sync_to_thread=False)
    def metrics() -> Response[bytes]:
        return Response(
            prometheus_client.generate_latest(),
            media_type=prometheus_client.CONTENT_TYPE_LATEST,
        )

    return [*probe_routes(healths), metrics]


def probe_routes(healths: Sequence[runtime.Health]) -> list[ControllerRouterHandler]:
    """``/livez``, and ``/readyz``, which names what is waited for (503), or what people should look
    at and what is worth knowing (200). As with an API server's, ``?exclude=FACT`` leaves a fact out
    of account, as often as it is given."""

    @get("/livez", media_type=MediaType.TEXT, include_in_schema=False, sync_to_thread=False)
    def livez() -> str:
        return "ok\n"

    @get("/readyz", include_in_schema=False, sync_to_thread=False)
    def readyz(exclude: FromQuery[list[str] | None] = None) -> Response[dict[str, dict[str, str]]]:
        left_out = frozenset(exclude or ())
        found = {health.service: health.problems for health in healths}
        waiting = {
            service: {fact: why for fact, why in problems.items() if fact not in left_out}
            for service, problems in found.items()
            if not problems.keys() <= left_out
        }
        if waiting:
            return Response(waiting, status_code=503)
        told = {health.service: health.notes | health.warnings for health in healths}
        return Response({service: facts for service, facts in told.items() if facts})

    return [livez, readyz]


def health_app(*healths: runtime.Health) -> Litestar:
    """An application of the health routes alone."""
    return Litestar(health_routes(healths), openapi_config=None, logging_config=None)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals belong to ``runtime.run``."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. Raises OSError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets that say they are TCP: without this an
    # answer in two writes waits 40 ms for the peer's delayed acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


@contextlib.asynccontextmanager
async def serving(
    app: Litestar,
    bound: socket.socket,
    *,
    certificate_file: str = "",
    key_file: str = "",
    tls: ssl.SSLContext | None = None,
    limits: http_protocol.Limits = http_protocol.Limits(),  # noqa: B008 - frozen
) -> AsyncIterator[int]:
    """Serve ``app`` on a bound socket while inside; yields the port. HTTPS with a certificate, or
    with ``tls``, whose certificate may be changed meanwhile.

    Raises OSError when somebody else listens on the port by now: two sockets may be bound to one.
    """
    config = uvicorn.Config(
        app,
        http=http_protocol.limited(limits),
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=HEAD_BYTES,
        ssl_certfile=certificate_file or None,
        ssl_keyfile=key_file or None,
        ssl_context_factory=None if tls is None else (lambda _config, _default: tls),
    )
    server = _Server(config)
    port: int = bound.getsockname()[1]
    try:
        # Not left to the server: uvloop closes a socket that cannot listen, says nothing of it, and
        # the process would go on without anybody reaching it.
        bound.listen(config.backlog)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"listen on port {port}: {error.strerror}") from None
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        while not server.started:
            if task.done():
                task.result()
                raise OSError("the HTTP server ended before it began")
            await asyncio.sleep(0.005)
        yield port
    finally:
        server.should_exit = True
        await asyncio.shield(task)
        bound.close()
