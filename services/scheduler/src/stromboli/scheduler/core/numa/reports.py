"""Converts the report of a node's agent to ``hardware``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stromboli.scheduler.core.numa import gpu_interconnect
from stromboli.scheduler.core.numa.hardware import DevicePool, Hardware, Places, Share
from stromboli.shared.api import numa
from stromboli.shared.formats import cpu_lists
from stromboli.shared.messages import node_topology

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"
STATIC_MEMORY = "Static"
"""The memory manager policy that assigns memory by NUMA node."""
_PARTS = gpu_interconnect.LINK_SCORES["INTERNAL"]


class Devices(NamedTuple):
    """A pool, the ids of its devices in order, and the unhealthy ones."""

    pool: DevicePool
    ids: tuple[str, ...]
    unwell: Places = frozenset()


def places(reported: node_topology.NodeTopology) -> dict[int, numa.CpuPlace]:
    """The location of each CPU; a core is identified by its lowest CPU. Raises ValueError."""
    cpu_places: dict[int, numa.CpuPlace] = {}
    for core in reported.cores:
        own = cpu_lists.parsed(core.cpus)
        lowest = min(own, default=0)
        for cpu in own:
            cpu_places[cpu] = numa.CpuPlace(numa=core.numa_node, socket=core.socket, core=lowest)
    return cpu_places


def memory(reported: node_topology.NodeTopology) -> dict[int, int]:
    """Bytes for pods by NUMA node, if the kubelet assigns memory by NUMA node; all of its memory
    where the agent does not know how much of it is reserved."""
    if reported.kubelet.memory_policy != STATIC_MEMORY:
        return {}
    return {
        numa_node.id: size
        if numa_node.allocatable_memory_bytes is None
        else numa_node.allocatable_memory_bytes
        for numa_node in reported.numa_nodes
        if (size := numa_node.memory_bytes)
    }


def pools(
    reported: node_topology.NodeTopology, allocatable: Mapping[str, int]
) -> dict[str, Devices]:
    """Devices by resource. A resource whose device plugin counts something other than the reported
    devices (for example time slices of a GPU) is left out, because its items cannot be matched.
    """
    return {
        resource: devices
        for resource, devices in (
            *_gpus(reported),
            *_slices(reported),
            *_nics(reported, allocatable),
        )
        if devices.pool.is_shared or allocatable.get(resource, 0) <= len(devices.ids)
    }


def _gpus(reported: node_topology.NodeTopology) -> Iterator[tuple[str, Devices]]:
    whole = [at for at, gpu in enumerate(reported.gpus) if not gpu.mig]
    if not whole:
        return
    pairs: tuple[tuple[int, ...], ...] = ()
    if reported.gpu_connections:
        nvlinks = reported.nvlinks or [[0] * len(reported.gpus)] * len(reported.gpus)
        matrix = gpu_interconnect.scores(
            reported.gpu_connections, nvlinks, [gpu.nvswitch_links for gpu in reported.gpus]
        )
        pairs = tuple(tuple(int(matrix[one, other]) for other in whole) for one in whole)
    own = [reported.gpus[at] for at in whole]
    yield (
        GPU,
        Devices(
            DevicePool(tuple(gpu.numa_node for gpu in own), pairs),
            tuple(gpu.uuid for gpu in own),
            frozenset(at for at, gpu in enumerate(own) if gpu.problems),
        ),
    )


def _slices(reported: node_topology.NodeTopology) -> Iterator[tuple[str, Devices]]:
    """Slices of one GPU are taken together, so that other GPUs stay whole."""
    by_profile: dict[str, list[tuple[str, node_topology.Gpu]]] = {}
    for gpu in reported.gpus:
        for part in gpu.slices:
            by_profile.setdefault(part.profile.replace("+", "."), []).append((part.uuid, gpu))
    for profile, parts in sorted(by_profile.items()):
        parents = [gpu for _, gpu in parts]
        pairs = tuple(
            tuple(
                _PARTS if one.uuid == other.uuid and here != there else 0
                for there, other in enumerate(parents)
            )
            for here, one in enumerate(parents)
        )
        yield (
            MIG + profile,
            Devices(
                DevicePool(tuple(gpu.numa_node for gpu in parents), pairs),
                tuple(uuid for uuid, _ in parts),
                frozenset(at for at, gpu in enumerate(parents) if gpu.problems),
            ),
        )


def _nics(
    reported: node_topology.NodeTopology, allocatable: Mapping[str, int]
) -> Iterator[tuple[str, Devices]]:
    """RDMA resources. If there are as many items as network cards, each item is a card; if there
    are more, cards are shared.
    """
    own = [nic for nic in reported.nics if nic.rdma]
    whole = [at for at, gpu in enumerate(reported.gpus) if not gpu.mig]
    for resource in sorted(allocatable):
        count = allocatable.get(resource, 0)
        if "rdma" not in resource or not own or 0 < count < len(own):
            continue
        to_gpus = tuple(
            tuple(
                gpu_interconnect.LINK_SCORES.get(nic.gpu_connections[at], 0)
                if nic.gpu_connections
                else 0
                for at in whole
            )
            for nic in own
        )
        pool = DevicePool(tuple(nic.numa_node for nic in own), (), to_gpus, GPU, count > len(own))
        unwell = frozenset(at for at, nic in enumerate(own) if not nic.is_up)
        yield resource, Devices(pool, tuple(nic.rdma for nic in own), unwell)


def share(
    holding: node_topology.ExclusiveAllocation, ids: Mapping[str, Sequence[str]], hardware: Hardware
) -> Share:
    """The container's share of this hardware, without CPUs and devices that no longer exist. Raises
    ValueError for an invalid list of CPUs."""
    devices: dict[str, tuple[int, ...]] = {}
    for allocated_devices in holding.devices:
        known = {name: place for place, name in enumerate(ids.get(allocated_devices.resource, ()))}
        if known:
            places_ = sorted(known[name] for name in allocated_devices.ids if name in known)
            devices[allocated_devices.resource] = tuple(places_)
    numa_nodes = {numa_node for numa_node, _ in hardware.memory}
    sizes: dict[int, int] = {}
    for block in holding.memory:
        own = [numa_node for numa_node in block.numa_nodes if numa_node in numa_nodes]
        if block.kind == "memory" and own:
            for numa_node in own:
                sizes[numa_node] = sizes.get(numa_node, 0) + block.size_bytes // len(own)
    return Share(
        cpu_lists.parsed(holding.cpus) & hardware.machine.all,
        tuple(sorted(devices.items())),
        tuple(sorted(sizes.items())),
    )
