"""The hardware of this machine, or of a recording: each source is read as rarely as possible."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from stromboli.monitor.agent import sysfs
from stromboli.monitor.agent.kubelet import Kubelet, Stamp
from stromboli.monitor.core.hardware import assembly, gpus, sysfs_tree
from stromboli.shared import decoding
from stromboli.shared.messages import node_topology

LAYOUT_EVERY_S = 60.0
"""Interval of reading CPUs and PCI devices when none was added or removed: links of NICs go up and
down.
"""


class Machine:
    """The hardware of this machine. ``answers``: a function that reads the GPU driver."""

    def __init__(
        self, root: Path, answers: Callable[[], gpus.DriverReadings], kubelet: Kubelet | None
    ) -> None:
        self._root = root
        self._answers = answers
        self._kubelet = kubelet
        self._read_at_s = float("-inf")
        self._fingerprint: tuple[str, ...] = ()
        self._tree = sysfs_tree.SysfsTree({})
        self._layout: assembly.Layout | None = None
        self._asked: gpus.DriverReadings | None = None
        self._cards: node_topology.NodeTopology | None = None
        self.allocations: tuple[node_topology.ExclusiveAllocation, ...] = ()
        """The allocations of the kubelet in the last reading."""

    def stamp(self) -> Stamp:
        """A value that changes when the kubelet allocates resources; constant without a kubelet."""
        return self._kubelet.stamp() if self._kubelet is not None else ()

    def read(self, now_s: float) -> node_topology.NodeTopology:
        """The hardware and allocations; ``now_s`` is any monotonic clock."""
        fingerprint = sysfs.fingerprint(self._root)
        if fingerprint != self._fingerprint or now_s - self._read_at_s >= LAYOUT_EVERY_S:
            self._fingerprint, self._read_at_s = fingerprint, now_s
            read = sysfs.read(self._root)
            if self._layout is None or read != self._tree:
                self._tree, self._layout, self._asked = read, assembly.read_layout(read), None
        assert self._layout is not None
        answers = self._answers()
        if self._cards is None or answers != self._asked:
            self._asked = answers
            self._cards = assembly.with_gpus(self._layout, self._tree, answers, self._cards)
        if self._kubelet is None:
            return self._cards
        topology = assembly.with_kubelet(self._cards, self._layout.online, self._kubelet.read())
        self.allocations = topology.exclusive_allocations
        return topology


def recorded(file: Path) -> Callable[[], gpus.DriverReadings]:
    """A reader of GPU driver answers in a file, which it reads each time. A file that cannot be
    read counts as a driver that does not answer.
    """

    def read() -> gpus.DriverReadings:
        try:
            return decoding.from_json(file.read_bytes(), gpus.DriverReadings)
        except (OSError, msgspec.DecodeError) as error:
            return gpus.DriverReadings(failed={"GPUs": str(error)})

    return read
