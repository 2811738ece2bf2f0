"""A lock per key. Keys that are neither held nor awaited take no memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

K = TypeVar("K")


class KeyedLock(Generic[K]):
    """Who comes with the same key waits, first come first served.

    A lane is let go of when the last who came for it has left. Whether its lock is held says
    nothing: between one who leaves and the next who wakes up it is not.
    """

    def __init__(self) -> None:
        self._lanes: dict[K, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        """How many keys are held or waited for."""
        return len(self._lanes)

    @contextlib.asynccontextmanager
    async def of(self, key: K) -> AsyncIterator[None]:
        """The key is ours alone while inside."""
        lock, count = self._lanes.get(key) or (asyncio.Lock(), 0)
        self._lanes[key] = lock, count + 1
        try:
            async with lock:
                yield
        finally:
            lock, count = self._lanes.pop(key)
            if count > 1:
                self._lanes[key] = lock, count - 1
