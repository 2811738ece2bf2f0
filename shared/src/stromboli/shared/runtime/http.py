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
from litestar.routes import HTTPRoute
from litestar.types import ControllerRouterHandler

from stromboli.shared import decoding
from stromboli.shared.runtime import http_protocol, runtime, tls_handshakes

HEAD_BYTES = 1024 * 1024
"""Maximum size of the request line with headers, in bytes: an API server's limit, so that a value
that is too long is rejected with its name and not as an unreadable request.
"""

PORTS_TRIED = 100
"""Number of ports, from the wanted one on, that are tried before any free port is used."""
POLL_S = 0.005
"""Seconds between two checks of the state of a server that starts or ends."""


def health_routes(healths: Sequence[runtime.Health]) -> list[ControllerRouterHandler]:
    """The probes and ``/metrics``, over all services of this process."""

    @get("/metrics", media_type=MediaType.TEXT, include_in_schema=False, sync_to_thread=False)
    def metrics() -> Response[bytes]:
        return Response(
            prometheus_client.generate_latest(),
            # Not as the media type, to which Litestar adds a second charset.
            headers={"content-type": prometheus_client.CONTENT_TYPE_LATEST},
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
        problems_by_service = {health.service: health.problems for health in healths}
        waiting = {
            service: {fact: why for fact, why in problems.items() if fact not in left_out}
            for service, problems in problems_by_service.items()
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


def _prepare(app: Litestar) -> None:
    """Make Litestar read the types of parameters and bodies before the server starts. It would
    otherwise read them in the first request of each route, while another thread may read them."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                decoding.prepare(handler.signature_model)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers (``runtime.run`` handles signals) and without its pauses
    at the end: uvicorn checks every 0.1 s whether it should end, and then waits another 0.1 s."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Let ``serve`` close all connections and return."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Return when the server should end."""
        tasks = [
            asyncio.ensure_future(super().main_loop()),
            asyncio.ensure_future(self._ending.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close idle connections, wait for responses that have begun, and cancel those that take
        too long."""
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(POLL_S)
                for server in self.servers:
                    await server.wait_closed()
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


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


def listen_near(host: str, port: int, *, may_move: bool) -> socket.socket:
    """A bound TCP socket; a port in use is replaced by the next free one if it ``may_move``. Raises
    OSError when the port is in use and may not move."""
    try:
        return listen(host, port)
    except OSError:
        if not may_move:
            raise
    for other in range(port + 1, port + PORTS_TRIED):
        with contextlib.suppress(OSError):
            return listen(host, other)
    return listen(host, 0)


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
    _prepare(app)
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
            await asyncio.sleep(POLL_S)
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
        server.end()
        await asyncio.shield(task)
        bound.close()
