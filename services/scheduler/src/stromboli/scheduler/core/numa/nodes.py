"""The reported hardware of each node, its free part, and the kubelet's policies.

There are two sources: the node's agent (CPUs, memory, GPUs with their interconnect, network cards,
and the assignments to pods) and a Numatopology object, which has only CPUs. The agent's report
counts if both exist.
"""

from collections.abc import Iterable, Mapping

import msgspec

from stromboli.scheduler.core.numa import alignment, cpus, reports
from stromboli.scheduler.core.numa.hardware import AvailableHardware, DevicePool, Hardware, Share
from stromboli.shared.api import core, meta, numa
from stromboli.shared.formats import cpu_lists, units
from stromboli.shared.messages import node_topology

STATIC = "static"
"""The CPU manager policy under which containers get exclusive CPUs."""


class NodeHardware(msgspec.Struct, frozen=True):
    """The hardware of one node. ``free``: not assigned exclusively to a pod, reserved CPUs
    included. ``reserved``: CPUs that pods never get. ``policy``: the topology manager's policy.
    ``is_static``: the kubelet assigns exclusive CPUs. ``by_pod``: it aligns pods as a whole.
    ``held``: uid or key of a pod -> its share. ``ids``: resource -> ids of the devices in its pool.
    ``is_silent``: the report is too old to be used.
    """

    hardware: Hardware
    free: AvailableHardware
    reserved: cpus.Cpus
    policy: str
    is_static: bool
    held: Mapping[str, Share]
    ids: Mapping[str, tuple[str, ...]] = {}
    by_pod: bool = False
    is_silent: bool = False


KnownHardware = NodeHardware | str
"""The hardware that was read, or why the report is invalid."""


class HardwareCache:
    """Hardware of nodes, shared between equal ones; kept across sessions with its cached
    answers.
    """

    def __init__(self) -> None:
        self._machines: dict[bytes, cpus.Machine] = {}
        self._kinds: dict[object, Hardware] = {}
        self._read: dict[str, tuple[object, Mapping[str, object] | None, KnownHardware]] = {}

    def read(self, numatopology: numa.Numatopology) -> KnownHardware:
        """Read a Numatopology. O(CPUs) the first time."""
        name = numatopology.metadata.name
        known = self._read.get(name)
        if known is None or known[0] is not numatopology:
            try:
                node: KnownHardware = self._of_numatopology(numatopology)
            except ValueError as error:
                node = f"Numatopology {name}: {error}"
            known = self._read[name] = (numatopology, None, node)
        return known[2]

    def observe(
        self,
        topology: node_topology.TopologyObserved,
        allocatable: Mapping[str, core.Quantity] | None,
    ) -> KnownHardware:
        """Read an agent's report. ``allocatable``: of the node; it shows whether device plugins
        count whole devices. O(CPUs + GPUs^2) the first time.
        """
        known = self._read.get(topology.node)
        if known is None or known[0] is not topology or known[1] is not allocatable:
            try:
                node: KnownHardware = self._of_agent(topology, counts(allocatable or {}))
            except ValueError as error:
                node = f"hardware of node {topology.node}: {error}"
            known = self._read[topology.node] = (topology, allocatable, node)
        return known[2]

    def forget(self, but: Iterable[str]) -> None:
        """Drop everything but these nodes."""
        self._read = {name: self._read[name] for name in but if name in self._read}

    def _of_numatopology(self, numatopology: numa.Numatopology) -> NodeHardware:
        spec = numatopology.spec
        machine = self._machine({int(cpu): place for cpu, place in (spec.cpu_detail or {}).items()})
        cpu = (spec.numares or {}).get("cpu", numa.NumaResource())
        free = cpu_lists.parsed(cpu.allocatable)
        if not free <= machine.all:
            raise ValueError(
                f"CPUs {cpu_lists.written(free - machine.all)} are free but not in cpuDetail"
            )
        policies = spec.policies or {}
        return NodeHardware(
            self._kind(machine, {}, {}),
            AvailableHardware(free),
            _reserved(machine, units.amounts(spec.res_reserved or {})),
            policies.get("TopologyManagerPolicy", alignment.NONE) or alignment.NONE,
            policies.get("CPUManagerPolicy", "") == STATIC,
            dict(_holders(spec.pod_allocations)),
        )

    def _of_agent(
        self, topology: node_topology.TopologyObserved, allocatable: Mapping[str, int]
    ) -> NodeHardware:
        reported, kubelet = topology.topology, topology.topology.kubelet
        machine = self._machine(reports.places(reported))
        pools = reports.pools(reported, allocatable)
        hardware = self._kind(
            machine, {name: each.pool for name, each in pools.items()}, reports.memory(reported)
        )
        ids = {name: each.ids for name, each in pools.items()}
        everything = hardware.everything
        room = AvailableHardware(
            everything.cpus,
            tuple((name, free - pools[name].unwell) for name, free in everything.devices),
            everything.memory,
        )
        shares_by_pod: dict[str, Share] = {}
        for holding in reported.exclusive_allocations:
            share = reports.share(holding, ids, hardware)
            room = room.less(share, hardware)
            for name in filter(None, (holding.uid, _key(holding))):
                shares_by_pod[name] = _together(shares_by_pod.get(name, Share()), share)
        reserved = cpu_lists.parsed(kubelet.reserved_cpus) & machine.all
        return NodeHardware(
            hardware,
            room,
            reserved or _reserved(machine, units.amounts(kubelet.reserved)),
            kubelet.topology_policy or alignment.NONE,
            kubelet.cpu_policy == STATIC,
            shares_by_pod,
            ids,
            kubelet.topology_scope == "pod",
            topology.silent_since is not None,
        )

    def _machine(self, places: Mapping[int, numa.CpuPlace]) -> cpus.Machine:
        key = msgspec.msgpack.encode(sorted(places.items()))
        if key not in self._machines:
            machine = cpus.Machine(places)
            if len(machine.numa_nodes) > alignment.MAX_NUMA_NODES:
                raise ValueError(
                    f"{len(machine.numa_nodes)} NUMA nodes; kubelets support at "
                    f"most {alignment.MAX_NUMA_NODES}"
                )
            self._machines[key] = machine
        return self._machines[key]

    def _kind(
        self, machine: cpus.Machine, pools: Mapping[str, DevicePool], memory: Mapping[int, int]
    ) -> Hardware:
        key = (id_of(machine), tuple(sorted(pools.items())), tuple(sorted(memory.items())))
        if key not in self._kinds:
            self._kinds[key] = Hardware(machine, pools, memory)
        return self._kinds[key]


