"""Runs one container through its launcher: the node's end of the pipes between the two."""

import asyncio
import contextlib
import functools
import itertools
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from stromboli.embedded.processes.launcher import children, passed_streams
from stromboli.embedded.processes.launcher import main as launcher
from stromboli.embedded.processes.output import Output
from stromboli.shared import decoding, errors
from stromboli.shared.runtime import telemetry

_SOURCES = str(Path(__file__).parents[3])
"""The folder from which ``stromboli`` is imported."""
_COMMAND = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from stromboli.embedded.processes.launcher import main; main.main()"
)
_LINE_BYTES = 1 << 20
MARK = "STROM_POD_UID"
"""Environment variable of every process of a pod; identifies the processes of a killed launcher."""
_REQUEST = msgspec.json.Encoder()


class LauncherMessage(msgspec.Struct, frozen=True):
    """A message that the launcher sends as a line of JSON."""

    started: bool = False
    refused: str | None = None
    namespaces: bool = True
    wrote: int | None = None
    used: tuple[int, int] | None = None
    done: int | None = None
    code: int | None = None
    output: str = ""
    ended: int | None = None
    oom: bool = False
    lost: int = 0


_MESSAGE = decoding.decoder_of(LauncherMessage)


class Outcome(msgspec.Struct, frozen=True):
    """The result of a run. ``refused``: why it did not start, empty if it did; ``has_namespaces``:
    False if namespaces were missing.
    """

    exit_code: int = 0
    refused: str = ""
    has_namespaces: bool = True
    is_out_of_memory: bool = False
    lost_bytes: int = 0


class ContainerProcess:
    """A running container. ``output`` grows as it writes. ``used``: its CPU time in milliseconds,
    and the most bytes of memory that it had in use; None before the first measurement."""

    def __init__(self, process: asyncio.subprocess.Process, output: Output, uid: str) -> None:
        self._process = process
        self._uid = uid
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[LauncherMessage]] = {}
        self.output = output
        self.used: tuple[int, int] | None = None

    async def events(self, started: Callable[[], None]) -> Outcome:
        """Follow the run to its end; ``started`` is called when the command runs.

        If cancelled, it closes the launcher's pipe, and the launcher kills everything.
        """
        try:
            return await self._events(started)
        finally:
            self.output.end()
            for answer in self._answers.values():
                answer.cancel()
            await _finish_despite_cancellation(self._close())

    async def _events(self, started: Callable[[], None]) -> Outcome:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = _MESSAGE.decode(line)
            if message.started:
                started()
            elif message.refused is not None:
                return Outcome(128, message.refused, message.namespaces)
            elif message.used is not None:
                self.used = message.used
            elif message.wrote is not None:
                self.output.grow(message.wrote)
            elif message.done is not None:
                answer = self._answers.pop(message.done, None)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            elif message.ended is not None:
                return Outcome(message.ended, is_out_of_memory=message.oom, lost_bytes=message.lost)
        telemetry.log.warning("a launcher was killed", pod=self._uid)
        sweep(self._uid)
        return Outcome(128 + signal.SIGKILL)

    def stop(self, grace_s: float) -> None:
        """Terminate the container; kill it after the grace period."""
        self._ask({"stop": grace_s})

    async def execute(self, command: tuple[str, ...], timeout_s: float) -> tuple[bool, str]:
        """Run a command beside the container; return whether it exited with 0 in time, and its
        output.
        """
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._ask({"exec": number, "command": list(command), "timeout_s": timeout_s})
        try:
            message = await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                return False, "the container ended"
            raise
        if message.code is None:
            return False, f"no answer within {timeout_s:g}s"
        return message.code == 0, message.output.strip() or f"exit code {message.code}"

    async def open_session(
        self,
        command: tuple[str, ...],
        streams: children.Streams,
        ended: asyncio.Future[tuple[int, str]],
    ) -> int:
        """Run a command on these streams beside the container; return its number for ``kill``.

        ``ended`` gets its exit code, and the reason if it was not started. Raises UnavailableError
        if the launcher does not take the streams.
        """
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(functools.partial(_pass_on, ended))
        listening, name, key = passed_streams.listen()
        with listening:
            listening.settimeout(0)
            words = {"exec": number, "command": list(command), "session": name, "key": key}
            self._ask(words)
            await self._hand_over(listening, key, streams, answer)
        return number

    async def _hand_over(
        self,
        listening: socket.socket,
        key: str,
        streams: children.Streams,
        answer: asyncio.Future[LauncherMessage],
    ) -> None:
        """Send the streams to the launcher, not to another process that connects."""
        loop = asyncio.get_running_loop()
        is_handed = False
        while not is_handed:
            accepted = loop.create_task(loop.sock_accept(listening))
            waiting: list[asyncio.Future[Any]] = [accepted, answer]
            await asyncio.wait(
                waiting, timeout=passed_streams.WITHIN_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not accepted.done():
                accepted.cancel()
                raise errors.UnavailableError("run a command", "the container is not running")
            connection, _ = accepted.result()
            with connection:
                is_handed = await asyncio.to_thread(
                    passed_streams.hand_over, connection, key, streams
                )

    def kill(self, number: int) -> None:
        """Kill a command of ``open_session`` with its process group, if it still runs."""
        self._ask({"kill": number})

    def _ask(self, request: dict[str, Any]) -> None:
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(_REQUEST.encode(request) + b"\n")

    async def _close(self) -> None:
        """Close the launcher's pipe and wait until the launcher and all its processes have
        ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        while await self._process.stdout.read(_LINE_BYTES):
            pass
        await self._process.wait()


def _pass_on(
    ended: asyncio.Future[tuple[int, str]], answer: asyncio.Future[LauncherMessage]
) -> None:
    """Pass on the result of a command. Without one, the container has ended, which killed the
    command."""
    if ended.done():
        return
    if answer.cancelled():
        ended.set_result((128 + signal.SIGKILL, ""))
    else:
        message = answer.result()
        ended.set_result((message.code or 0, message.output))


async def _finish_despite_cancellation(work: Coroutine[Any, Any, None]) -> None:
    """Finish short work even if cancelled meanwhile; the cancellation is raised afterwards."""
    task, is_cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            is_cancelled = True
    task.result()
    if is_cancelled:
        raise asyncio.CancelledError


async def start_container(spec: launcher.Spec, output: Output, uid: str) -> ContainerProcess:
    """Start a container of the pod with this uid. ``output`` reads the folder ``spec.log``.

    Raises OSError if the machine accepts no more processes; ``output`` then ends.
    """
    interpreter = [sys.executable, "-I", "-S", "-c", _COMMAND, _SOURCES]
    libraries = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    try:
        process = await asyncio.create_subprocess_exec(
            *interpreter,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in libraries.items() if value},
            start_new_session=True,  # Ctrl-C on the terminal is for the node only
            limit=_LINE_BYTES,
        )
    except OSError:
        output.end()
        raise
    assert process.stdin is not None
    process.stdin.write(_REQUEST.encode(spec) + b"\n")
    return ContainerProcess(process, output, uid)


def sweep(uid: str) -> None:
    """Kill all processes of a pod whose launcher is gone.

    In a process namespace the kernel has already done so.
    """
    while pids := processes_of(uid):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def processes_of(uid: str) -> list[int]:
    """Return the pids of all visible processes with the pod's mark."""
    mark = f"{MARK}={uid}".encode()
    return [
        int(name) for name in os.listdir("/proc") if name.isdecimal() and mark in _variables(name)
    ]


def _variables(pid: str) -> list[bytes]:
    """Return the environment of a process; nothing for ended processes and those of other users."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
