"""What queues used, against the shares that they deserved, as gauges. Pure.

The history has integrated the shares over the interval, with their changes.
"""

from collections.abc import Iterable

import msgspec

from stromboli.console.core.amounts import Gauge
from stromboli.shared.api.views import accounting


class QueueUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in its tree with its usage. ``gauges``: GPU hours and CPU hours."""

    name: str
    depth: int
    gauges: tuple[Gauge, ...]


def rows(shares: Iterable[accounting.QueueShare]) -> list[QueueUsage]:
    """The queues that deserved GPUs or CPU, in the order of the shares."""
    return [QueueUsage(name=it.queue, depth=it.depth, gauges=_gauges(it)) for it in shares]


def _gauges(share: accounting.QueueShare) -> tuple[Gauge, ...]:
    amounts = (
        ("GPU hours", share.gpu_seconds, share.deserved_gpu_seconds),
        ("CPU hours", share.cpu_seconds, share.deserved_cpu_seconds),
    )
    return tuple(
        _gauge(name, used / 3600, deserved / 3600) for name, used, deserved in amounts if deserved
    )


def _gauge(name: str, used: float, deserved: float) -> Gauge:
    """Hours against deserved hours; the bar ends at the larger one."""
    whole = max(used, deserved)
    return Gauge(
        resource=name,
        used=f"{used:.2f} ({100 * used / deserved:.0f} %)",
        percent=round(100 * used / whole, 1),
        deserved=f"{deserved:.2f}",
        deserved_percent=round(100 * deserved / whole, 1),
        is_over=used > deserved,
        borrowed=f"{used - deserved:.2f}" if used > deserved else "",
    )
