"""Assigns calls to workers: sizes of chunks, lost workers, repeated calls. Pure.

Workers are reused, and a chunk costs two files, so short calls travel in large chunks: a chunk is
sized to take ``TARGET_S`` seconds, estimated from the duration of earlier calls. Each worker holds
at most ``PREFETCH`` chunks: it need not wait for the next chunk, and a slow worker holds few calls.

The calls of a lost worker are sent again, each in a separate chunk, so that a call that ends its
process is identified: it fails after ``max_losses`` losses, and the others run. A call may
therefore be executed more than once.
"""

from collections import deque
from collections.abc import Callable

import msgspec

TARGET_S = 0.25
PREFETCH = 2
MAX_CALLS = 1000
"""Maximum calls in a chunk."""
_WEIGHT = 0.3
"""Weight of the last chunk in the moving average of a call's duration, between 0 and 1."""


class Assignment(msgspec.Struct, frozen=True):
    """A chunk of calls, by their ids, for one worker."""

    worker: str
    chunk: int
    calls: tuple[int, ...]


class Dispatcher:
    """The calls that are not done, and the workers that are alive. Cost: O(1) for each call."""

    def __init__(self, max_losses: int = 2) -> None:
        self._max_losses = max_losses
        self._queue: deque[int] = deque()
        self._repeated: deque[int] = deque()
        """Calls of lost workers and retries; they are sent before the others, each in a separate
        chunk."""
        self._losses: dict[int, int] = {}
        self._sent: dict[str, dict[int, tuple[int, ...]]] = {}
        """Worker -> its chunks -> their calls."""
        self._open: set[int] = set()
        self._next_chunk = 0
        self._call_s: float | None = None

    @property
    def open_calls(self) -> frozenset[int]:
        """Calls that have no result yet."""
        return frozenset(self._open)

    @property
    def is_idle(self) -> bool:
        """Whether every call is done."""
        return not self._open

    @property
    def workers(self) -> frozenset[str]:
        """Workers that are alive."""
        return frozenset(self._sent)

    def add(self, call: int) -> None:
        """Queue a call for the next worker with room. ``call``: a new id."""
        self._open.add(call)
        self._queue.append(call)

    def worker_joined(self, worker: str) -> None:
        """Add a worker that is alive. Idempotent."""
        self._sent.setdefault(worker, {})

    def worker_lost(self, worker: str) -> list[int]:
        """Send the calls of the lost worker again. Returns the calls that fail because they were
        lost too often."""
        given_up = []
        for calls in self._sent.pop(worker, {}).values():
            for call in calls:
                if call not in self._open:
                    continue
                self._losses[call] = self._losses.get(call, 0) + 1
                if self._losses[call] > self._max_losses:
                    given_up.append(call)
                    self._close(call)
                else:
                    self._repeated.append(call)
        return given_up

    def assign(self, is_wanted: Callable[[int], bool]) -> list[Assignment]:
        """Chunks for all workers that have room. ``is_wanted``: False for a call that was cancelled
        before it was sent; it is called once for each call that is sent for the first time."""
        assigned = []
        for _ in range(PREFETCH):
            for worker, chunks in self._sent.items():
                if len(chunks) < PREFETCH and (calls := self._take(is_wanted)):
                    chunks[self._next_chunk] = calls
                    assigned.append(Assignment(worker, self._next_chunk, calls))
                    self._next_chunk += 1
        return assigned

    def _take(self, is_wanted: Callable[[int], bool]) -> tuple[int, ...]:
        while self._repeated:
            call = self._repeated.popleft()
            if call in self._open:  # a late result may have come meanwhile
                return (call,)
        size = self._chunk_size()
        calls: list[int] = []
        while self._queue and len(calls) < size:
            call = self._queue.popleft()
            if is_wanted(call):
                calls.append(call)
            else:
                self._close(call)
        return tuple(calls)

    def _chunk_size(self) -> int:
        if self._call_s is None:
            return 1
        fair = -(-len(self._queue) // (len(self._sent) * PREFETCH))
        by_time = int(TARGET_S / max(self._call_s, 1e-9))
        return max(1, min(MAX_CALLS, fair, by_time))

    def chunk_done(self, chunk: int, calls: tuple[int, ...], seconds: float) -> tuple[int, ...]:
        """Mark ``calls`` as done. Returns those whose result is new: a call that was sent twice has
        two results."""
        for chunks in self._sent.values():
            chunks.pop(chunk, None)
        if calls:
            last = seconds / len(calls)
            before = last if self._call_s is None else self._call_s
            self._call_s = before + _WEIGHT * (last - before)
        new = tuple(call for call in calls if call in self._open)
        for call in new:
            self._close(call)
        return new

    def repeat(self, call: int) -> None:
        """Queue a call again whose result was an exception, ahead of the other calls."""
        self._open.add(call)
        self._repeated.append(call)

    def _close(self, call: int) -> None:
        self._open.discard(call)
        self._losses.pop(call, None)
