"""Predicts whether and how a kubelet aligns the CPUs, devices and memory of a container.

Each resource has hints: sets of NUMA nodes with enough of it free. A hint is preferred if no
smaller set could hold the request even with everything free. Hints of several resources are merged
as kubelets since 1.26 do: preferred ones first (all resources must name the same NUMA nodes), then
those with fewer NUMA nodes, then those with lower numbers. The topology manager's policy says
whether a container may start without a preferred hint. CPUs, devices and memory are then chosen
within the best hint.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple, cast

from stromboli.scheduler.core.numa import cpus
from stromboli.scheduler.core.numa.hardware import AvailableHardware, Cells, Hardware, Share

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
MAX_NUMA_NODES = 8
"""NUMA nodes that the kubelet supports; with more it does not start under these policies."""

MAX_CACHED_ANSWERS = 10_000
"""Cached answers per kind of machine; equal nodes share them."""


class ContainerRequest(NamedTuple):
    """The exclusive resources of a container: whole CPUs, devices by resource, bytes of memory.
    Resources that the kubelet does not assign by NUMA node do not count.
    """

    cpus: int = 0
    devices: tuple[tuple[str, int], ...] = ()
    memory: int = 0

    def __bool__(self) -> bool:
        return bool(self.cpus or self.devices or self.memory)


class PodRequest(NamedTuple):
    """The exclusive request of a pod. ``containers``: in order. ``before``: init containers, which
    run one after another on the same free hardware. ``as_one``: the kubelet aligns the pod as a
    whole.
    """

    containers: tuple[ContainerRequest, ...]
    before: tuple[ContainerRequest, ...] = ()
    as_one: bool = False


class Hint(NamedTuple):
    """A set of NUMA nodes, and whether it is preferred."""

    numa_nodes: Cells
    is_preferred: bool


class PodShares(NamedTuple):
    """The shares of the containers, in order."""

    of_containers: tuple[Share, ...]

    @property
    def all_cpus(self) -> cpus.Cpus:
        """The CPUs of all containers."""
        return cpus.NOTHING.union(*(share.cpus for share in self.of_containers))


def place_pod(
    hardware: Hardware, room: AvailableHardware, requested: PodRequest, policy: str
) -> PodShares | None:
    """What the kubelet assigns to the containers one after another; None if it refuses one of them
    or devices are missing. Cached by the hardware.
    """
    key = (room, requested, policy)
    if key not in hardware.known:
        if len(hardware.known) >= MAX_CACHED_ANSWERS:
            hardware.known.clear()
        hardware.known[key] = _place_containers(hardware, room, requested, policy)
    return cast("PodShares | None", hardware.known[key])


def lacks_devices(hardware: Hardware, room: AvailableHardware, requested: PodRequest) -> bool:
    """Whether too few devices of some resource are free, regardless of NUMA nodes."""
    return any(
        count > len(room.places(resource)) and not hardware.pools[resource].is_shared
        for resource, count in _whole(requested).devices
        if resource in hardware.pools
    )


def _place_containers(
    hardware: Hardware, room: AvailableHardware, requested: PodRequest, policy: str
) -> PodShares | None:
    every = tuple(hardware.machine.numa_nodes)
    together: Cells | None = None
    if requested.as_one:
        best = align_container(hardware, room, _whole(requested), policy)
        if best is None:
            return None
        together = best
    for need in requested.before:
        best = together or align_container(hardware, room, need, policy)
        if best is None or _share(hardware, room, need, best) is None:
            return None
    container_shares: list[Share] = []
    for need in requested.containers:
        best = together or (align_container(hardware, room, need, policy) if need else every)
        share = None if best is None else _share(hardware, room, need, best)
        if share is None:
            return None
        room = room.less(share, hardware)
        container_shares.append(share)
    return PodShares(tuple(container_shares))


def align_container(
    hardware: Hardware, room: AvailableHardware, need: ContainerRequest, policy: str
) -> Cells | None:
    """The NUMA nodes from which the kubelet assigns; None if it refuses the container."""
    every = tuple(hardware.machine.numa_nodes)
    if policy == NONE:
        return every
    lists = list(_hints(hardware, room, need))
    if policy == SINGLE:
        lists = [
            [each for each in some if each.is_preferred and len(each.numa_nodes) == 1]
            for some in lists
        ]
    best = merge_hints(every, lists)
    return best.numa_nodes if best.is_preferred or policy == BEST_EFFORT else None


def merge_hints(every: Cells, lists: Sequence[Sequence[Hint]]) -> Hint:
    """The best combination of one hint per resource. A resource without a hint makes it not
    preferred. All NUMA nodes, preferred, if ``lists`` is empty.
    """
    if not lists:
        return Hint(every, is_preferred=True)
    agreed = set.intersection(
        *({each.numa_nodes for each in some if each.is_preferred} for some in lists)
    )
    if agreed:
        return Hint(min(agreed, key=_rank), is_preferred=True)
    masks = {every}
    for some in lists:
        masks = {
            tuple(numa_node for numa_node in mask if numa_node in each.numa_nodes)
            for mask in masks
            for each in some or [Hint(every, is_preferred=False)]
        }
    widths = [min(len(each.numa_nodes) for each in some) for some in lists if some]
    aim = max(widths, default=len(every))

    def order(mask: Cells) -> tuple[bool, int, int]:
        """Sort key: sets with as many NUMA nodes as the largest request needs first, then smaller
        ones, then larger ones."""
        return len(mask) > aim, abs(len(mask) - aim), _rank(mask)[1]

    return Hint(min(masks - {()} or {every}, key=order), is_preferred=False)


def _rank(numa_nodes: Cells) -> tuple[int, int]:
    """Fewer NUMA nodes first, then lower numbers."""
    return len(numa_nodes), sum(1 << numa_node for numa_node in numa_nodes)


# Hints


def _hints(
    hardware: Hardware, room: AvailableHardware, need: ContainerRequest
) -> Iterator[list[Hint]]:
    """The hints of each requested resource; O(2^NUMA nodes), limited by ``MAX_NUMA_NODES``."""
    machine = hardware.machine
    every = tuple(machine.numa_nodes)
    if need.cpus:
        ever = {numa_node: len(own) for numa_node, own in machine.numa_nodes.items()}
        now = {numa_node: len(own & room.cpus) for numa_node, own in machine.numa_nodes.items()}
        yield _of_amounts(every, ever, now, need.cpus)
    for resource, count in need.devices:
        pool = hardware.pools.get(resource)
        if pool is not None and pool.is_placed and count:
            free = room.places(resource)
            ever = {numa_node: pool.numa_nodes.count(numa_node) for numa_node in every}
            now = {
                numa_node: sum(pool.numa_nodes[place] == numa_node for place in free)
                for numa_node in every
            }
            if pool.is_shared:
                ever = {numa_node: count if some else 0 for numa_node, some in ever.items()}
                now = {numa_node: count if some else 0 for numa_node, some in now.items()}
            yield _of_amounts(every, ever, now, count)
    if need.memory and hardware.memory:
        ever = dict.fromkeys(every, 0) | dict(hardware.memory)
        now = dict.fromkeys(every, 0) | {
            numa_node: free
            for (numa_node, _), free in zip(hardware.memory, room.memory, strict=True)
        }
        yield _of_amounts(every, ever, now, need.memory)


def _of_amounts(every: Cells, ever: dict[int, int], now: dict[int, int], need: int) -> list[Hint]:
    """Every set of NUMA nodes with enough free, by size, then by numbers."""
    narrowest = len(every)
    subsets: list[Cells] = []
    for width in range(1, len(every) + 1):
        for some in combinations(every, width):
            if sum(ever[numa_node] for numa_node in some) >= need:
                narrowest = min(narrowest, width)
            if sum(now[numa_node] for numa_node in some) >= need:
                subsets.append(some)
    return [Hint(some, len(some) == narrowest) for some in subsets]


# Choosing


def _share(
    hardware: Hardware, room: AvailableHardware, need: ContainerRequest, numa_nodes: Cells
) -> Share | None:
    """The container's share, taken from these NUMA nodes first; None if devices are missing. If
    there are too few CPUs, the share has none: the kubelet's policy may admit the container
    nevertheless.
    """
    devices: dict[str, tuple[int, ...]] = {}
    # Pools that other devices should be close to come first.
    for resource, count in sorted(need.devices, key=lambda it: _depends(hardware, it[0])):
        pool = hardware.pools.get(resource)
        if pool is None or not count:
            continue
        gpus = devices.get(pool.gpus, ())
        some = hardware.chosen(
            resource,
            room.places(resource),
            min(count, len(pool.numa_nodes)) if pool.is_shared else count,
            numa_nodes,
            gpus,
        )
        if some is None:
            return None
        devices[resource] = some
    return Share(
        _cpus(hardware.machine, room.cpus, numa_nodes, need.cpus),
        tuple(sorted(devices.items())),
        tuple(_memory(hardware, room, numa_nodes, need.memory)),
    )


def _depends(hardware: Hardware, resource: str) -> tuple[bool, str]:
    pool = hardware.pools.get(resource)
    return bool(pool and pool.gpus), resource


def _cpus(machine: cpus.Machine, available: cpus.Cpus, numa_nodes: Cells, need: int) -> cpus.Cpus:
    if not need:
        return cpus.NOTHING
    own = available & cpus.NOTHING.union(
        *(machine.numa_nodes[numa_node] for numa_node in numa_nodes)
    )
    near = machine.taken(own, min(need, len(own))) or cpus.NOTHING
    remainder = machine.taken(available - near, need - len(near))
    return cpus.NOTHING if remainder is None else near | remainder


def _memory(
    hardware: Hardware, room: AvailableHardware, numa_nodes: Cells, need: int
) -> Iterator[tuple[int, int]]:
    """Bytes by NUMA node, filled in order; empty if there is too little."""
    inside = [
        (numa_node, free)
        for (numa_node, _), free in zip(hardware.memory, room.memory, strict=True)
        if numa_node in numa_nodes and free > 0
    ]
    if sum(free for _, free in inside) < need:
        return
    for numa_node, free in inside:
        if need > 0:
            yield numa_node, min(free, need)
            need -= free


def _whole(requested: PodRequest) -> ContainerRequest:
    """The request of the pod as a whole."""
    running = _sum(requested.containers)
    devices = dict(running.devices)
    for each in requested.before:
        for name, count in each.devices:
            devices[name] = max(devices.get(name, 0), count)
    return ContainerRequest(
        max(running.cpus, *(each.cpus for each in requested.before), 0),
        tuple(sorted(devices.items())),
        max(running.memory, *(each.memory for each in requested.before), 0),
    )


def _sum(needs: Iterable[ContainerRequest]) -> ContainerRequest:
    devices: dict[str, int] = {}
    total, memory = 0, 0
    for each in needs:
        total += each.cpus
        memory += each.memory
        for name, count in each.devices:
            devices[name] = devices.get(name, 0) + count
    return ContainerRequest(total, tuple(sorted(devices.items())), memory)
