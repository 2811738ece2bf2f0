"""A node's CPUs as its Numatopology says: which are free, and what its kubelet goes by."""

from collections.abc import Iterable

import msgspec

from stromboli.scheduler.core.numa import alignment, cpus
from stromboli.shared import cpu_lists, units
from stromboli.shared.api import meta, numa

STATIC = "static"
"""The kubelet's CPU manager policy that gives containers CPUs of their own."""


class NodeCpus(msgspec.Struct, frozen=True):
    """``free``: CPUs that no pod holds alone, reserved ones included. ``reserved``: those kept from
    pods. ``policy``: how the kubelet aligns. ``is_static``: it gives CPUs out at all. ``holders``:
    uids and keys of pods whose CPUs are out of ``free`` already."""

    machine: cpus.Machine
    free: cpus.Cpus
    reserved: cpus.Cpus
    policy: str
    is_static: bool
    holders: frozenset[str]


class Machines:
    """Kinds of nodes, one ``Machine`` for all that are alike. Kept across sessions, with what they
    have been asked."""

    def __init__(self) -> None:
        self._known: dict[bytes, cpus.Machine] = {}
        self._read: dict[str, tuple[numa.Numatopology, NodeCpus | str]] = {}

    def read(self, found: numa.Numatopology) -> NodeCpus | str:
        """The node's CPUs, or what of them makes no sense. O(CPUs) the first time."""
        name = found.metadata.name
        known = self._read.get(name)
        if known is None or known[0] is not found:
            try:
                known = (found, self._node(found))
            except ValueError as error:
                known = (found, f"Numatopology {name}: {error}")
            self._read[name] = known
        return known[1]

    def forget(self, but: Iterable[str]) -> None:
        """Keep only what was read of these nodes."""
        self._read = {name: self._read[name] for name in but if name in self._read}

    def _node(self, found: numa.Numatopology) -> NodeCpus:
        spec = found.spec
        machine = self._machine(spec.cpu_detail or {})
        if len(machine.cells) > alignment.MOST_CELLS:
            raise ValueError(
                f"{len(machine.cells)} NUMA nodes, of which kubelets compare "
                f"{alignment.MOST_CELLS} at most"
            )
        cpu = (spec.numares or {}).get("cpu", numa.NumaResource())
        free = cpu_lists.parsed(cpu.allocatable)
        if not free <= machine.all:
            raise ValueError(
                f"CPUs {cpu_lists.written(free - machine.all)} are free, but cpuDetail lacks them"
            )
        kept = units.amounts(spec.res_reserved or {}).get("cpu", 0)
        reserved = machine.taken(machine.all, -(-kept // 1000))
        if reserved is None:
            raise ValueError(f"{kept // 1000} CPUs are reserved, there are {len(machine.all)}")
        policies = spec.policies or {}
        return NodeCpus(
            machine,
            free,
            reserved,
            policies.get("TopologyManagerPolicy", alignment.NONE) or alignment.NONE,
            policies.get("CPUManagerPolicy", "") == STATIC,
            frozenset(_holders(spec.pod_allocations)),
        )

    def _machine(self, detail: dict[str, numa.CpuPlace]) -> cpus.Machine:
        places = {int(cpu): place for cpu, place in detail.items()}
        key = msgspec.msgpack.encode(sorted(places.items()))
        if key not in self._known:
            self._known[key] = cpus.Machine(places)
        return self._known[key]


def _holders(allocations: Iterable[numa.PodAllocation]) -> Iterable[str]:
    for each in allocations:
        if each.uid:
            yield each.uid
        if each.name:
            yield meta.ObjectMeta(name=each.name, namespace=each.namespace).key
