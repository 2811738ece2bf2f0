"""A lock per key. Keys that are neither held nor awaited take no memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

K = TypeVar("K")


class KeyedLock(Generic[K]):
    """Mutual exclusion per key, in order of arrival.

    The lock of a key is dropped when its last user has left. ``locked()`` does not tell whether it
    has users: the lock is free between one user's release and the next one's wake-up.
    """

    def __init__(self) -> None:
        self._locks: dict[K, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        """The number of keys that are held or awaited."""
        return len(self._locks)

    @contextlib.asynccontextmanager
    async def of(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of ``key`` while inside; waits for earlier callers with the same key."""
        lock, count = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, count + 1
        try:
            async with lock:
                yield
        finally:
            lock, count = self._locks.pop(key)
            if count > 1:
                self._locks[key] = lock, count - 1
