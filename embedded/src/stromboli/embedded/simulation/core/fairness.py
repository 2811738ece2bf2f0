"""Fairness of the queues, by the deserved amounts that the scheduler itself computes.

The plugins ``proportion`` and ``capacity`` export the allocated, requested and deserved amounts of
each queue as gauges. A sample gives two numbers over the queues with requests, computed from
dominant shares (the largest part of the cluster's resources):

*Jain's index* of held share / deserved share: 1 if all queues have the same part of what they
deserve, 1/n if one of n queues has everything.
*Distance*: half the sum of |held share - deserved share|: the part of the cluster that would have
to change its queue.

Requests are those of jobs that have pods: a job that is not admitted to its queue has none yet.
Means are over the time at which jobs wait; without waiting jobs every queue has what it requests.
"""

from collections.abc import Iterable, Mapping

from stromboli.scheduler.core.placement import extension_points

_AMOUNTS = {"_milli_cpu": "cpu", "_memory_bytes": "memory", "_scalar_resources": ""}
_KINDS = ("allocated", "request", "deserved")
_IGNORED = ("pods",)
Amounts = dict[str, float]


class Fairness:
    """Means of Jain's index and the distance over time."""

    def __init__(self) -> None:
        self._since_us = 0
        self._current: tuple[float, float] | None = None
        self._weight_us = 0
        self._jain = 0.0
        self._distance = 0.0

    def sample(
        self, gauges: Iterable[extension_points.Gauge], total: Mapping[str, float], time_us: int
    ) -> None:
        """Record the gauges of a session while jobs are pending. ``total``: resources of all
        nodes."""
        self._accrue(time_us)
        self._current = _judge(gauges, total)

    def pause(self, time_us: int) -> None:
        """Record that no job is pending from now on."""
        self._accrue(time_us)
        self._current = None

    def means(self, time_us: int) -> tuple[float, float] | None:
        """Jain's index and distance; None if no job waited, or no plugin computes shares."""
        self._accrue(time_us)
        if not self._weight_us:
            return None
        return self._jain / self._weight_us, self._distance / self._weight_us

    def _accrue(self, time_us: int) -> None:
        elapsed = time_us - self._since_us
        if self._current is not None and elapsed:
            self._weight_us += elapsed
            self._jain += self._current[0] * elapsed
            self._distance += self._current[1] * elapsed
        self._since_us = time_us


def _judge(
    gauges: Iterable[extension_points.Gauge], total: Mapping[str, float]
) -> tuple[float, float] | None:
    amounts: dict[str, dict[str, Amounts]] = {kind: {} for kind in _KINDS}
    for gauge in gauges:
        for kind in _KINDS:
            suffix = gauge.name.removeprefix(f"queue_{kind}")
            if suffix != gauge.name and suffix in _AMOUNTS:
                labels = dict(gauge.labels)
                resource = _AMOUNTS[suffix] or labels["resource"]
                amounts[kind].setdefault(labels["queue_name"], {})[resource] = gauge.value
    names = [
        name for name, requested in sorted(amounts["request"].items()) if _share(requested, total)
    ]
    allocated_shares = [_share(amounts["allocated"].get(name, {}), total) for name in names]
    deserved = [_share(amounts["deserved"].get(name, {}), total) for name in names]
    ratios = [has / due for has, due in zip(allocated_shares, deserved, strict=True) if due]
    squares = sum(ratio * ratio for ratio in ratios)
    if not squares:
        return None
    distance = sum(abs(has - due) for has, due in zip(allocated_shares, deserved, strict=True)) / 2
    return sum(ratios) ** 2 / (len(ratios) * squares), distance


def _share(amounts: Amounts, total: Mapping[str, float]) -> float:
    shares = (
        amount / total[name]
        for name, amount in amounts.items()
        if total.get(name) and name not in _IGNORED
    )
    return max(shares, default=0.0)
