"""Watchdog: a thread that stops a plugin's function that does not return within a deadline.

The deadline is CPU time of the core thread, because on a busy machine, or in a container with
little CPU, a second of work can take many seconds, and a session without a plugin such as
``predicates`` places nothing. A call that waits uses no CPU: it is stopped after ``WAIT_FACTOR``
deadlines of real time.

It costs the core thread nothing. The watchdog samples the core thread's stack; if it finds the same
call of a plugin after the deadline, it raises an exception in the core thread
(``PyThreadState_SetAsyncExc``). The exception takes effect at the next Python instruction. A call
that hangs in C code cannot be stopped: it is logged, and an operator has to restart the service.

The exception must not be raised after the end of the attempt that it targets. Both threads use one
lock to avoid this race: the watchdog interrupts only while the attempt is marked as running; the
attempt, before it ends, removes the mark and cancels an exception that has not been raised yet.
"""

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Self

from stromboli.scheduler.core.framework import plugin_isolation, session
from stromboli.shared.runtime import telemetry

_CHECKS_PER_DEADLINE = 10
"""Samples of the stack within a deadline."""
WAIT_FACTOR = 12
"""Number of deadlines in real time after which a call is stopped even if it has used less CPU
time."""


def thread_cpu_s(thread: int) -> float:
    """CPU seconds that a live thread of this process has used. A system without a CPU clock for
    threads (unlike Linux) returns wall-clock seconds: deadlines then count wall-clock time."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic()
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


class PluginWatchdog:
    """Watches the attempts of one thread. A context manager."""

    def __init__(
        self,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[int], float] = thread_cpu_s,
    ) -> None:
        """``deadline_s``: CPU seconds that one call of a plugin's function may take. ``cpu_s``:
        thread -> the CPU seconds that it has used."""
        self._deadline_s = deadline_s
        self._clock = clock
        self._cpu_s = cpu_s
        self._lock = threading.Lock()
        self._running: int | None = None
        """Id of the thread whose attempt is running."""
        self._has_fired = False
        self._begun = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._monitor, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._begun.set()
        self._thread.join()

    def __call__(self, attempt: plugin_isolation.Attempt) -> session.Session:
        """Run an attempt in this thread. A call that takes too long raises PluginHungError."""
        try:
            self._running = threading.get_ident()
            self._begun.set()
            return attempt()
        finally:
            while self._running is not None:
                # The call returned just before the exception.
                with contextlib.suppress(session.PluginHungError):
                    self._disarm()

    def _disarm(self) -> None:
        """End the watch. An exception that was set before may be raised in this method."""
        with self._lock:
            if self._has_fired:
                _raise_in_thread(threading.get_ident(), None)
                self._has_fired = False
            self._running = None

    # The watching thread ----------------------------------------------------------------------

    def _monitor(self) -> None:
        last_frame: FrameType | None = None
        since = used = 0.0
        while not self._stopped.wait(self._deadline_s / _CHECKS_PER_DEADLINE):
            if self._is_idle():  # sleep until an attempt begins
                self._begun.clear()
                last_frame = None
                if self._is_idle() and not self._stopped.is_set():
                    self._begun.wait()
                continue
            call = self._call()
            now, used_now = self._clock(), self._used()
            if call is None or call[0] is not last_frame:
                last_frame, since, used = (call[0] if call else None), now, used_now
            elif (
                used_now - used >= self._deadline_s or now - since >= self._deadline_s * WAIT_FACTOR
            ):
                self._interrupt(call[0], call[1])
                since, used = self._clock(), self._used()

    def _used(self) -> float:
        """CPU seconds of the thread whose attempt is running; 0 if none is."""
        with self._lock:  # the thread does not end while its attempt is marked as running
            return 0.0 if self._running is None else self._cpu_s(self._running)

    def _is_idle(self) -> bool:
        return self._running is None

    def _call(self) -> tuple[FrameType, str] | None:
        """The outermost running call of a plugin's function, and the plugin's name."""
        running = self._running
        frame = None if running is None else sys._current_frames().get(running)
        # The other thread keeps running, so frames may be incomplete or change while they are
        # read. This sample then finds nothing; a call that hangs is found by the next one.
        with contextlib.suppress(Exception):
            return None if frame is None else plugin_call(frame)
        return None

    def _interrupt(self, frame: FrameType, plugin: str) -> None:
        with self._lock:
            running, now = self._running, self._call()
            if running is None or now is None or now[0] is not frame:
                return
            telemetry.log.error("plugin does not respond", plugin=plugin, seconds=self._deadline_s)
            self._has_fired = True
            _raise_in_thread(running, session.PluginHungError)


def plugin_call(innermost: FrameType) -> tuple[FrameType, str] | None:
    """The outermost frame of a plugin above this one, and the plugin's name."""
    frames = list(_caller_frames(innermost))[::-1]
    for frame in frames:
        if frame.f_code is session.Session.open_plugin.__code__:
            return frame, frame.f_locals["options"].name
    sessions = (
        value
        for frame in frames
        for value in frame.f_locals.values()
        if isinstance(value, session.Session)
    )
    ssn = next(sessions, None)
    return None if ssn is None else plugin_isolation.owner(frames, ssn)


def _caller_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _raise_in_thread(thread: int, kind: type[BaseException] | None) -> None:
    """Raise ``kind`` in a thread at its next instruction; None cancels a pending exception."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if kind is None else ctypes.py_object(kind)
    )
