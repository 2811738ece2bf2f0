"""Starts a container's processes, measures their memory, and kills all of them.

In its own process namespace the launcher is process 1: the kernel reparents every orphan to it and
kills all processes with it. Without a namespace it becomes the subreaper of its descendants, so
that neither a double fork nor a new session escapes, and kills by walking ``/proc`` until none is
left.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import termios
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 23, 24, 38
KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31})
"""Capabilities of isolated commands: those that containers of Kubernetes have by default, without
NET_RAW and MKNOD: network and devices are the machine's. Numbers: capabilities(7)."""
NOT_STARTED = 128
"""Exit code of a container whose command could not be started, as in container runtimes."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that this process ignores or handles; children get the default handling."""

libc = ctypes.CDLL(None, use_errno=True)


class StartError(Exception):
    """The command could not be started; the message has the reason."""


def adopt_orphans() -> None:
    """Become the subreaper of all descendants."""
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "become the subreaper of descendants")


def confine() -> None:
    """Give up all rights but ``KEPT_CAPABILITIES`` permanently, from the next exec on."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    number = 0
    while (state := libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if state and number not in KEPT_CAPABILITIES:
            _prctl(PR_CAPBSET_DROP, number)
        number += 1


def _prctl(option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"drop privileges: {os.strerror(number)}")


class Streams(NamedTuple):
    """File descriptors of a command; ``stdin`` None: an empty input. ``is_terminal``: they are a
    terminal, which becomes the controlling terminal of the command.
    """

    stdin: int | None
    stdout: int
    stderr: int
    is_terminal: bool = False


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    streams: Streams,
    *,
    confined: bool = False,
) -> int:
    """Start a command in a new session on these streams, with few rights if ``confined``; return
    its pid.

    Raises StartError that names the missing file.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        with open(read_end, "rb") as answer:
            problem = answer.read().decode()
        if problem:
            os.waitpid(pid, 0)
            raise StartError(problem)
        return pid
    try:
        os.setsid()
        for number in _RESET:
            signal.signal(number, signal.SIG_DFL)
        stdin = os.open(os.devnull, os.O_RDONLY) if streams.stdin is None else streams.stdin
        for standard, source in ((0, stdin), (1, streams.stdout), (2, streams.stderr)):
            os.dup2(source, standard)
        if streams.is_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(0o022)
        try:
            os.chdir(folder)
        except OSError as error:
            os.write(write_end, f"working directory {folder}: {error.strerror}".encode())
            os._exit(NOT_STARTED)
        if confined:
            confine()
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        os.write(write_end, f"exec {command[0]}: {error.strerror}".encode())
    except BaseException as error:
        os.write(write_end, f"exec {command[0]}: {error}".encode())
    os._exit(NOT_STARTED)


def reap() -> Iterator[tuple[int, int]]:
    """Yield (pid, exit code) of every ended child; 128 plus the signal number after a signal."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        yield pid, code if code >= 0 else 128 - code


def descendants(of: int) -> list[int]:
    """Return the pids of all descendants of a process, each after its parent."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (parent := _parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    subtree = [of]
    for pid in subtree:
        subtree += children.get(pid, ())
    return subtree[1:]


def _parent(pid: str) -> int | None:
    """Return the parent's pid, None if the process is gone. The command name may contain brackets
    and spaces.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1])


def kill_all() -> None:
    """Kill all descendants; return when none is left, even if they keep forking."""
    while True:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Usage(NamedTuple):
    """The usage of all processes of a container: CPU time in milliseconds, and the highest known
    memory: the peak of any ended process, which the kernel keeps, or the present sum of the running
    processes, if that is higher."""

    cpu_ms: int
    memory_bytes: int


def usage() -> Usage:
    """Return the usage of all descendants, including those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ms = round(1000 * (ended.ru_utime + ended.ru_stime))
    memory, total = ended.ru_maxrss * 1024, 0
    for pid in descendants(os.getpid()):
        cpu_ms += _cpu_ms(pid)
        total += _proportional(pid)
    return Usage(cpu_ms, max(memory, total))


def _cpu_ms(pid: int) -> int:
    """The CPU time of a process and of its children that have ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) * _TICK_MS


def memory_bytes(limit_bytes: int) -> int:
    """Return the memory of all descendants. Shared pages count once per process, or only once if
    the sum would exceed the limit: the precise count is expensive.
    """
    pids = descendants(os.getpid())
    resident = sum(_resident(pid) for pid in pids)
    return resident if resident <= limit_bytes else sum(_proportional(pid) for pid in pids)


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return _resident(pid)
    return 0
