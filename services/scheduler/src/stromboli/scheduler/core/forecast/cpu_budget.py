"""Bounds the CPU time of a background computation: a token bucket of CPU seconds.

Over any interval of t seconds the computation uses at most ``burst_s + share x t`` CPU seconds,
and one step more, if it pauses for as long as ``spend`` returns.
"""


class CpuBudget:
    """``share``: CPU seconds earned for each second. ``burst_s``: the most that are saved, and what
    there is at the start."""

    def __init__(self, share: float, burst_s: float, now_s: float) -> None:
        self._share = share
        self._burst_s = burst_s
        self._saved_s = burst_s
        self._last_s = now_s

    def spend(self, cpu_s: float, now_s: float) -> float:
        """Subtract CPU time used until now. Return the seconds to pause until nothing is owed."""
        earned_s = self._share * max(0.0, now_s - self._last_s)
        self._last_s = now_s
        self._saved_s = min(self._burst_s, self._saved_s + earned_s) - cpu_s
        return max(0.0, -self._saved_s / self._share)
