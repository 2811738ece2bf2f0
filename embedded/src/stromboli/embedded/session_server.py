"""Serves sessions in pods of process nodes over WebSockets, with an API server's paths.

Clients use the same code as with a real API server (``stromboli.shared.cluster.kubernetes``).
Browsers may open WebSockets to loopback from any page, so the rules of ``rest.cross_site`` apply.
"""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import msgspec
from aiohttp import WSMsgType, web

from stromboli.admission import problems
from stromboli.admission.auth import authentication
from stromboli.admission.rest import authorization, cross_site
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import accounts, pod_sessions, session_frames
from stromboli.shared.runtime import http, telemetry

LOOPBACK = "127.0.0.1"
Authorize = Callable[[Mapping[str, str], str, str, str], Awaitable[None]]
"""Checks the right of a request: its headers, the namespace, the pod and the subresource."""


class SessionServer:
    """Serves commands in pods and connections to their ports. ``hosts``: the names by which
    browsers may call this server, see ``cross_site``."""

    def __init__(
        self, sessions: pod_sessions.PodSessions, authorize: Authorize, hosts: tuple[str, ...]
    ) -> None:
        self._sessions = sessions
        self._authorize = authorize
        self._hosts = hosts

    def app(self) -> web.Application:
        """The web application with the routes of sessions."""
        web_app = web.Application()
        pod = "/api/v1/namespaces/{namespace}/pods/{pod}"
        web_app.router.add_get(f"{pod}/exec", self._exec)
        web_app.router.add_get(f"{pod}/portforward", self._forward)
        return web_app

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        namespace, pod = await self._checked(request, "exec")
        query = request.query
        requested = pod_sessions.ExecRequest(
            command=tuple(query.getall("command", [])),
            container=query.get("container", ""),
            stdin=query.get("stdin") == "true",
            tty=query.get("tty") == "true",
        )
        if not requested.command:
            raise _refusal(errors.InvalidError("run a command", "the command is empty"))
        async with contextlib.AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(
                    self._sessions.exec(namespace, pod, requested)
                )
            except errors.ExternalError as error:
                raise _refusal(error) from None
            socket = web.WebSocketResponse(protocols=session_frames.EXEC_PROTOCOLS, timeout=2.0)
            await socket.prepare(request)
            async with _background(_feed_exec(socket, session)):
                async for chunk in session.output():
                    is_stdout = chunk.stream == "stdout"
                    channel = session_frames.STDOUT if is_stdout else session_frames.STDERR
                    if socket.closed:
                        break
                    await socket.send_bytes(session_frames.frame(channel, chunk.data))
                if not socket.closed:
                    status = msgspec.json.encode(_status(session))
                    await socket.send_bytes(session_frames.frame(session_frames.ERROR, status))
            await socket.close()
            return socket

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        namespace, pod = await self._checked(request, "portforward")
        port = request.query.get("ports", "")
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise _refusal(errors.InvalidError("forward a port", f"{port!r} is not a port"))
        connection: pod_sessions.PodConnection | None = None
        problem = ""
        async with contextlib.AsyncExitStack() as stack:
            try:
                opened = self._sessions.connect(namespace, pod, int(port))
                connection = await stack.enter_async_context(opened)
            except errors.InvalidError as error:
                problem = error.reason
            except errors.ExternalError as error:
                raise _refusal(error) from None
            socket = web.WebSocketResponse(
                protocols=(session_frames.FORWARD_PROTOCOL,), timeout=2.0
            )
            await socket.prepare(request)
            for channel in (session_frames.DATA, session_frames.FORWARD_ERROR):
                first = session_frames.port_prefix(int(port))
                await socket.send_bytes(session_frames.frame(channel, first))
            if connection is None:
                failed = session_frames.frame(session_frames.FORWARD_ERROR, problem.encode())
                await socket.send_bytes(failed)
            else:
                async with _background(_feed_connection(socket, connection)):
                    while (data := await connection.read()) and not socket.closed:
                        await socket.send_bytes(session_frames.frame(session_frames.DATA, data))
            await socket.close()
            return socket

    async def _checked(self, request: web.Request, subresource: str) -> tuple[str, str]:
        """Authorize the request; returns its namespace and pod. Raises HTTPException."""
        namespace, pod = request.match_info["namespace"], request.match_info["pod"]
        try:
            cross_site.check_host(request.headers, self._hosts)
            cross_site.check_origin(request.headers)
            await self._authorize(request.headers, namespace, pod, subresource)
        except cross_site.RejectedRequestError as error:
            raise _response(error.status_code, error.detail) from None
        except authentication.UnauthenticatedError as error:
            raise _response(401, str(error)) from None
        except authentication.ForbiddenError as error:
            raise _response(403, str(error)) from None
        except errors.ExternalError as error:
            raise _refusal(error) from None
        return namespace, pod


