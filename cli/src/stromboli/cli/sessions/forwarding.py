"""Forwards connections to a port of this machine to a port of a pod."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from stromboli.cli.render import output
from stromboli.client import errors
from stromboli.client.sessions import opening, targets
from stromboli.shared.cluster.pod_sessions import PodConnection, PodSessions

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 16
PORTS = range(1, 65536)


def parse(text: str) -> tuple[int, int]:
    """The local and the remote port of ``[LOCAL:]REMOTE``; local 0 (``:80``) selects a free one.
    Raises ValueError.
    """
    local, colon, remote = text.rpartition(":")
    if not colon:
        local = remote
    if not remote.isdecimal() or int(remote) not in PORTS:
        raise ValueError(f"{text!r} is not a port; write PORT or LOCAL:PORT")
    if local and (not local.isdecimal() or int(local) not in PORTS):
        raise ValueError(f"{text!r} has no valid local port; write PORT or LOCAL:PORT")
    return int(local or 0), int(remote)


@contextlib.asynccontextmanager
async def forwarding(
    place: opening.Place, target: targets.Target, local: int, remote: int
) -> AsyncIterator[int]:
    """Forward connections inside the context; yields the local port. Raises OSError if the port is
    in use."""
    sessions = await opening.sessions_at(place)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _forward(sessions, target, remote, reader, writer)
        except errors.ClientError as error:
            output.show_note(f"strom: {error.what}: {error.reason}")
        except asyncio.CancelledError:
            return  # the command ends: streams of Python 3.11 print cancelled handlers as errors
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, LOOPBACK, local)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def _forward(
    sessions: PodSessions,
    target: targets.Target,
    remote: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    with opening.translated():
        async with sessions.connect(target.namespace, target.pod, remote) as connection:
            sending = asyncio.create_task(_send(reader, connection))
            try:
                while data := await connection.read():
                    writer.write(data)
                    await writer.drain()
            except ConnectionError:
                return  # the local client is gone
            finally:
                sending.cancel()


async def _send(reader: asyncio.StreamReader, connection: PodConnection) -> None:
    """Forward data of the local client. The protocol has no half-closed connections, so the end of
    its data is not forwarded."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK_BYTES):
            await connection.write(data)
