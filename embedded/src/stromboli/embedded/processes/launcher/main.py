"""The launcher's loop: one container from its start to the end of all of its processes.

The first line on stdin is a ``Spec``; further lines are requests: ``{"stop": grace_s}`` (SIGTERM to
the command, SIGKILL to everything after the grace period), ``{"exec": id, "command": [...],
"timeout_s": n}``, the same with ``session`` and ``key`` instead of a time limit (a command on the
streams of the caller, see ``passed_streams``), ``{"kill": id}`` (of an exec). Lines on stdout are
events: ``started``, ``refused`` (why), ``wrote`` (bytes so far), ``done`` (of an exec: id, code,
None if out of time, output), ``used`` (CPU time in milliseconds, bytes of memory), ``ended`` (code,
oom, lost).
"""

import contextlib
import fcntl
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, TypedDict

from stromboli.embedded.processes.launcher import (
    children,
    container_view,
    isolated_root,
    passed_streams,
    segments,
)

CHUNK_BYTES = 1 << 20
TELL_EVERY_S = 0.05
"""Interval at which followers are notified of new output."""
MEMORY_EVERY_S = 0.1
"""Interval of memory measurements; usage may exceed the limit in between."""
USAGE_EVERY_S, USAGE_SHARE = (1.0, 10.0), 0.1
"""Interval of usage reports: its minimum and maximum, and its share of the container's age."""
DRAIN_S = 2.0
"""Time limit for reading the last output once no writer is left."""
EXEC_OUTPUT_BYTES = 1024
F_SETPIPE_SZ = 1031
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that process 1 of a container forwards to its command, which would be process 1 in an
image: ``kill -USR1 1`` makes programs write a checkpoint. Other signals may come from outside, when
the node stops."""


class ContainerView(TypedDict):
    """Namespaces of the container, see ``container_view``. ``isolation``: see ``isolated_root``;
    None if the container sees the files of the machine.
    """

    folder: str
    mounts: list[dict[str, Any]]
    hostname: str
    as_root: bool
    isolation: isolated_root.Isolation | None


class Spec(TypedDict):
    """The container to run. ``view`` None: the machine as it is. ``memory_bytes`` 0: no limit.
    ``entry``: the command that runs a further command in the container, empty if the launcher's
    namespaces are the container.
    """

    command: list[str]
    entry: list[str]
    environment: dict[str, str]
    working_directory: str
    log: str
    keep_bytes: int
    memory_bytes: int
    view: ContainerView | None


class Exec:
    """A command beside the container's main process, in the same namespaces."""

    def __init__(self, number: int, pid: int, output: int | None, until: float) -> None:
        self.number, self.pid, self.output, self.until = number, pid, output, until
        self.is_late = False
        self.said = b""


