"""The load of disks and network interfaces, from counters of ``/sys``.

Pure: samples in, loads out; time is an argument. A load is the difference of two samples divided by
their distance. It takes the newest sample and the oldest one of the last ``WINDOW_S`` seconds, so
that a report is an average and not a peak. Devices that are not in both samples, and counters that
went backwards (a disk was replaced, a driver was loaded again), have no load in this window.

Only devices of hardware count: partitions, loop devices, device mapper, bridges and virtual
interfaces repeat what their devices below do. Memory: at most ``WINDOW_S / SAMPLE_EVERY_S + 1``
samples of at most ``MOST_DEVICES`` devices of each kind.
"""

from collections.abc import Callable, Mapping

import msgspec

from stromboli.shared.messages import node_usage

WINDOW_S = 60.0
"""The period over which loads are averaged, seconds: longer than a burst of writeback (30 s)."""
SAMPLE_EVERY_S = 10.0
"""Seconds between two samples; each costs some tens of small reads."""
SHORTEST_S = 15.0
"""The shortest period that counts as a measurement."""
MOST_DEVICES = 64
"""Maximum disks, or interfaces, in a sample: the first ones by name."""
STEP = 10
"""Percentage points by which a load must differ from the reported one to be reported
immediately."""
_SECTOR_BYTES = 512
"""The unit of the kernel's statistics, whatever the disk's own sectors are."""


class Counters(msgspec.Struct, frozen=True):
    """Counters of a device. ``busy_ms``: the time with requests in progress, of a disk only.
    ``bytes_per_s``: the speed of an interface's link in one direction; 0 if unknown."""

    in_bytes: int
    out_bytes: int
    busy_ms: int = 0
    bytes_per_s: int = 0


class Sample(msgspec.Struct, frozen=True):
    """Counters at a time of a monotonic clock, by the names of devices."""

    at_s: float
    disks: Mapping[str, Counters] = {}
    interfaces: Mapping[str, Counters] = {}


def disk_counters(stat: str) -> Counters | None:
    """Parse ``/sys/block/DISK/stat`` (Documentation/block/stat.rst of Linux); None if it is
    invalid."""
    fields = stat.split()
    try:
        read, written, busy_ms = int(fields[2]), int(fields[6]), int(fields[9])
    except (IndexError, ValueError):
        return None
    return Counters(read * _SECTOR_BYTES, written * _SECTOR_BYTES, busy_ms)


def interface_counters(received: str, sent: str, mbit_per_s: str) -> Counters | None:
    """Parse ``statistics/rx_bytes``, ``statistics/tx_bytes`` and ``speed`` of an interface; None if
    they are not numbers. Virtual machines often state no speed, or -1."""
    try:
        in_bytes, out_bytes = int(received), int(sent)
    except ValueError:
        return None
    try:
        speed = max(0, int(mbit_per_s)) * 1_000_000 // 8
    except ValueError:
        speed = 0
    return Counters(in_bytes, out_bytes, bytes_per_s=speed)


class LoadMeter:
    """The samples of the last ``WINDOW_S`` seconds. A step costs O(devices)."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []

    def is_due(self, now_s: float) -> bool:
        """Whether the next sample is due."""
        return not self._samples or now_s - self._samples[-1].at_s >= SAMPLE_EVERY_S

    def add(self, sample: Sample) -> None:
        """Add a sample that is later than the previous ones. Samples after a gap (the machine was
        suspended) start a new window."""
        if self._samples and sample.at_s - self._samples[-1].at_s > WINDOW_S:
            self._samples.clear()
        self._samples.append(sample)
        while sample.at_s - self._samples[0].at_s > WINDOW_S:
            del self._samples[0]

    def usage(self) -> node_usage.NodeLoad:
        """The loads over the window; unknown until it is long enough."""
        if not self._samples or self._samples[-1].at_s - self._samples[0].at_s < SHORTEST_S:
            return node_usage.NodeLoad()
        first, last = self._samples[0], self._samples[-1]
        seconds = last.at_s - first.at_s
        return node_usage.NodeLoad(
            window_s=round(seconds),
            disk=_load(first.disks, last.disks, seconds, _disk_share),
            network=_load(first.interfaces, last.interfaces, seconds, _interface_share),
        )


def is_news(before: node_usage.NodeLoad | None, after: node_usage.NodeLoad) -> bool:
    """Whether a load differs from the reported one by ``STEP`` points, or became known or
    unknown."""
    if before is None:
        return True
    pairs = ((before.disk, after.disk), (before.network, after.network))
    return any(
        (old is None) != (new is None)
        or (old is not None and new is not None and abs(old.percent - new.percent) >= STEP)
        for old, new in pairs
    )


_Share = Callable[[Counters, float], float | None]
"""The load of a device, 0 to 1, from the differences of its counters and the seconds between
them; None if it is unknown."""


def _disk_share(spent: Counters, seconds: float) -> float | None:
    return spent.busy_ms / 1000 / seconds


def _interface_share(spent: Counters, seconds: float) -> float | None:
    if not spent.bytes_per_s:
        return None
    return max(spent.in_bytes, spent.out_bytes) / seconds / spent.bytes_per_s


def _load(
    first: Mapping[str, Counters], last: Mapping[str, Counters], seconds: float, share: _Share
) -> node_usage.DeviceLoad | None:
    spent = {
        name: used
        for name, after in last.items()
        if name in first and (used := _difference(first[name], after)) is not None
    }
    shares = {
        name: percent for name, of in spent.items() if (percent := share(of, seconds)) is not None
    }
    if not shares:
        return None
    busiest = max(sorted(shares), key=lambda name: shares[name])
    return node_usage.DeviceLoad(
        busiest=busiest,
        percent=min(100, round(100 * shares[busiest])),
        in_bytes_per_s=round(sum(each.in_bytes for each in spent.values()) / seconds),
        out_bytes_per_s=round(sum(each.out_bytes for each in spent.values()) / seconds),
    )


def _difference(before: Counters, after: Counters) -> Counters | None:
    """The growth of each counter; None if one went backwards."""
    counters = Counters(
        after.in_bytes - before.in_bytes,
        after.out_bytes - before.out_bytes,
        after.busy_ms - before.busy_ms,
        after.bytes_per_s,
    )
    return None if min(counters.in_bytes, counters.out_bytes, counters.busy_ms) < 0 else counters
