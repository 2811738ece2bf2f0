"""A kind of machine: CPUs, devices and memory by NUMA node, and their assignment.

Equal nodes share one ``Hardware``. It identifies devices by their index in a pool; their ids belong
to the node. Free GPUs are taken by interconnect (``gpu_interconnect``), network cards by their
distance to the GPUs of the same container, other devices on the fewest NUMA nodes.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stromboli.scheduler.core.numa import gpu_interconnect
from stromboli.scheduler.core.numa.cpus import NOTHING, Cpus, Machine

UNKNOWN = -1
"""NUMA node of a device for which the machine reports none."""
Places = frozenset[int]
NO_PLACES: Places = frozenset()
Cells = tuple[int, ...]
"""NUMA nodes in ascending order."""


class DevicePool(NamedTuple):
    """Devices of one resource. ``numa_nodes``: the NUMA node of each. ``pairs``: interconnect
    scores of GPU pairs; empty if unknown. ``to_gpus``: devices x GPUs, the score of each connection
    (higher is nearer), with the GPUs in the order of the pool ``gpus``; empty if unknown.
    ``is_shared``: a device may be assigned to several containers.
    """

    numa_nodes: tuple[int, ...]
    pairs: tuple[tuple[int, ...], ...] = ()
    to_gpus: tuple[tuple[int, ...], ...] = ()
    gpus: str = ""
    is_shared: bool = False

    @property
    def is_placed(self) -> bool:
        """Whether the NUMA node of some device is known."""
        return any(numa_node != UNKNOWN for numa_node in self.numa_nodes)


class AvailableHardware(NamedTuple):
    """The free hardware of a node. ``devices``: resource -> indexes in its pool, by name.
    ``memory``: bytes by NUMA node in the order of ``Hardware.memory``.
    """

    cpus: Cpus
    devices: tuple[tuple[str, Places], ...] = ()
    memory: tuple[int, ...] = ()

    def places(self, resource: str) -> Places:
        """Free devices of a resource, as indexes in its pool."""
        return dict(self.devices).get(resource, NO_PLACES)

    def less(self, share: "Share", hardware: "Hardware") -> "AvailableHardware":
        """The free hardware after a container gets its share."""
        return self._changed(share, hardware, takes=True)

    def plus(self, share: "Share", hardware: "Hardware") -> "AvailableHardware":
        """The free hardware after a container returns its share."""
        return self._changed(share, hardware, takes=False)

    def _changed(self, share: "Share", hardware: "Hardware", *, takes: bool) -> "AvailableHardware":
        own = dict(share.devices)
        devices = tuple(
            (
                name,
                free
                if hardware.pools[name].is_shared
                else free - frozenset(own.get(name, ()))
                if takes
                else free | frozenset(own.get(name, ())),
            )
            for name, free in self.devices
        )
        memory_shares = dict(share.memory)
        sign = -1 if takes else 1
        memory = tuple(
            free + sign * memory_shares.get(numa_node, 0)
            for (numa_node, _), free in zip(hardware.memory, self.memory, strict=True)
        )
        return AvailableHardware(
            self.cpus - share.cpus if takes else self.cpus | share.cpus, devices, memory
        )


class Share(NamedTuple):
    """The exclusive hardware of a container. ``devices``: resource -> indexes. ``memory``: NUMA
    node -> bytes, where the kubelet assigns memory by NUMA node.
    """

    cpus: Cpus = NOTHING
    devices: tuple[tuple[str, tuple[int, ...]], ...] = ()
    memory: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.cpus or self.devices or self.memory)


class Hardware:
    """A kind of machine. ``memory``: NUMA node -> bytes for pods, empty if the kubelet does not
    assign memory by NUMA node. ``known``: cached answers that depend only on the free hardware.
    """

    def __init__(
        self,
        machine: Machine,
        pools: Mapping[str, DevicePool] | None = None,
        memory: Mapping[int, int] | None = None,
    ) -> None:
        self.machine = machine
        numa_nodes = machine.numa_nodes
        # A device on a NUMA node without CPUs (such as a GPU's own memory) gives no hint.
        self.pools = {
            name: pool._replace(
                numa_nodes=tuple(
                    numa_node if numa_node in numa_nodes else UNKNOWN
                    for numa_node in pool.numa_nodes
                )
            )
            for name, pool in sorted((pools or {}).items())
        }
        self.memory = tuple(sorted((numa_node, size) for numa_node, size in (memory or {}).items()))
        self._pairs = {
            name: np.array(pool.pairs, np.int64) if pool.pairs else _unlinked(len(pool.numa_nodes))
            for name, pool in self.pools.items()
        }
        self.known: dict[Hashable, object] = {}

    @property
    def everything(self) -> AvailableHardware:
        """All of the hardware as available."""
        return AvailableHardware(
            self.machine.all,
            tuple(
                (name, frozenset(range(len(pool.numa_nodes)))) for name, pool in self.pools.items()
            ),
            tuple(size for _, size in self.memory),
        )

    def link_score(self, resource: str, places: Collection[int]) -> int:
        """The sum of the interconnect scores of all pairs of these GPUs."""
        some = sorted(places)
        return int(self._pairs[resource][np.ix_(some, some)].sum()) // 2

    def chosen(
        self, resource: str, free: Places, count: int, numa_nodes: Cells, with_gpus: Sequence[int]
    ) -> tuple[int, ...] | None:
        """``count`` of the free devices, those on ``numa_nodes`` first; None if there are too few.

        ``with_gpus``: GPUs of the same container, to which network cards should be near.
        """
        pool = self.pools[resource]
        if count > len(free):
            return None
        inside = {place for place in free if pool.numa_nodes[place] in numa_nodes}
        aligned = inside if len(inside) >= count else free
        if pool.to_gpus and with_gpus:
            return _nearest(pool, aligned, count, with_gpus)
        return gpu_interconnect.best_gpus(
            self._pairs[resource], free, count, pool.numa_nodes, aligned
        )


def _nearest(
    pool: DevicePool, free: Collection[int], count: int, gpus: Sequence[int]
) -> tuple[int, ...]:
    """The nearest remaining device for each GPU in turn."""
    left = sorted(free)
    devices: list[int] = []
    while len(devices) < count:
        gpu = gpus[len(devices) % len(gpus)]
        nearest = max(left, key=lambda place: (pool.to_gpus[place][gpu], -place))
        left.remove(nearest)
        devices.append(nearest)
    return tuple(sorted(devices))


def _unlinked(size: int) -> gpu_interconnect.Scores:
    return np.zeros((size, size), np.int64)
