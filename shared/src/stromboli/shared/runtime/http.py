"""The HTTP server of every process: ``/livez``, ``/readyz``, ``/metrics``, and the routes of a
service.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence

import prometheus_client
import uvicorn
from litestar import Litestar, MediaType, Response, get
from litestar.params import FromQuery
from litestar.types import ControllerRouterHandler

from stromboli.shared.runtime import http_protocol, runtime, tls_handshakes

HEAD_BYTES = 1024 * 1024
"""Maximum size of the request line with headers, in bytes: an API server's limit, so that a value
that is too long is rejected with its name and not as an unreadable request.
"""


def health_routes(healths: Sequence[runtime.Health]) -> list[ControllerRouterHandler]:
    """The probes and ``/metrics``, over all services of this process."""

    @get("/metrics", media_type=MediaType.TEXT, include_in_schema=False, sync_to_thread=False)
    def metrics() -> Response[bytes]:
        return Response(
            prometheus_client.generate_latest(),
            media_type=prometheus_client.CONTENT_TYPE_LATEST,
        )

    return [*probe_routes(healths), metrics]


def probe_routes(healths: Sequence[runtime.Health]) -> list[ControllerRouterHandler]:
    """``/livez``, and ``/readyz``, which lists the problems (503), or warnings and notes (200). As
    in an API server, each ``?exclude=FACT`` ignores one fact.
    """

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
        by_service = {health.service: health.notes | health.warnings for health in healths}
        return Response({service: facts for service, facts in by_service.items() if facts})

    return [livez, readyz]


def health_app(*healths: runtime.Health) -> Litestar:
    """An application with only the health routes."""
    return Litestar(health_routes(healths), openapi_config=None, logging_config=None)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ``runtime.run`` handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _protocol(server: uvicorn.Server) -> asyncio.Protocol:
    """Create a protocol as uvicorn does for a connection that it accepts itself."""
    protocol: type[http_protocol.LimitedProtocol] = server.config.http_protocol_class  # type: ignore[assignment]
    return protocol(server.config, server.server_state, server.lifespan.state)


def listen(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 selects a free port. Raises OSError when the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only for sockets with an explicit protocol TCP: otherwise
    # an answer in two writes waits 40 ms for the peer's delayed acknowledgement.
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
    """Serve ``app`` on a bound socket during the block; yields the port. Serves HTTPS if a
    certificate is given, or ``tls``, whose certificate may be replaced meanwhile.

    Raises OSError when another process listens on the port: two sockets may be bound to one port.
    """
    if tls is None and certificate_file:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate_file, key_file or None)
    config = uvicorn.Config(
        app,
        http=http_protocol.limited(limits),
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    server = _Server(config)
    port: int = bound.getsockname()[1]
    try:
        # Not left to the server: uvloop silently closes a socket that cannot listen, and the
        # process would continue without being reachable.
        bound.listen(config.backlog)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"listen on port {port}: {error.strerror}") from None
    task = asyncio.create_task(server.serve(sockets=[] if tls else [bound]))
    try:
        while not server.started:
            if task.done():
                task.result()
                raise OSError("the HTTP server ended before it started to serve")
            await asyncio.sleep(0.005)
        async with contextlib.AsyncExitStack() as stack:
            if tls is not None:
                handshakes = tls_handshakes.Handshakes(
                    tls,
                    limits,
                    server.server_state.connections,
                    functools.partial(_protocol, server),
                )
                await stack.enter_async_context(handshakes.accepting(bound))
            yield port
    finally:
        server.should_exit = True
        await asyncio.shield(task)
        bound.close()
