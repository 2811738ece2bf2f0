"""How fast the controller carries decisions out, as its answers say.

Times are those of the answers' records, so that the measure is data like all else. Between answers
that lie far apart there was nothing to do: such gaps do not count.
"""

from collections import deque
from datetime import datetime, timedelta

WINDOW = timedelta(seconds=10)
"""How far back answers tell of now."""
IDLE_AFTER = timedelta(seconds=0.25)
"""A longer gap between answers counts as so long: the controller was waiting for us."""
ENOUGH = timedelta(seconds=1)
"""Busy time below which nothing is measured."""
AHEAD_S = 2
"""How many seconds of work may be in flight."""


class Pace:
    """A window over answers. O(1) an answer."""

    def __init__(self) -> None:
        self._answers: deque[tuple[datetime, int, timedelta]] = deque()
        self._tasks = 0
        self._busy = timedelta()
        self._last: datetime | None = None

    def answered(self, at: datetime, tasks: int) -> None:
        """So many binds and evictions were answered at this time."""
        gap = (
            timedelta()
            if self._last is None
            else min(max(at - self._last, timedelta()), IDLE_AFTER)
        )
        self._last = at
        self._answers.append((at, tasks, gap))
        self._tasks += tasks
        self._busy += gap
        while self._answers[0][0] < at - WINDOW:
            _, number, length = self._answers.popleft()
            self._tasks -= number
            self._busy -= length

    def most_unanswered(self, least: int) -> int:
        """How many tasks may be in flight: ``least``, or more if that is what is measured."""
        if self._busy < ENOUGH:
            return least
        return max(least, int(self._tasks / self._busy.total_seconds() * AHEAD_S))
