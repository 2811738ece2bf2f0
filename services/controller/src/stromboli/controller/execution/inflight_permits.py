"""How decisions wait: for trouble outside to pass, for a time, for others; never past the end
of the process or of the connection that they came by."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self, TypeVar

from stromboli.shared import errors
from stromboli.shared.runtime import runtime

T = TypeVar("T")


class StoppingError(Exception):
    """The process ends, or the log of decisions was away: the decision comes again."""


class InFlightPermit:
    """One decision's place among those in hand, given up while all it does is wait for a time."""

    def __init__(self, in_hand: asyncio.Semaphore) -> None:
        """Made by ``begun``."""
        self._in_hand = in_hand
        self._waiting = 0
        self._has_place = True
        self._coming_back = asyncio.Lock()

    @classmethod
    async def begun(cls, in_hand: asyncio.Semaphore) -> Self:
        """A turn, once there is a place for it."""
        await in_hand.acquire()
        return cls(in_hand)

    @contextlib.asynccontextmanager
    async def given_up(self) -> AsyncIterator[None]:
        """Others may have its place while inside. Who is cancelled on the way out has none."""
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
                if self._waiting:  # another part of the decision has begun to
                    self.end()

    def end(self) -> None:
        """Give the place back, if there is one."""
        if self._has_place:
            self._has_place = False
            self._in_hand.release()


class Retrier:
    """Waits until it is told to give up."""

    def __init__(self) -> None:
        self._given_up = asyncio.Event()

    def give_up(self) -> None:
        """Nobody waits any longer."""
        self._given_up.set()

    def begin_anew(self) -> None:
        """Those who come now wait again."""
        self._given_up.clear()

    async def until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, waiting out trouble outside. Raises PermanentError, or
        StoppingError if the trouble lasts when it is time to give up."""
        backoff = runtime.Backoff()
        while True:
            try:
                return await call()
            except errors.TransientError as error:
                await self.pause(backoff.next_s(error.retry_after_s))

    async def pause(self, seconds: float) -> None:
        """Return after so long. Raises StoppingError once it is time to give up."""
        try:
            async with asyncio.timeout(seconds):
                await self._given_up.wait()
        except TimeoutError:
            return
        raise StoppingError
