"""Estimates the API server's clock from the objects it creates, so that sessions use its time.

Rules compare the times of objects (``creationTimestamp`` and others, set by the API server) with a
session's time. The scheduler's host may be minutes or hours off, and with its clock a job's
``sla-waiting-time`` would end at once or never. So a session's time is the API server's, as
estimated here; everything that sessions remember is in that time, and stays right when a scheduler
on another host takes over.

A sample is the creation time of an object less the host's time at which its record arrived: the
offset of the clocks, less the delay of the record and the part of a second that creation times do
not have. Only the newest object ever seen is a sample, and only if its record arrived while the
reader was at the end of its topics and every kind was synced (others are old, not late), or if it
was created in the future. Delays are never negative, so the largest of the last samples is the best
estimate, as in NTP's clock filter (Mills, RFC 5905, 10). The offset that is used changes only when
the estimate is off by more than ``TOLERANCE``: without skew it stays zero.

A scheduler that starts uses its host's clock until the first object is created. What kubelets
stamp (when a pod started) is taken as it is: nodes are expected to agree with the API server.
"""

from collections import deque
from datetime import datetime, timedelta

SAMPLES = 16
"""After a step of either clock, so many new objects correct the estimate."""
LARGEST_OFFSET = timedelta(days=1)
"""With clocks further apart certificates do not hold: a creation time beyond is no time of now."""
TOLERANCE = timedelta(seconds=2)
"""Creation times are whole seconds, and a record takes some time to arrive."""


class ClusterClock:
    """``offset``: the API server's clock less the host's. O(``SAMPLES``) a sample."""

    def __init__(self) -> None:
        self.offset = timedelta()
        self._samples: deque[timedelta] = deque(maxlen=SAMPLES)

    def observe(self, created: datetime, now: datetime) -> None:
        """An object that was just created, and the host's time at which its record arrived.
        One that is off by more than ``LARGEST_OFFSET`` says nothing."""
        if abs(created - now) > LARGEST_OFFSET:
            return
        self._samples.append(created - now)
        estimate = max(self._samples)
        if abs(estimate - self.offset) > TOLERANCE:
            self.offset = estimate

    def of(self, now: datetime) -> datetime:
        """The API server's time at a time of the host."""
        return now + self.offset
