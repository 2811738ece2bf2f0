"""A limit on requests in flight: what is nearly done goes first, and nobody waits for a large job.

*Least attained service* (Nuyens and Wierman, 2008: the foreground-background discipline), in
levels: whoever has had fewer requests goes first, and of equals whoever came first. So gangs that
are handed in together become whole one after another, not all at the end, and a job of one pod
does not wait for one of 5,000. Every fourth turn goes to whoever came first of all: a job of 5,000
pods goes on while small ones keep coming.
"""

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import AsyncIterator

LEVEL = 256
"""Requests until a group stands behind those that had none: a gang of 100 pods, made and bound."""
FAIR_TURN = 4
MOST_REMEMBERED = 1000
"""Groups whose requests are remembered between two of them."""


class _Group:
    """When it came first, how many requests it has had, and those that wait."""

    __slots__ = ("came", "served", "turns")

    def __init__(self, came: int) -> None:
        self.came = came
        self.served = 0
        self.turns: deque[asyncio.Future[None]] = deque()


class _Line:
    """Groups in an order of which each stands in it once."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Group]] = []
        self._within: set[int] = set()

    def put(self, rank: int, group: _Group) -> None:
        if group.came not in self._within:
            self._within.add(group.came)
            heapq.heappush(self._heap, (rank, group.came, group))

    def pop(self) -> _Group | None:
        """The first that waits."""
        while self._heap:
            _, came, group = heapq.heappop(self._heap)
            self._within.discard(came)
            if group.turns:
                return group
        return None


class Slots:
    """At most ``limit`` holders at once. O(log groups) a turn."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._came = 0
        self._turn = 0
        self._known: dict[str, _Group] = {}
        self._by_level, self._by_age = _Line(), _Line()

    @contextlib.asynccontextmanager
    async def hold(self, group: str) -> AsyncIterator[None]:
        """A slot while inside."""
        known = self._group(group)
        if self._free > 0:
            self._free -= 1
            known.served += 1
        else:
            await self._wait(known)
        try:
            yield
        finally:
            self._pass_on()

    def _group(self, name: str) -> _Group:
        known = self._known.pop(name, None)
        if known is None:
            self._came += 1
            known = _Group(self._came)
            if len(self._known) >= MOST_REMEMBERED:
                del self._known[next(iter(self._known))]
        self._known[name] = known
        return known

    async def _wait(self, group: _Group) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.turns.append(turn)
        self._line_up(group)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it was ours already
            raise

    def _line_up(self, group: _Group) -> None:
        self._by_level.put(group.served // LEVEL, group)
        self._by_age.put(0, group)

    def _pass_on(self) -> None:
        self._turn += 1
        line = self._by_level if self._turn % FAIR_TURN else self._by_age
        while (group := line.pop()) is not None:
            turn = group.turns.popleft()
            is_taken = not turn.done()
            group.served += is_taken
            if group.turns:
                self._line_up(group)
            if is_taken:
                turn.set_result(None)
                return
        self._free += 1
