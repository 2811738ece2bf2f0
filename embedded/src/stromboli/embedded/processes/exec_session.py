"""Runs a command in a container's namespaces, environment and working directory."""

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
import termios
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Literal

from stromboli.embedded.processes.launcher import children, passed_streams
from stromboli.embedded.processes.launcher_client import ContainerProcess
from stromboli.shared import errors
from stromboli.shared.cluster import pod_sessions

CHUNK_BYTES = 1 << 16
DRAIN_S = 1.0
"""Seconds for which output is read after the end of the command, whose children may keep it
open."""
KILLED = 137


class LocalExecSession:
    """A running command, see ``pod_sessions.ExecSession``."""

    def __init__(
        self, what: str, stdin: int, outputs: dict[Literal["stdout", "stderr"], int], tty: bool
    ) -> None:
        self._what = what
        self._stdin: int | None = stdin
        self._outputs = outputs
        self._tty = tty
        self.ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

    async def write(self, data: bytes) -> None:
        """Write to stdin; data after the command has closed its stdin is dropped."""
        while data and self._stdin is not None:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await self._until_writable_or_ended(self._stdin)
            except OSError:
                return
            if self.ended.done():
                return

    async def close_stdin(self) -> None:
        """Close stdin; on a terminal, send the end-of-file character instead."""
        if self._tty:
            await self.write(b"\x04")
        elif self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal; the kernel notifies the command."""
        if self._tty and self._stdin is not None:
            size = struct.pack("HHHH", min(rows, 65535), min(columns, 65535), 0, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._stdin, termios.TIOCSWINSZ, size)

    async def output(self) -> AsyncGenerator[pod_sessions.Chunk, None]:
        """The output until the command has ended."""
        chunks: asyncio.Queue[pod_sessions.Chunk | None] = asyncio.Queue(1)
        async with asyncio.TaskGroup() as group:
            readers = [
                group.create_task(self._read(stream, descriptor, chunks))
                for stream, descriptor in self._outputs.items()
            ]
            group.create_task(self._end(readers, chunks))
            while (chunk := await chunks.get()) is not None:
                yield chunk

    def exit_code(self) -> int:
        """The exit code. Raises InvalidError for a command that was not started."""
        code, reason = self.ended.result()
        if code == children.NOT_STARTED and reason:
            raise errors.InvalidError(self._what, reason)
        return code

    async def _read(
        self,
        stream: Literal["stdout", "stderr"],
        descriptor: int,
        chunks: asyncio.Queue[pod_sessions.Chunk | None],
    ) -> None:
        while True:
            await _readable(descriptor)
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno != errno.EIO:  # EIO: the last process has closed the terminal
                    raise
                return
            if not data:
                return
            await chunks.put(pod_sessions.Chunk(stream, data))

    async def _end(
        self, readers: list[asyncio.Task[None]], chunks: asyncio.Queue[pod_sessions.Chunk | None]
    ) -> None:
        """Wait for the end of the command, and then briefly for the rest of its output."""
        await asyncio.wait([self.ended])
        await asyncio.wait(readers, timeout=DRAIN_S)
        for reader in readers:
            reader.cancel()
        await chunks.put(None)

    async def _until_writable_or_ended(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(descriptor, ready.set)
        waiting = loop.create_task(ready.wait())
        either: list[asyncio.Future[Any]] = [waiting, self.ended]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            loop.remove_writer(descriptor)

    def close(self) -> None:
        """Close the node's ends of all streams."""
        own = {*self._outputs.values(), *([] if self._stdin is None else [self._stdin])}
        self._stdin = None
        for each in own:
            os.close(each)


@contextlib.asynccontextmanager
async def opened(
    process: ContainerProcess, request: pod_sessions.ExecRequest, what: str
) -> AsyncIterator[LocalExecSession]:
    """Run a command in a container inside the context; leaving the context kills the command."""
    session, streams = _make(what, request)
    try:
        handed = asyncio.create_task(process.open_session(request.command, streams, session.ended))
        try:
            number = await handed
        finally:
            passed_streams.close(streams)
        try:
            if not request.stdin:
                await session.close_stdin()
            yield session
        finally:
            process.kill(number)
    finally:
        session.close()


def _make(
    what: str, request: pod_sessions.ExecRequest
) -> tuple[LocalExecSession, children.Streams]:
    """Create the streams: the session with the node's ends, and the ends for the command."""
    if request.tty:
        ours, theirs = os.openpty()
        os.set_blocking(ours, False)
        streams = children.Streams(theirs, os.dup(theirs), os.dup(theirs), is_terminal=True)
        return LocalExecSession(what, ours, {"stdout": ours}, tty=True), streams
    stdin, write = os.pipe()
    read_out, stdout = os.pipe()
    read_err, stderr = os.pipe()
    for each in (write, read_out, read_err):
        os.set_blocking(each, False)
    outputs: dict[Literal["stdout", "stderr"], int] = {"stdout": read_out, "stderr": read_err}
    return (
        LocalExecSession(what, write, outputs, tty=False),
        children.Streams(stdin, stdout, stderr),
    )


async def _readable(descriptor: int) -> None:
    """Wait until there is something to read, or the end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
