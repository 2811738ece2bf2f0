"""Limits the decided but unexecuted work by the rate at which the controller executes decisions.

Times are those of the outcomes' records, so that a replay measures the same rate. Long gaps between
outcomes count only as ``IDLE_AFTER``, because the controller had nothing to do.
"""

from collections import deque
from datetime import datetime, timedelta

WINDOW = timedelta(seconds=10)
"""Age up to which outcomes count for the measured rate."""
IDLE_AFTER = timedelta(seconds=0.25)
"""A longer gap between outcomes counts as this long: the controller was waiting for decisions."""
MIN_SAMPLES = timedelta(seconds=1)
"""Busy time below which nothing is measured."""
LOOKAHEAD_S = 2
"""Seconds of work that may be in flight."""


class InFlightLimit:
    """A window over outcomes. O(1) per outcome."""

    def __init__(self) -> None:
        self._outcomes: deque[tuple[datetime, int, timedelta]] = deque()
        self._tasks = 0
        self._busy = timedelta()
        self._last: datetime | None = None

    def record_outcome(self, at: datetime, tasks: int) -> None:
        """Note that this many binds and evictions were answered at this time."""
        gap = (
            timedelta()
            if self._last is None
            else min(max(at - self._last, timedelta()), IDLE_AFTER)
        )
        self._last = at
        self._outcomes.append((at, tasks, gap))
        self._tasks += tasks
        self._busy += gap
        while self._outcomes[0][0] < at - WINDOW:
            _, number, length = self._outcomes.popleft()
            self._tasks -= number
            self._busy -= length

    def limit(self, least: int) -> int:
        """How many tasks may be in flight: ``least``, or more if the measured rate allows it."""
        if self._busy < MIN_SAMPLES:
            return least
        return max(least, int(self._tasks / self._busy.total_seconds() * LOOKAHEAD_S))
