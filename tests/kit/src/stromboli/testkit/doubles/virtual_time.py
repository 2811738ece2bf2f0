"""An event loop in virtual time: its clock advances only while nothing else is left to do.

``loop.time()`` jumps to the next timer once no callback is ready, no socket has data and no thread
works for the loop. So programs whose waits are timers of the loop run as fast as the machine can,
computing takes no virtual time, and the load of the machine changes nothing. Threads count that the
loop started with ``run_in_executor``, and those of ``embedded.store``.

Each pass of the loop begins when the threads have finished all that earlier passes gave them. So
what is given to a thread together is also answered together, however the system runs the threads:
writes of one pass share a commit, and readers observe them at once.
"""

import asyncio
import concurrent.futures
import contextvars
import selectors
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar, TypeVarTuple

from stromboli.embedded import store

LOOK_S = 0.0002
"""Real time between two looks at threads that work."""
RESOLUTION_S = 1e-9
"""By how much the clock advances beyond a timer. asyncio runs timers early by the resolution of the
clock, and a sum of floats may be smaller than the time of the timer: what waits until that time
would begin to wait again, and time would never advance."""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop in virtual time, and return its result."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at time 0. All of its waits must be for timers, its own sockets or its threads."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._executing: set[concurrent.futures.Future[Any]] = set()
        self._threads = concurrent.futures.ThreadPoolExecutor()
        super().__init__(_Selector(self))
        self.set_default_executor(self._threads)

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._now_s

    def advance(self, by_s: float) -> None:
        """Move the clock forward."""
        self._now_s += by_s

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call later, and not in the same instant: asyncio runs timers early that are due within
        the resolution of the clock, and what waits for the rest of a time would wait again and
        again while time does not advance."""
        least_s = 2 * RESOLUTION_S if delay > 0 else delay
        return super().call_later(max(delay, least_s), callback, *args, context=context)

    def run_in_executor(
        self,
        executor: concurrent.futures.Executor | None,
        func: Callable[[*Ts], Any],
        *args: *Ts,
    ) -> asyncio.Future[Any]:
        """Run in a thread, during which time does not advance."""
        call = (executor or self._threads).submit(func, *args)
        self._executing.add(call)
        future = asyncio.wrap_future(call, loop=self)
        # Called after the loop was notified of the result, as callbacks are called in order.
        call.add_done_callback(self._executing.discard)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's own signature
        """Join the threads, however long it takes: a limit would be virtual time."""
        await super().shutdown_default_executor()

    def is_waiting_for_threads(self) -> bool:
        """Whether a thread works for the loop."""
        if self._executing:
            return True
        frames = sys._current_frames()
        idents = (each.ident for each in threading.enumerate() if each.name.startswith("store "))
        return any(ident in frames and not _is_idle(frames[ident]) for ident in idents if ident)


def _is_idle(frame: FrameType) -> bool:
    """Whether the thread of a store waits for work: it is in ``_serve`` itself, its queue empty."""
    if frame.f_code is not store.Store._serve.__code__:
        return False
    waiting: store.Store = frame.f_locals["self"]
    return waiting._queue.empty()


class _Selector(selectors.DefaultSelector):
    """Waits for no timer, and advances the clock of its loop instead."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._virtual = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; else nothing, ``timeout`` virtual seconds later."""
        while True:
            while self._virtual.is_waiting_for_threads():
                super().select(LOOK_S)
                time.sleep(0)  # lets the thread continue
            found = super().select(0)
            if found or timeout == 0:
                return found
            if timeout is not None:
                found = super().select(LOOK_S)  # the answer of a thread may be on its way
                if not found and self._virtual.is_waiting_for_threads():
                    continue  # it had just taken its work when it was looked at
                if not found:
                    self._virtual.advance(timeout + RESOLUTION_S)
                return found
            super().select(LOOK_S)
