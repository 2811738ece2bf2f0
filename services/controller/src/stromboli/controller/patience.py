"""How decisions wait: for trouble outside to pass, for a time, for others; never past the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from stromboli.shared import errors, runtime

T = TypeVar("T")


class StoppingError(Exception):
    """The process ends and the outside does not answer: the decision comes again."""


class Turn:
    """One decision's place among those in hand, given up while all it does is wait for a time."""

    def __init__(self, in_hand: asyncio.Semaphore) -> None:
        self._in_hand = in_hand
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def given_up(self) -> AsyncIterator[None]:
        """Others may have its place while inside."""
        self._waiting += 1
        if self._waiting == 1:
            self._in_hand.release()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                await self._in_hand.acquire()


class Patience:
    """Waits until ``stopping`` is set."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping

    async def until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, waiting out trouble outside. Raises PermanentError, or
        StoppingError if the trouble lasts while the process ends."""
        backoff = runtime.Backoff()
        while True:
            try:
                return await call()
            except errors.TransientError as error:
                await self.pause(backoff.next_s(error.retry_after_s))

    async def pause(self, seconds: float) -> None:
        """Return after so long. Raises StoppingError once the process ends."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise StoppingError
