"""Time series of unknown length in bounded memory.

A series has at most ``2 * BUCKETS`` buckets of equal width. When time exceeds them, neighbouring
buckets are merged and the width doubles. A bucket holds the integral of the value, so means are
exact whatever the width. Adding a span costs O(buckets that it covers), and a merge is amortized.
"""

from array import array

BUCKETS = 240
"""Resolution of reports: about one bucket for two or three pixels of a chart."""
_FIRST_WIDTH_US = 1_000_000


class Clockwork:
    """The width of the buckets of all series of a simulation, in virtual microseconds."""

    def __init__(self) -> None:
        self.width_us = _FIRST_WIDTH_US

    def reach(self, time_us: int) -> None:
        """Widen the buckets until they cover this time."""
        while time_us > self.width_us * 2 * BUCKETS:
            self.width_us *= 2


class Series:
    """A value over time. It is 0 before the first change."""

    __slots__ = ("_clockwork", "_integrals", "_since_us", "_width_us", "value")

    def __init__(self, clockwork: Clockwork, time_us: int = 0) -> None:
        self._clockwork = clockwork
        self._width_us = clockwork.width_us
        self._integrals = array("d")
        self._since_us = time_us
        self.value = 0.0

    def change(self, value: float, time_us: int) -> None:
        """Set the value from this time on."""
        if time_us > self._since_us:
            self._add(self._since_us, time_us)
            self._since_us = time_us
        self.value = value

    def means(self, end_us: int) -> list[float]:
        """The mean of each bucket until ``end_us``; the last bucket may be shorter."""
        self.change(self.value, end_us)
        self._merge()
        width = self._width_us
        count = -(-end_us // width)
        averages = [0.0] * count
        for at, integral in enumerate(self._integrals[:count]):
            averages[at] = integral / (min(end_us, (at + 1) * width) - at * width)
        return averages

    def _add(self, start_us: int, end_us: int) -> None:
        self._clockwork.reach(end_us)
        if self._width_us != self._clockwork.width_us:
            self._merge()
        if not self.value:
            return
        width, values = self._width_us, self._integrals
        first, last = start_us // width, (end_us - 1) // width
        if last >= len(values):
            values.extend([0.0] * (last + 1 - len(values)))
        for at in range(first, last + 1):
            values[at] += self.value * (min(end_us, (at + 1) * width) - max(start_us, at * width))

    def _merge(self) -> None:
        while self._width_us < self._clockwork.width_us:
            old = self._integrals
            if len(old) % 2:
                old.append(0.0)
            self._integrals = array("d", (old[at] + old[at + 1] for at in range(0, len(old), 2)))
            self._width_us *= 2