def authorizer(
    authenticator: authentication.Authenticator | None, settings: AdmissionSettings, token: str
) -> Authorize:
    """Return the authorization of REST. With accounts, the user needs the right to create the
    subresource, as on an API server; without them, the request needs the token of this start."""

    async def authorize(
        headers: Mapping[str, str], namespace: str, pod: str, subresource: str
    ) -> None:
        bearer_token = authentication.bearer(headers.get("Authorization"))
        if authenticator is None:
            if not hmac.compare_digest(bearer_token.encode(), token.encode()):
                raise authentication.UnauthenticatedError(authorization.WRONG_TOKEN)
            return
        principal = await authenticator.authenticate(bearer_token, settings.rest_audiences)
        right = accounts.right("create", kinds.PODS, namespace, pod, subresource)
        await authentication.require(principal, [right])

    return authorize


async def _feed_exec(socket: web.WebSocketResponse, session: pod_sessions.ExecSession) -> None:
    """Forward messages of the client to the command until the client disconnects."""
    async for message in socket:
        if message.type != WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == session_frames.STDIN:
            await session.write(data)
        elif channel == session_frames.RESIZE:
            with contextlib.suppress(msgspec.DecodeError):
                wanted = session_frames.size(data)
                await session.resize(wanted.width, wanted.height)
        elif channel == session_frames.CLOSE and data == bytes((session_frames.STDIN,)):
            await session.close_stdin()


async def _feed_connection(
    socket: web.WebSocketResponse, connection: pod_sessions.PodConnection
) -> None:
    async for message in socket:
        if message.type == WSMsgType.BINARY and message.data[:1] == bytes((session_frames.DATA,)):
            await connection.write(message.data[1:])


@contextlib.asynccontextmanager
async def _background(feeding: Awaitable[None]) -> AsyncIterator[None]:
    """Run ``feeding`` inside the context. When it ends, because the client has disconnected, the
    body is cancelled."""
    inside = asyncio.current_task()
    is_left = False

    async def feed() -> None:
        await feeding
        if inside is not None and not is_left:
            inside.cancel()

    task = asyncio.create_task(feed())
    try:
        yield
    finally:
        is_left = True
        task.cancel()
        await asyncio.wait([task])


def _status(session: pod_sessions.ExecSession) -> session_frames.Status:
    try:
        return session_frames.status_of(session.exit_code())
    except errors.ExternalError as error:
        return session_frames.Status(status="Failure", message=error.reason, code=500)


def _refusal(error: errors.ExternalError) -> web.HTTPException:
    return _response(problems.status_of(error).value, error.reason)


def _response(code: int, message: str) -> web.HTTPException:
    """Return the response to a session that is not opened, with a ``Status`` as its body."""
    body = session_frames.Status(status="Failure", message=message, code=code)

    class Refusal(web.HTTPException):
        status_code = code

    return Refusal(text=msgspec.json.encode(body).decode(), content_type="application/json")


@contextlib.asynccontextmanager
async def serving(server: SessionServer) -> AsyncIterator[str]:
    """Serve on a free port of loopback inside the context; yields the URL."""
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    bound = http.listen(LOOPBACK, 0)
    try:
        await web.SockSite(runner, bound).start()
        port = bound.getsockname()[1]
        telemetry.log.debug("sessions in pods are served", port=port)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        await runner.cleanup()
        bound.close()
