"""What queues used, against the shares that they deserve. Pure.

A deserved share is an amount of resources, so in an interval a queue deserves that amount times the
length of the interval. The history has usage by the queue of the job; here the usage of a queue
includes that of its children, as its share does. Shares are the current ones, not those of the
interval.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from stromboli.console.core import amounts, queue_trees
from stromboli.console.core.amounts import Gauge
from stromboli.console.core.usage_rows import UsageFilters
from stromboli.shared.api import scheduling
from stromboli.shared.api.views import accounting

HOUR = timedelta(hours=1)


class QueueUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in its tree with its usage. ``gauges``: GPU hours and CPU hours."""

    name: str
    depth: int
    gauges: tuple[Gauge, ...]


def is_comparable(filters: UsageFilters) -> bool:
    """Whether the report of these filters has the whole usage of each queue, by queue only."""
    by_queue = filters.query().by == ("queue",)
    return by_queue and not (filters.scope or filters.user or filters.queue)


def rows(
    queues: Iterable[scheduling.Queue],
    report: accounting.UsageReport,
    now: datetime,
) -> list[QueueUsage]:
    """The queues with a deserved amount of GPUs or CPU, as a tree in preorder. Of an
    interval that has not ended, only the elapsed part counts. O(queues x depth)."""
    known = queue_trees.by_name(queues)
    hours = max(0.0, (min(report.until, now) - report.since) / HOUR)
    used: dict[str, tuple[float, float]] = {}
    for each in report.usage:
        for name in queue_trees.ancestors(known, each.group["queue"]):
            gpu, cpu = used.get(name, (0.0, 0.0))
            used[name] = gpu + each.gpu_seconds, cpu + each.cpu_seconds
    found = []
    for name, depth in queue_trees.preorder(known):
        gauges = _gauges(known[name], used.get(name, (0.0, 0.0)), hours)
        if gauges:
            found.append(QueueUsage(name=name, depth=depth, gauges=gauges))
    return found


def _gauges(queue: scheduling.Queue, used_s: Sequence[float], hours: float) -> tuple[Gauge, ...]:
    deserved = amounts.read(queue.spec.deserved)
    has_gpus = any(amounts.is_gpu(it) for it in deserved)
    wanted = (
        ("GPU hours", used_s[0], amounts.gpus(deserved) if has_gpus else None),
        ("CPU hours", used_s[1], deserved.get("cpu")),
    )
    return tuple(
        _gauge(name, seconds / 3600, milli / 1000 * hours)
        for name, seconds, milli in wanted
        if milli is not None
    )


def _gauge(name: str, used: float, deserved: float) -> Gauge:
    """Hours against deserved hours; the bar ends at the larger one."""
    whole = max(used, deserved)
    share = f" ({100 * used / deserved:.0f} %)" if deserved else ""
    return Gauge(
        resource=name,
        used=f"{used:.2f}{share}",
        percent=round(100 * used / whole, 1) if whole else 0.0,
        deserved=f"{deserved:.2f}",
        deserved_percent=round(100 * deserved / whole, 1) if whole else None,
        is_over=used > deserved,
        borrowed=f"{used - deserved:.2f}" if used > deserved else "",
    )
