"""The port to running pods: commands in containers and connections to ports.

Separate from ``Cluster``, since services never open sessions: only clients do, with the user's
rights. Every method raises the errors of ``stromboli.shared.errors``.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run in a container. ``container`` may be empty if the pod has only one.

    ``tty``: run it on a new terminal, where stderr is part of stdout. Without ``stdin`` the command
    reads an empty input.
    """

    command: tuple[str, ...]
    container: str = ""
    stdin: bool = False
    tty: bool = False


class Chunk(msgspec.Struct, frozen=True):
    """A part of the output of a command."""

    stream: Literal["stdout", "stderr"]
    data: bytes


class ExecSession(Protocol):
    """A running command. Leaving its context ends the session."""

    async def write(self, data: bytes) -> None:
        """Write to stdin. The data is ignored once the command has closed stdin."""

    async def close_stdin(self) -> None:
        """Close stdin, so that the command reads the end of its input."""

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""

    def output(self) -> AsyncGenerator[Chunk, None]:
        """The output until the command has ended, in order within each stream. May be called
        once."""

    def exit_code(self) -> int:
        """The exit code of the command, once the output has ended; after a signal, 128 plus its
        number. Raises UnavailableError if the connection broke before, and InvalidError if the
        command could not be started.
        """


class PodConnection(Protocol):
    """A TCP connection to a port of a pod."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises InvalidError if the port refuses connections."""

    async def write(self, data: bytes) -> None:
        """Send bytes. They are ignored once the pod has closed the connection."""


class PodSessions(Protocol):
    """Sessions in pods of one cluster, as one account."""

    def exec(
        self, namespace: str, pod: str, request: ExecRequest
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command with the environment and working directory of its container.

        Entering raises NotFoundError, ForbiddenError, UnavailableError, or InvalidError for a
        container that does not exist or is not running.
        """

    def connect(
        self, namespace: str, pod: str, port: int
    ) -> AbstractAsyncContextManager[PodConnection]:
        """Connect to a port of a pod. Entering raises as ``exec``."""