def counts(amounts: Mapping[str, core.Quantity]) -> dict[str, int]:
    """Number of devices by resource, from the amounts of extended resources."""
    return {name: int(units.quantity(value)) for name, value in amounts.items() if "/" in name}


def id_of(machine: cpus.Machine) -> object:
    """Identifies machines with equal CPUs."""
    return tuple(sorted(machine.numa_nodes.items())), tuple(sorted(machine.cores.items()))


def _reserved(machine: cpus.Machine, amounts: units.Amounts) -> cpus.Cpus:
    kept = amounts.get("cpu", 0)
    reserved = machine.taken(machine.all, -(-kept // 1000))
    if reserved is None:
        raise ValueError(f"{kept // 1000} CPUs are reserved, but the node has {len(machine.all)}")
    return reserved


def _key(holding: node_topology.ExclusiveAllocation) -> str:
    return f"{holding.namespace}/{holding.pod}" if holding.pod else ""


def _together(one: Share, other: Share) -> Share:
    """The sum of two shares of a pod."""
    devices = dict(one.devices)
    for name, some in other.devices:
        devices[name] = tuple(sorted({*devices.get(name, ()), *some}))
    memory = dict(one.memory)
    for numa_node, size in other.memory:
        memory[numa_node] = memory.get(numa_node, 0) + size
    return Share(
        one.cpus | other.cpus, tuple(sorted(devices.items())), tuple(sorted(memory.items()))
    )


def _holders(allocations: Iterable[numa.PodAllocation]) -> Iterable[tuple[str, Share]]:
    for each in allocations:
        own = [
            cpu_lists.parsed(it.allocations.get("cpu", ""))
            for it in each.container_allocations
            if it.allocations
        ]
        share = Share(cpus.NOTHING.union(*own))
        if each.uid:
            yield each.uid, share
        if each.name:
            yield meta.ObjectMeta(name=each.name, namespace=each.namespace).key, share
