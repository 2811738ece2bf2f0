"""Waits of decisions in flight: for a permit, for a time, and between retries.

No wait outlasts the process or the connection that delivered the decision.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self, TypeVar

from stromboli.controller.isolation import StoppingError
from stromboli.shared import errors
from stromboli.shared.runtime import runtime

T = TypeVar("T")


class InFlightPermit:
    """The permit of a decision to be in flight. It is released while the decision only waits."""

    def __init__(self, in_hand: asyncio.Semaphore) -> None:
        """Do not call; use ``begun``, which acquires the permit."""
        self._in_hand = in_hand
        self._waiting = 0
        self._has_place = True
        self._coming_back = asyncio.Lock()

    @classmethod
    async def begun(cls, in_hand: asyncio.Semaphore) -> Self:
        """Acquire a permit."""
        await in_hand.acquire()
        return cls(in_hand)

    @contextlib.asynccontextmanager
    async def given_up(self) -> AsyncIterator[None]:
        """Release the permit during the block and acquire it again at its end. If the acquisition
        is cancelled, the permit is not held."""
        self._waiting += 1
        if self._waiting == 1:
            self.end()
        try:
            yield
        finally:
            self._waiting -= 1
            async with self._coming_back:
                if not (self._waiting or self._has_place):
                    await self._in_hand.acquire()
                    self._has_place = True
                if self._waiting:  # another part of the decision released it
                    self.end()

    def end(self) -> None:
        """Release the permit, if it is held."""
        if self._has_place:
            self._has_place = False
            self._in_hand.release()


class Retrier:
    """Retries and sleeps that can be ended by ``give_up``."""

    def __init__(self) -> None:
        self._given_up = asyncio.Event()

    def give_up(self) -> None:
        """End all current waits with StoppingError."""
        self._given_up.set()

    def restart(self) -> None:
        """Allow waits again."""
        self._given_up.clear()

    async def until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await the call, with retries after transient errors. Raises PermanentError, or
        StoppingError if ``give_up`` is called before a call succeeds."""
        backoff = runtime.Backoff()
        while True:
            try:
                return await call()
            except errors.TransientError as error:
                await self.pause(backoff.next_s(error.retry_after_s))

    async def pause(self, seconds: float) -> None:
        """Sleep. Raises StoppingError on ``give_up``."""
        try:
            async with asyncio.timeout(seconds):
                await self._given_up.wait()
        except TimeoutError:
            return
        raise StoppingError
