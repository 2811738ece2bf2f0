"""Reads the counters of disks and network interfaces from ``/sys``.

``/sys/block`` and a mounted ``/sys`` of the host show the node's devices also inside a container;
``/proc/net/dev`` would show the interfaces of the agent's own pod.
"""

import os
from pathlib import Path

from stromboli.monitor.core import io_load


def read(root: Path, now_s: float) -> io_load.Sample:
    """A sample of all hardware devices, which have a link ``device``. Devices that cannot be read
    are left out; never raises OSError."""
    disks = {
        name: counters
        for name in _devices(root / "block")
        if (counters := io_load.disk_counters(_text(root / "block" / name / "stat")))
    }
    interfaces = {}
    for name in _devices(root / "class/net"):
        folder = root / "class/net" / name
        counted = folder / "statistics"
        counters = io_load.interface_counters(
            _text(counted / "rx_bytes"), _text(counted / "tx_bytes"), _text(folder / "speed")
        )
        if counters is not None:
            interfaces[name] = counters
    return io_load.Sample(now_s, disks, interfaces)


def _devices(folder: Path) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    hardware = [name for name in names if (folder / name / "device").exists()]
    return hardware[: io_load.MOST_DEVICES]


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):  # ``speed`` of an interface that is down is an error
        return ""
