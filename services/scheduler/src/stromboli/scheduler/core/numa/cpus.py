"""Chooses CPUs of a node so that a container's CPUs share caches and memory.

The choice follows the kubelet, not Volcano, which compares core numbers of different sockets and
treats partly used sockets and cores as free. A core is identified by socket and number; only a
completely available core counts as free; all orders are lexicographic, so that equal sets give
equal choices.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from stromboli.shared.api import numa

Cpus: TypeAlias = frozenset[int]
NOTHING: Cpus = frozenset()


class Machine:
    """The CPUs of a kind of machine. ``numa_nodes``: NUMA node -> its CPUs; NUMA nodes without
    CPUs are absent.
    """

    def __init__(self, places: Mapping[int, numa.CpuPlace]) -> None:
        numa_nodes: dict[int, set[int]] = defaultdict(set)
        sockets: dict[int, set[int]] = defaultdict(set)
        cores: dict[tuple[int, int], set[int]] = defaultdict(set)
        for cpu, place in places.items():
            numa_nodes[place.numa].add(cpu)
            sockets[place.socket].add(cpu)
            cores[place.socket, place.core].add(cpu)
        self.all: Cpus = frozenset(places)
        self.numa_nodes = {key: frozenset(numa_nodes[key]) for key in sorted(numa_nodes)}
        self.sockets = {key: frozenset(sockets[key]) for key in sorted(sockets)}
        self.cores = {key: frozenset(cores[key]) for key in sorted(cores)}

    def cells_of(self, cpus: Cpus) -> int:
        """Number of NUMA nodes of the CPUs."""
        return sum(not own.isdisjoint(cpus) for own in self.numa_nodes.values())

    def taken(self, available: Cpus, count: int) -> Cpus | None:
        """``count`` of the available CPUs: whole sockets, then whole cores, then single CPUs where
        most others are taken; None if there are too few. O(CPUs * taken).
        """
        if count > len(available):
            return None
        left, result = set(available), set[int]()
        for own in self.sockets.values():
            if own <= left and len(own) <= count - len(result):
                result |= own
                left -= own
        for core in self._free_cores(left):
            own = self.cores[core]
            if len(own) <= count - len(result):
                result |= own
                left -= own
        for cpu in self._singles(left, result):
            if len(result) == count:
                break
            result.add(cpu)
        return frozenset(result)

    def _free_cores(self, left: set[int]) -> list[tuple[int, int]]:
        """Free cores, those on sockets with fewer free cores first, so that other sockets stay
        whole.
        """
        free = [core for core, own in self.cores.items() if own <= left]
        in_socket: dict[int, int] = defaultdict(int)
        for socket, _ in free:
            in_socket[socket] += 1
        return sorted(free, key=lambda core: (in_socket[core[0]], *core))

    def _singles(self, left: set[int], result: set[int]) -> list[int]:
        """CPUs in the order in which single ones are taken."""

        def order(core: tuple[int, int]) -> tuple[int, int, int, int, int]:
            socket = self.sockets[core[0]]
            own = self.cores[core]
            return (-len(socket & result), len(socket & left), len(own & left), *core)

        return [
            cpu
            for core in sorted(self.cores, key=order)
            for cpu in sorted(self.cores[core])
            if cpu in left
        ]
