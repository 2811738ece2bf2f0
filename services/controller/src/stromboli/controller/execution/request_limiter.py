"""Limits the requests in flight, and orders the requests that wait.

*Least attained service* (Nuyens and Wierman, 2008: the foreground-background discipline), in
levels: the group with fewer requests so far goes first, and among equals the older group. So gangs
that are submitted together are completed one after another, and a job of one pod does not wait for
a job of 5,000 pods. Every fourth permit goes to the request that has waited longest, so that a job
of 5,000 pods makes progress under a load of small jobs.
"""

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import AsyncIterator

LEVEL = 256
"""Requests after which a group ranks behind new groups: enough to create and bind a gang of 100
pods."""
FAIR_TURN = 4
"""One permit in this many goes to the request that has waited longest."""
MOST_REMEMBERED = 1000
"""Maximum number of groups whose request count is kept; the least recently used is dropped
first."""


class _Group:
    """A request group: its arrival number, its requests so far, and its waiting requests."""

    __slots__ = ("is_ranked", "number", "served", "turns")

    def __init__(self, number: int) -> None:
        self.number = number
        self.served = 0
        self.is_ranked = False
        self.turns: deque[asyncio.Future[None]] = deque()


class RequestLimiter:
    """Grants permits to at most ``limit`` holders at a time. O(log groups) for each permit."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._groups_created = 0
        self._turns = 0
        self._known: dict[str, _Group] = {}
        # A waiting request is in both queues; each skips requests that the other has served.
        self._ranks: list[tuple[int, int, _Group]] = []
        self._all: deque[tuple[_Group, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def hold(self, group: str) -> AsyncIterator[None]:
        """Wait for a permit and hold it during the block."""
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
            self._groups_created += 1
            known = _Group(self._groups_created)
            if len(self._known) >= MOST_REMEMBERED:
                del self._known[next(iter(self._known))]
        self._known[name] = known
        return known

    async def _wait(self, group: _Group) -> None:
        permit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.turns.append(permit)
        self._all.append((group, permit))
        self._update_priorities(group)
        try:
            await permit
        except asyncio.CancelledError:
            if permit.done() and not permit.cancelled():
                self._pass_on()  # the permit was granted already
            raise

    def _update_priorities(self, group: _Group) -> None:
        if not group.is_ranked:
            group.is_ranked = True
            heapq.heappush(self._ranks, (group.served // LEVEL, group.number, group))

    def _pass_on(self) -> None:
        self._turns += 1
        waiter = self._longest_waiting() if self._turns % FAIR_TURN == 0 else self._least_served()
        if waiter is None:
            self._free += 1
            return
        group, permit = waiter
        group.served += 1
        permit.set_result(None)

    def _longest_waiting(self) -> tuple[_Group, asyncio.Future[None]] | None:
        while self._all:
            group, permit = self._all.popleft()
            if not permit.done():
                return group, permit
        return None

    def _least_served(self) -> tuple[_Group, asyncio.Future[None]] | None:
        while self._ranks:
            *_, group = heapq.heappop(self._ranks)
            group.is_ranked = False
            while group.turns:
                permit = group.turns.popleft()
                if group.turns:
                    self._update_priorities(group)
                if not permit.done():
                    return group, permit
        self._all.clear()
        return None
