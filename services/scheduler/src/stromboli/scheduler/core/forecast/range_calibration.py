"""Widens the ranges of expected starts so that about 80 % of the starts are in them.

A simulation knows neither the jobs that are submitted later nor errors that all run times share, so
its range from p10 to p90 is too narrow. How much too narrow is learned online, from the jobs that
have started: the range is multiplied by a factor on each side, and

- a start after the widened range increases the upper factor, any other decreases it a little;
- a start before the widened range increases the lower factor, any other decreases it a little.

In logarithms the step is ``STEP`` x (miss - 0.1), so a factor is at rest when a tenth of the starts
is on its side (the quantile tracker of conformal prediction: Angelopoulos, Candès and Tibshirani,
"Conformal PID Control for Time Series Prediction", NeurIPS 2023). The median is not changed, and
neither is a range whose simulations all agree: its run times are known.

A start is compared with the first forecast of its job, and only if the job waited for more than
``LEAST_WAIT_S`` since then. Cost: O(1) for each forecast and start. Memory: O(``MOST_OPEN``).
"""

import math
from collections import OrderedDict
from datetime import datetime

import msgspec

from stromboli.scheduler.core.forecast import expected_starts

LEAST_WAIT_S = 60.0
STEP = 0.4
OUTSIDE = 0.1
"""The fraction of the starts that should be on each side of the range."""
FIRST_FACTOR = 1.3
"""The factors before the first start; ``bench.calibration`` measures the result."""
MOST_FACTOR = 10.0
MOST_OPEN = 20_000
"""Maximum number of forecasts whose jobs have not started. Beyond it the oldest forecast is
dropped, and nothing is learned from its start."""


class Widening(msgspec.Struct, frozen=True):
    """Factors of at least 1: p10 is divided by ``below``, p90 multiplied by ``above``."""

    below: float = FIRST_FACTOR
    above: float = FIRST_FACTOR

    def applied(
        self, start: expected_starts.ExpectedStart, horizon_s: float
    ) -> expected_starts.ExpectedStart:
        """The expected start with its range widened; a time later than ``horizon_s`` becomes
        None."""
        low, high = start.p10_s, start.p90_s
        if low is None or low == high:
            return start
        high = None if high is None else high * self.above
        return msgspec.structs.replace(
            start,
            p10_s=low / self.below,
            p90_s=None if high is None or high > horizon_s else high,
        )

    def learned(self, wait_s: float, low_s: float, high_s: float | None) -> "Widening":
        """The factors after a job with the simulated range ``low_s`` to ``high_s`` waited for
        ``wait_s``."""
        is_early = wait_s < low_s / self.below
        is_late = high_s is not None and wait_s > high_s * self.above
        return Widening(_moved(self.below, is_miss=is_early), _moved(self.above, is_miss=is_late))


def _moved(factor: float, *, is_miss: bool) -> float:
    moved = math.exp(math.log(factor) + STEP * (is_miss - OUTSIDE))
    return min(max(moved, 1.0), MOST_FACTOR)


class RangeCalibrator:
    """Compares first forecasts with starts, one by one. A start may be reported twice."""

    def __init__(self, widening: Widening | None = None) -> None:
        self.widening = widening or Widening()
        self._open: OrderedDict[str, tuple[datetime, float, float | None]] = OrderedDict()

    def forecast(self, at: datetime, start: expected_starts.ExpectedStart) -> None:
        """Keep a simulated range, not widened, if it is the first one of its PodGroup."""
        if start.p10_s is None or start.p10_s == start.p90_s:
            return
        self._open.setdefault(start.pod_group, (at, start.p10_s, start.p90_s))
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)

    def started(self, pod_group: str, at: datetime) -> None:
        """Learn from the start of a PodGroup that has a forecast and has waited for more than
        ``LEAST_WAIT_S`` since then."""
        estimate = self._open.pop(pod_group, None)
        if estimate is None:
            return
        since, low_s, high_s = estimate
        wait_s = (at - since).total_seconds()
        if wait_s > LEAST_WAIT_S:
            self.widening = self.widening.learned(wait_s, low_s, high_s)

    def deleted(self, pod_group: str) -> None:
        """Drop the forecast of a deleted PodGroup, which will not start."""
        self._open.pop(pod_group, None)