class Container:
    """One run of a container."""

    def __init__(self, spec: Spec, requested: bytes) -> None:
        self._spec = spec
        self._asked = requested
        self._log = segments.Segments(spec["log"], spec["keep_bytes"])
        self._selector = selectors.DefaultSelector()
        self._kill_at = float("inf")
        self._tell_at = float("inf")
        self._count_at = time.monotonic() if spec["memory_bytes"] else float("inf")
        self._began_at = time.monotonic()
        self._use_at = self._began_at + USAGE_EVERY_S[0]
        self._most_memory = 0
        self._reported = 0
        self._is_out_of_memory = False
        self._execs: dict[int, Exec] = {}
        self._exit_code: int | None = None
        self._main = 0
        self._output = -1

    def run(self) -> None:
        """Run the container from start to end."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._output, writing = os.pipe()
        os.set_blocking(self._output, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._output, F_SETPIPE_SZ, CHUNK_BYTES)
        try:
            self._main = self._start(self._spec["command"], writing)
        except children.StartError as error:
            send_message(refused=str(error))
            return
        if os.getpid() == 1:
            for number in FORWARDED:
                signal.signal(number, self._forward)
        os.close(writing)
        send_message(started=True)
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ, self._listen)
        self._selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 4096))
        self._selector.register(self._output, selectors.EVENT_READ, self._drain)
        self._handle_request()
        while self._exit_code is None:
            for key, _ in self._selector.select(self._pause_s()):
                key.data()
            self._reap()
            self._keep_time(time.monotonic())
        children.kill_all()
        self._finish()

    def _forward(self, number: int, _: object) -> None:
        if self._exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._main, number)

    def _start(self, command: list[str], output: int) -> int:
        return self._start_on(command, children.Streams(None, output, output))

    def _start_on(self, command: list[str], streams: children.Streams) -> int:
        environment, folder = self._spec["environment"], self._spec["working_directory"]
        if streams.is_terminal:
            environment = {"TERM": "xterm", **environment}
        view = self._spec["view"]
        confined = view is not None and view["isolation"] is not None
        return children.start(command, environment, folder, streams, confined=confined)

    # --- requests ---------------------------------------------------------------------

    def _listen(self) -> None:
        read = os.read(0, CHUNK_BYTES)
        if not read:  # the node agent is gone, so the container must end
            self._selector.unregister(0)
            self._kill_at = 0.0
            return
        self._asked += read
        self._handle_request()

    def _handle_request(self) -> None:
        *lines, self._asked = self._asked.split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "stop" in request:
                self._kill_at = min(self._kill_at, time.monotonic() + request["stop"])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._main, signal.SIGTERM)
            elif "kill" in request:
                self._kill(request["kill"])
            elif "session" in request:
                self._open_session(request)
            else:
                self._execute(request)

    def _open_session(self, request: dict[str, Any]) -> None:
        """Run a command on the streams of the caller, without a time limit."""
        try:
            streams = passed_streams.receive(request["session"], request["key"])
        except OSError as error:
            send_message(done=request["exec"], code=children.NOT_STARTED, output=str(error))
            return
        try:
            pid = self._start_on(self._spec["entry"] + request["command"], streams)
        except children.StartError as error:
            send_message(done=request["exec"], code=children.NOT_STARTED, output=str(error))
            return
        finally:
            passed_streams.close(streams)
        self._execs[pid] = Exec(request["exec"], pid, None, float("inf"))

    def _kill(self, number: int) -> None:
        for run in self._execs.values():
            if run.number == number:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)

    def _execute(self, request: dict[str, Any]) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            pid = self._start(self._spec["entry"] + request["command"], writing)
        except children.StartError as error:
            os.close(reading)
            send_message(done=request["exec"], code=children.NOT_STARTED, output=str(error))
            return
        finally:
            os.close(writing)
        until = time.monotonic() + request["timeout_s"]
        run = self._execs[pid] = Exec(request["exec"], pid, reading, until)
        self._selector.register(reading, selectors.EVENT_READ, lambda: self._read_output(run))

    # --- events of the container -----------------------------------------------------------

    def _drain(self) -> None:
        """Read pending output. At end of file, no process has the output open any more."""
        with contextlib.suppress(BlockingIOError):
            if chunk := os.read(self._output, CHUNK_BYTES):
                self._log.write(chunk)
                self._tell_at = min(self._tell_at, time.monotonic() + TELL_EVERY_S)
            else:
                self._selector.unregister(self._output)

    def _read_output(self, run: Exec) -> None:
        if run.output is None:
            return
        with contextlib.suppress(BlockingIOError):
            if chunk := os.read(run.output, CHUNK_BYTES):
                run.said = (run.said + chunk)[:EXEC_OUTPUT_BYTES]
            else:
                self._stop_listening(run)

    def _stop_listening(self, run: Exec) -> None:
        if run.output is not None and run.output in self._selector.get_map():
            self._selector.unregister(run.output)

    def _reap(self) -> None:
        for pid, code in children.reap():
            if pid == self._main:
                self._exit_code = code
            elif run := self._execs.pop(pid, None):
                self._read_output(run)
                self._stop_listening(run)
                if run.output is not None:
                    os.close(run.output)
                text = run.said.decode(errors="replace")
                send_message(done=run.number, code=None if run.is_late else code, output=text)

    def _keep_time(self, now: float) -> None:
        if now >= self._tell_at:
            self._tell_at = float("inf")
            self._report_written()
        for run in self._execs.values():
            if now >= run.until and not run.is_late:
                run.is_late = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
        if now >= self._count_at:
            self._count_at = now + MEMORY_EVERY_S
            limit_bytes = self._spec["memory_bytes"]
            in_use = children.memory_bytes(limit_bytes)
            self._most_memory = max(self._most_memory, in_use)
            if in_use > limit_bytes:
                self._is_out_of_memory = True
                self._kill_at = 0.0
        if now >= self._use_at:
            age_s = now - self._began_at
            self._use_at = now + min(max(age_s * USAGE_SHARE, USAGE_EVERY_S[0]), USAGE_EVERY_S[1])
            self._report_used()
        if now >= self._kill_at and self._exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._main, signal.SIGKILL)
            self._kill_at = float("inf")

    def _pause_s(self) -> float:
        times = (self._kill_at, self._tell_at, self._count_at, self._use_at)
        first = min((*times, *(it.until for it in self._execs.values() if not it.is_late)))
        return max(first - time.monotonic(), 0.0)

    def _finish(self) -> None:
        """Read the remaining output after all processes ended, and report the end."""
        deadline = time.monotonic() + DRAIN_S
        while self._output in self._selector.get_map() and time.monotonic() < deadline:
            self._drain()
        self._report_written()
        self._report_used()
        send_message(ended=self._exit_code, oom=self._is_out_of_memory, lost=self._log.lost)

    def _report_written(self) -> None:
        if self._log.end != self._reported:
            self._reported = self._log.end
            send_message(wrote=self._log.end)

    def _report_used(self) -> None:
        used = children.usage()
        self._most_memory = max(self._most_memory, used.memory_bytes)
        send_message(used=[used.cpu_ms, self._most_memory])


def send_message(**fields: Any) -> None:
    """Send a line to the node; ignore a closed pipe."""
    with contextlib.suppress(OSError):
        line = json.dumps(fields).encode() + b"\n"
        while line:
            line = line[os.write(1, line) :]


def _enter(view: ContainerView) -> None:
    mounts: list[Mapping[str, Any]] = [*view["mounts"]]
    if (isolation := view["isolation"]) is None:
        container_view.enter(view["folder"], mounts, view["hostname"])
    else:
        isolated_root.enter(view["folder"], mounts, view["hostname"], isolation)


def main() -> None:
    """Read the spec, enter its namespaces, run the container."""
    # The parent may have left file descriptors open: uvloop leaves the ends of its pipes. A
    # container that inherited them could send messages as its launcher, and hide its own end.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    requested = b""
    while b"\n" not in requested:
        read = os.read(0, CHUNK_BYTES)
        if not read:
            return
        requested += read
    line, _, rest = requested.partition(b"\n")
    spec: Spec = json.loads(line)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if (view := spec["view"]) is None:
        children.adopt_orphans()
        Container(spec, rest).run()
        return
    try:
        container_view.unshare(as_root=view["as_root"], isolated=view["isolation"] is not None)
    except OSError as error:
        send_message(refused=str(error.strerror), namespaces=False)
        return
    inner = os.fork()
    if inner:
        os.waitpid(inner, 0)
        return
    # Process 1 of the new namespace ends with this process, and all processes of the namespace with
    # it.
    children.libc.prctl(children.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    container = Container(spec, rest)
    try:
        _enter(view)
    except OSError as error:
        send_message(refused=str(error.strerror or error), namespaces=False)
    else:
        container.run()
    sys.stdout.flush()
    os._exit(0)
