"""One run of a container: its launcher, spoken with over two pipes."""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from stromboli.embedded.processes.launcher import main as launcher
from stromboli.embedded.processes.output import Output
from stromboli.shared.runtime import telemetry

_SOURCES = str(Path(__file__).parents[3])
"""The folder that ``stromboli`` is imported from."""
_COMMAND = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from stromboli.embedded.processes.launcher import main; main.main()"
)
_LINE_BYTES = 1 << 20
MARK = "STROM_POD_UID"
"""Variable of every process of a pod, by which those of a killed launcher are found."""
_REQUEST = msgspec.json.Encoder()


class LauncherMessage(msgspec.Struct, frozen=True):
    """A line of the launcher's."""

    started: bool = False
    refused: str | None = None
    namespaces: bool = True
    wrote: int | None = None
    done: int | None = None
    code: int | None = None
    output: str = ""
    ended: int | None = None
    oom: bool = False
    lost: int = 0


_MESSAGE = msgspec.json.Decoder(LauncherMessage)


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended. ``refused``: why it did not begin, empty if it did; ``has_namespaces``:
    False if that was for want of them."""

    exit_code: int = 0
    refused: str = ""
    has_namespaces: bool = True
    is_out_of_memory: bool = False
    lost_bytes: int = 0


class ContainerProcess:
    """A container's run. ``output`` grows as it writes."""

    def __init__(self, process: asyncio.subprocess.Process, output: Output, uid: str) -> None:
        self._process = process
        self._uid = uid
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[LauncherMessage]] = {}
        self.output = output

    async def events(self, started: Callable[[], None]) -> Outcome:
        """Follow the run to its end; ``started`` is called once the command runs.

        Cancelled, it lets go of the launcher, which kills everything.
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
        """Ask it to end; kill it after the grace."""
        self._ask({"stop": grace_s})

    async def execute(self, command: tuple[str, ...], timeout_s: float) -> tuple[bool, str]:
        """Whether a command beside it ended with 0 in time, and what it said."""
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

    def _ask(self, request: dict[str, Any]) -> None:
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(_REQUEST.encode(request) + b"\n")

    async def _close(self) -> None:
        """Let go of the launcher and return once it, and so everything that it started, is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        while await self._process.stdout.read(_LINE_BYTES):
            pass
        await self._process.wait()


async def _finish_despite_cancellation(work: Coroutine[Any, Any, None]) -> None:
    """Do work that takes moments, whoever cancels meanwhile; the cancellation follows."""
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

    Raises OSError if the machine takes no more processes; then ``output`` is at its end.
    """
    interpreter = [sys.executable, "-I", "-S", "-c", _COMMAND, _SOURCES]
    libraries = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    try:
        process = await asyncio.create_subprocess_exec(
            *interpreter,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in libraries.items() if value},
            start_new_session=True,  # a Ctrl-C on the terminal is the node's to hear, not theirs
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

    In a process namespace the kernel has done so already.
    """
    while found := processes_of(uid):
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def processes_of(uid: str) -> list[int]:
    """The pids of all processes that carry a pod's mark, as far as they are ours to see."""
    mark = f"{MARK}={uid}".encode()
    return [
        int(name) for name in os.listdir("/proc") if name.isdecimal() and mark in _variables(name)
    ]


def _variables(pid: str) -> list[bytes]:
    """Nothing of others' processes, nor of those that are over."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
