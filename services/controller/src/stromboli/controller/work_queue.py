"""A work queue: runs one reconcile at a time for each key, and reconciles of different keys
concurrently, in the order in which the keys were added."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared import errors
from stromboli.shared.runtime import runtime

Reconcile = Callable[[ReconcileKey, str], Awaitable[None]]
"""Reconciles a key, given the id of its latest record. If it raises ExternalError, the key is
retried."""
Isolate = Callable[[ReconcileKey, Exception], Awaitable[None]]
"""Reports a key whose reconcile failed with an internal error."""

REFUSED_FIRST_S = 0.5
REFUSED_PAUSE_S = 60.0
"""Longest back-off after a rejection, in seconds. A quota is usually raised within minutes, and a
hundred jobs that wait for it must not flood the API server."""
FAILED_FIRST_S = 1.0
FAILED_PAUSE_S = 300.0
"""Longest back-off after a reconcile that failed with an internal error, in seconds; it doubles
from the first value."""
FAILED_SPACE_S = 5.0
"""Minimum time between retries of a failed key, however often it changes."""
LONGEST_SPACE_S = 1.0
"""How long the start time of a key's last reconcile is remembered, in seconds."""


class WorkQueue:
    """Keys that may need a reconcile. A key that is added during its reconcile is reconciled again
    afterwards.

    A reconcile that fails with a transient error is retried with back-off up to
    ``runtime.LONGEST_PAUSE_S``, or up to ``REFUSED_PAUSE_S`` after a rejection. Any other exception
    is a bug that one object triggers: it is passed to ``isolate``, the key is retried with back-off
    up to ``FAILED_PAUSE_S``, and all other keys proceed. Only an InvariantError ends ``run``.
    """

    def __init__(self, reconcile: Reconcile, isolate: Isolate, limit: int) -> None:
        self._reconcile = reconcile
        self._isolate = isolate
        self._limit = limit
        self._dirty: dict[ReconcileKey, str] = {}
        self._again: dict[ReconcileKey, str] = {}
        self._busy: set[ReconcileKey] = set()
        self._backoffs: dict[ReconcileKey, runtime.Backoff] = {}
        self._refused: dict[ReconcileKey, float] = {}
        self._failed: dict[ReconcileKey, tuple[float, float]] = {}
        """Keys whose last reconcile failed with an internal error -> the next back-off and the
        earliest time of the retry."""
        self._timers: dict[ReconcileKey, tuple[float, asyncio.Handle]] = {}
        """Pending timers, each with its time on the event loop's clock, which uvloop's handles do
        not expose."""
        self._later: dict[ReconcileKey, str] = {}
        self._begun: dict[ReconcileKey, float] = {}
        self._moved = asyncio.Event()
        self._stopping = False
        self.is_open = False
        """Whether new reconciles may begin."""

    def add_key(self, item: ReconcileKey, cause: str = "") -> None:
        """Add a key."""
        _, not_before = self._failed.get(item, (0.0, 0.0))
        wait_s = not_before - asyncio.get_running_loop().time()
        if wait_s > 0:
            self.add_key_after(item, wait_s, cause)
            return
        waiting = self._again if item in self._busy else self._dirty
        waiting[item] = cause or waiting.get(item, "")
        self._moved.set()

    def add_key_after(self, item: ReconcileKey, delay_s: float, cause: str = "") -> None:
        """Add a key after a delay, or at the earlier time of a pending delay."""
        if cause:
            self._later[item] = cause
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_s
        if item in self._timers:
            earlier, timer = self._timers[item]
            if earlier <= at:
                return
            timer.cancel()
        self._timers[item] = at, loop.call_later(delay_s, self._ring, item)

    def add_key_spaced(self, item: ReconcileKey, cause: str, space_s: float) -> None:
        """Add a key with a minimum time between its reconciles: a single change is handled
        immediately, and changes in quick succession are handled together."""
        wait_s = self._begun.get(item, -math.inf) + space_s - asyncio.get_running_loop().time()
        if wait_s > 0 and item not in self._dirty:
            self.add_key_after(item, wait_s, cause)
        else:
            self.add_key(item, cause)

    def open(self, *, is_open: bool) -> None:
        """Allow or pause new reconciles."""
        self.is_open = is_open
        self._moved.set()

    def stop(self) -> None:
        """Begin no more reconciles; ``run`` returns when the running ones are finished."""
        self._stopping = True
        self._moved.set()

    async def run(self) -> None:
        """Run reconciles until stopped."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while not self._stopping:
                    self._begin(tasks)
                    await self._moved.wait()
                    self._moved.clear()
        finally:
            for _, timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        while self.is_open and self._dirty and len(self._busy) < self._limit:
            item = next(iter(self._dirty))
            self._busy.add(item)
            self._note_begin(item)
            tasks.create_task(self._process(item, self._dirty.pop(item)))

    def _note_begin(self, item: ReconcileKey) -> None:
        now = asyncio.get_running_loop().time()
        self._begun.pop(item, None)
        self._begun[item] = now
        while (first := next(iter(self._begun))) != item and (
            self._begun[first] < now - LONGEST_SPACE_S
        ):
            del self._begun[first]

    async def _process(self, item: ReconcileKey, cause: str) -> None:
        try:
            await self._reconcile(item, cause)
        except errors.TransientError as error:
            backoff = self._backoffs.setdefault(item, runtime.Backoff())
            self.add_key_after(item, backoff.next_s(error.retry_after_s))
        except errors.PermanentError:
            pause = self._refused.get(item, REFUSED_FIRST_S)
            self._refused[item] = min(2 * pause, REFUSED_PAUSE_S)
            self.add_key_after(item, pause)
        except errors.InvariantError:
            raise
        except Exception as error:  # one object must not stop all others
            self._back_off(item)
            await self._isolate(item, error)
        else:
            self._backoffs.pop(item, None)
            self._refused.pop(item, None)
            self._failed.pop(item, None)
        finally:
            self._busy.discard(item)
            if item in self._again:
                self.add_key(item, self._again.pop(item))
            self._moved.set()

    def _back_off(self, item: ReconcileKey) -> None:
        now = asyncio.get_running_loop().time()
        pause, _ = self._failed.get(item, (FAILED_FIRST_S, 0.0))
        self._failed[item] = min(2 * pause, FAILED_PAUSE_S), now + min(pause, FAILED_SPACE_S)
        self.add_key_after(item, pause)

    def _ring(self, item: ReconcileKey) -> None:
        self._timers.pop(item, None)
        self.add_key(item, self._later.pop(item, ""))
