"""Estimates the API server's clock from the objects it creates, so that rules use its time.

Rules compare the times of objects (``creationTimestamp`` and others, set by the API server) with
the present. A service's host may be minutes or hours off, and with its clock a job's
``sla-waiting-time`` would end immediately or never, and so would the ``timeout`` of a policy for
pending pods. The times that a scheduler remembers use the API server's clock, and remain valid when
a scheduler on another host takes over.

A sample is the creation time of an object minus the host's time at which its record, or the
response to its creation, arrived: the offset of the clocks, minus the delay and the fraction of a
second that creation times do not have. A record is a sample only if its object is the newest so
far, and if it arrived while the reader was at the end of its topics and every kind was synced
(records before that may be hours old), or if it was created in the future. Delays are never
negative, so the largest of the last samples is the best estimate, as in NTP's clock filter (Mills,
RFC 5905, 10). The offset in use changes only when the estimate is off by more than ``TOLERANCE``:
without skew it stays zero.

A service that sends requests to the API server has another sample in each response: its ``Date``,
in whole seconds, too. A service that only reads the log uses its host's clock until the first
object is created. Timestamps of kubelets (when a pod started) are used unchanged: nodes are
expected to agree with the API server.
"""

from collections import deque
from datetime import datetime, timedelta

SAMPLES = 16
"""Number of samples kept. If either clock is stepped, as many new objects correct the estimate."""
LARGEST_OFFSET = timedelta(days=1)
"""With a larger skew TLS would fail, so a creation time that is further off is not a recent one."""
TOLERANCE = timedelta(seconds=2)
"""Creation times are whole seconds, and a record takes some time to arrive."""


class ClusterClock:
    """``offset``: the API server's clock minus the host's. O(``SAMPLES``) per sample."""

    def __init__(self) -> None:
        self.offset = timedelta()
        self._samples: deque[timedelta] = deque(maxlen=SAMPLES)

    def observe(self, created: datetime, now: datetime) -> None:
        """Add a sample: a new object's creation time, or the date of a response, and the host's
        time at which it arrived. A sample that is off by more than ``LARGEST_OFFSET`` is ignored.
        """
        if abs(created - now) > LARGEST_OFFSET:
            return
        self._samples.append(created - now)
        estimate = max(self._samples)
        if abs(estimate - self.offset) > TOLERANCE:
            self.offset = estimate

    def of(self, now: datetime) -> datetime:
        """Convert a time of the host's clock to the API server's clock."""
        return now + self.offset

    def host_time(self, at: datetime) -> datetime:
        """Convert a time of the API server's clock to the host's clock."""
        return at - self.offset
