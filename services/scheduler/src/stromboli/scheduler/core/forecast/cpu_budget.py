"""Bounds the CPU time of a background computation: a token bucket of CPU seconds.

Over any interval of t seconds the computation uses at most ``burst_s + share x t`` CPU seconds,
plus the CPU seconds of one step, if it pauses for as long as ``spend`` returns.
"""


class CpuBudget:
    """``share``: CPU seconds added per second. ``burst_s``: the bucket's capacity and initial
    content."""

    def __init__(self, share: float, burst_s: float, now_s: float) -> None:
        self._share = share
        self._burst_s = burst_s
        self._saved_s = burst_s
        self._last_s = now_s

    def spend(self, cpu_s: float, now_s: float) -> float:
        """Subtract used CPU time. Return the seconds to pause until the balance is not negative."""
        earned_s = self._share * max(0.0, now_s - self._last_s)
        self._last_s = now_s
        self._saved_s = min(self._burst_s, self._saved_s + earned_s) - cpu_s
        return max(0.0, -self._saved_s / self._share)
