"""One child process, with its log, readiness and end.

A child has a separate session, so Ctrl-C in the terminal reaches only this process, which stops its
children in order. Unless detached, a child is killed by the kernel when the *thread* that started
it ends, so parts must be started from a thread that lives as long as they should, usually the main
one. Waits poll and are not bound to an event loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.02
TAIL_LINES = 15
# Runs before the program and then becomes it by exec: requests SIGKILL at the parent's end from the
# kernel (Linux: PR_SET_PDEATHSIG, option 1) and exits if the parent has ended already. It is a
# program and not a preexec_fn, which may deadlock in a process with threads.
_DIE_WITH_PARENT = """
import os, sys
parent, argv = int(sys.argv[1]), sys.argv[2:]
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
os.execv(argv[0], argv)
"""


class PartFailedError(Exception):
    """A part ended or was not ready in time. Contains the end of its log."""

    def __init__(self, name: str, fact: str, log: Path, tail: str) -> None:
        super().__init__(f"{name} {fact}; the end of {log}:\n{tail}")
        self.name = name
        self.fact = fact
        self.log = log
        self.tail = tail


@dataclass(frozen=True)
class Identity:
    """Identifies a process, also after its pid is reused by another one.

    `started_ticks` is the kernel's start time in clock ticks since boot.
    """

    pid: int
    started_ticks: int


def identify(pid: int) -> Identity | None:
    """The identity of a running process, or None if there is none (Linux only: reads /proc)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may contain spaces
    return None if fields[0] == "Z" else Identity(pid, int(fields[19]))


async def end(identity: Identity, grace_s: float = 10.0) -> bool:
    """Stop a process that need not be our child: SIGTERM to its group, after `grace_s` SIGKILL.

    Returns False, without any effect, if this process no longer runs.
    """
    if identify(identity.pid) != identity:
        return False
    os.killpg(identity.pid, signal.SIGTERM)
    try:
        await _until(lambda: identify(identity.pid) != identity, grace_s)
    except TimeoutError:
        if identify(identity.pid) == identity:
            os.killpg(identity.pid, signal.SIGKILL)
    return True


async def _until(holds: Callable[[], bool], timeout_s: float | None = None) -> None:
    async with asyncio.timeout(timeout_s):
        while True:  # polling: the event may be set outside of any event loop
            if holds():
                return
            await asyncio.sleep(POLL_S)


class Process:
    """A program that can be started, awaited, stopped or killed, and started again."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> None:
        """`argv`: the command line; `argv[0]` is a path. `env` is added to the environment of this
        process. Does not start the program."""
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._env = {**os.environ, **(env or {})}
        self._detached = detached
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group. Raises RuntimeError if it was never
        started."""
        if self._child is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._child.pid

    def start(self) -> None:
        """Start the program; its output is appended to the log."""
        if self.is_running:
            raise RuntimeError(f"{self.name} runs already as process {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._child = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )

    def _command(self) -> list[str]:
        if self._detached:
            return self._argv
        launcher = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]
        return [*launcher, *self._argv]

    def logged(self) -> str:
        """The log since the last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def failed(self, fact: str) -> PartFailedError:
        """An error that reports `fact` about this process, with the end of its log."""
        tail = "\n".join(self.logged().splitlines()[-TAIL_LINES:])
        return PartFailedError(self.name, fact, self.log, tail)

    async def wait_ready(self, is_ready: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
        """Return when `is_ready` is true; raise PartFailedError if the process ends or takes too
        long.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if not self.is_running:
                        raise self.failed(f"ended with {self._status()} before it was ready")
                    if await is_ready():
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise self.failed(f"was not ready within {timeout_s:.0f} s") from error

    def _status(self) -> str:
        code = None if self._child is None else self._child.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"status {code}"

    async def stop(self, grace_s: float = 10.0) -> None:
        """Send SIGTERM to its group and wait, after `grace_s` send SIGKILL. No effect if it has
        ended."""
        try:
            self._signal(signal.SIGTERM)
            await _until(self._has_ended, grace_s)
        except TimeoutError:
            pass  # continue with SIGKILL below
        finally:
            self._signal(signal.SIGKILL)
        await _until(self._has_ended)

    async def kill(self) -> None:
        """Send SIGKILL to its process group, as a crash would; return when it has ended."""
        self._signal(signal.SIGKILL)
        await _until(self._has_ended)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.killpg(self.pid, number)

    async def wait(self) -> int:
        """Wait until the process ends; return its exit status (minus the signal number after a
        signal)."""
        await _until(self._has_ended)
        assert self._child is not None
        return self._child.returncode

    def _has_ended(self) -> bool:
        return not self.is_running
