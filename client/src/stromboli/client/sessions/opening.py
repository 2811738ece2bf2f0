"""Opens sessions in pods: at the server in embedded mode (``strom up``), else at the API server.

At an API server the user's own kubeconfig is used: the server's account needs no right to run
commands in all pods. Requires the extra ``exec``.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import httpx
import msgspec

from stromboli.client import errors
from stromboli.client.operations import calls
from stromboli.shared import decoding
from stromboli.shared import errors as external

if TYPE_CHECKING:
    from stromboli.client.sessions.targets import Target
    from stromboli.shared.cluster.pod_sessions import PodSessions


class ExecResult(msgspec.Struct, frozen=True):
    """The output of a command, and its exit code."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Place(msgspec.Struct, frozen=True):
    """The server at which sessions are opened, and its authorization header. An empty URL: the
    kubeconfig names the server."""

    url: str
    authorization: str = ""


class _Answer(msgspec.Struct, frozen=True):
    url: str


def place_call() -> calls.Call[_Answer]:
    """The call that returns the server at which sessions are opened."""
    return calls.Call(
        method="GET",
        path="/v1/pod-sessions",
        what="sessions in pods",
        read=decoding.decoder_of(_Answer).decode,
    )


def place(url: str, server_url: str, auth: httpx.Auth | None) -> Place:
    """The server at which sessions are opened, with the credentials of ``auth``."""
    if not url or auth is None:
        return Place(url)
    request = httpx.Request("GET", server_url)
    flow = auth.auth_flow(request)
    authorized = next(flow)
    flow.close()
    return Place(url, authorized.headers.get("authorization", ""))


async def sessions_at(endpoint: Place) -> "PodSessions":
    """A client for sessions at this server. Raises ClientError without a usable kubeconfig or the
    extra ``exec``."""
    try:
        from stromboli.shared.cluster.kubernetes import pod_sessions as kubernetes
    except ImportError as error:
        what = f"the module {error.name} is missing; install stromboli-client[exec]"
        raise errors.NoContainerError("sessions in pods", what) from None
    if endpoint.url:
        headers = {"Authorization": endpoint.authorization} if endpoint.authorization else {}
        access: kubernetes.Access = kubernetes.FixedAccess(endpoint.url, headers)
    else:
        with translated():
            access = await kubernetes.kubeconfig_access()
    return kubernetes.WebSocketPodSessions(access)


async def run(
    endpoint: Place, target: "Target", command: Sequence[str], stdin: bytes = b""
) -> ExecResult:
    """Run a command to its end with this input. Raises ClientError."""
    import asyncio

    from stromboli.shared.cluster.pod_sessions import ExecRequest

    sessions = await sessions_at(endpoint)
    request = ExecRequest(
        command=tuple(command), container=target.container, stdin=bool(stdin), tty=False
    )
    written: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    with translated():
        async with sessions.exec(target.namespace, target.pod, request) as session:

            async def feed() -> None:
                if stdin:
                    await session.write(stdin)
                    await session.close_stdin()

            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(feed())
                async for chunk in session.output():
                    written[chunk.stream].append(chunk.data)
                feeding.cancel()
            code = session.exit_code()
    return ExecResult(code, b"".join(written["stdout"]), b"".join(written["stderr"]))


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translate errors of sessions inside the context to SessionError."""
    try:
        yield
    except* external.ExternalError as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        what, reason = getattr(first, "what", "session"), getattr(first, "reason", str(first))
        raise errors.SessionError(what, reason) from None
