"""Sets of CPUs, and taking some of them so that caches and memory are shared (spec/topology 2).

Where the field's scheduler compares core numbers of different sockets, or takes partly used
sockets and cores for free ones (spec/topology, traps 2 and 3), this goes by what the kubelet does:
a core is known by its socket and number, only one that is wholly available counts as free, and all
orders are lexicographic, so that the same sets give the same choice.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from stromboli.shared.api import numa

Cpus: TypeAlias = frozenset[int]
NOTHING: Cpus = frozenset()


class Machine:
    """Where CPUs are. ``cells``: NUMA node -> its CPUs, those without CPUs absent."""

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
        """How many NUMA nodes the CPUs lie in."""
        return sum(not own.isdisjoint(cpus) for own in self.numa_nodes.values())

    def taken(self, available: Cpus, count: int) -> Cpus | None:
        """``count`` of the available CPUs: whole sockets, then whole cores, then single ones, where
        most of the rest is taken; None if there are too few. O(CPUs * taken)."""
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
        """Sockets with fewer free cores first, so that the others stay whole."""
        free = [core for core, own in self.cores.items() if own <= left]
        in_socket: dict[int, int] = defaultdict(int)
        for socket, _ in free:
            in_socket[socket] += 1
        return sorted(free, key=lambda core: (in_socket[core[0]], *core))

    def _singles(self, left: set[int], result: set[int]) -> list[int]:
        """CPUs in the order in which they are taken one by one."""

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
