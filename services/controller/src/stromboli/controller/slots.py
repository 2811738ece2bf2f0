"""A limit on requests in flight that serves groups in turn.

A job of 5,000 pods waits with one request at a time in the round, so a job of one pod that comes
later waits for one round, not for 5,000 requests.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class Slots:
    """At most ``limit`` holders at once. O(1) a turn."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def hold(self, group: str) -> AsyncIterator[None]:
        """A slot while inside."""
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait(group)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, group: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it was ours already
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            group = next(iter(self._waiting))
            turns = self._waiting.pop(group)
            turn = turns.popleft()
            if turns:
                self._waiting[group] = turns  # to the end of the round
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
