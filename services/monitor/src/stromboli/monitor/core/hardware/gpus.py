"""GPUs and their links, from responses of the driver (NVML).

``DriverReadings`` contains what each call returned, or why it failed; it may be stored in a file. A
call that a GPU does not support is not a failure: a GPU without NVLink has no links.
"""

from collections.abc import Mapping, Sequence

import msgspec

from stromboli.monitor.core.hardware import devices
from stromboli.shared.messages import node_topology

LEVELS: Mapping[int, str] = {0: "INTERNAL", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's topology levels -> nvidia-smi's names."""
FARTHEST = "SYS"
"""The level of a connection that the driver does not report."""
OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
"""Xid errors that a program causes itself: the GPU is healthy. Source: NVIDIA, Xid errors."""
GONE = "the driver no longer lists it"
NOT_ALLOCATABLE = "its device plugin reports it as unhealthy"
RESOURCE = "nvidia.com/gpu"


class LinkReading(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An active NVLink. ``remote``: ``gpu``, ``switch`` or another device."""

    remote: str
    pci: str = ""


class SliceReading(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A MIG device of a GPU, as NVML reports it."""

    uuid: str
    profile: str = ""
    memory_bytes: int = 0


class GpuReading(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One GPU. ``failed``: call -> why it failed; ``lost``: why the GPU does not respond at all.
    ``uncorrected``: memory errors since the driver was loaded.
    """

    index: int
    uuid: str = ""
    model: str = ""
    pci: str = ""
    memory_bytes: int = 0
    mig: bool = False
    slices: tuple[SliceReading, ...] = ()
    links: tuple[LinkReading, ...] = ()
    fabric: str = ""
    uncorrected: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    xids: tuple[int, ...] = ()
    lost: str = ""
    failed: Mapping[str, str] = {}


class DriverReadings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All GPUs. ``ancestors``: GPUs x GPUs in their order, NVML's level of their connection; None
    is unknown. ``absent``: why there is no driver; this is not a failure.
    """

    gpus: tuple[GpuReading, ...] = ()
    ancestors: tuple[tuple[int | None, ...], ...] = ()
    failed: Mapping[str, str] = {}
    absent: str = ""


class GpuInventory(msgspec.Struct, frozen=True):
    """GPUs, matrices of their connections (GPUs x GPUs, in this order), and read failures."""

    gpus: tuple[node_topology.Gpu, ...] = ()
    gpu_connections: tuple[tuple[str, ...], ...] = ()
    nvlinks: tuple[tuple[int, ...], ...] = ()
    read_failures: tuple[node_topology.ReadFailure, ...] = ()


def build_inventory(answers: DriverReadings, numa_nodes: Mapping[str, int]) -> GpuInventory:
    """The GPUs that have a UUID. ``numa_nodes``: PCI address -> NUMA node."""
    named = [(at, each) for at, each in enumerate(answers.gpus) if each.uuid]
    at_address = {devices.address(each.pci): place for place, (_, each) in enumerate(named)}
    read_failures = [_unread(what, why) for what, why in answers.failed.items()]
    if answers.absent:
        read_failures.append(_unread("GPUs", answers.absent))
    for each in answers.gpus:
        read_failures += [
            _unread(f"{what} of GPU {each.index}", why) for what, why in each.failed.items()
        ]
        if each.lost and not each.uuid:
            read_failures.append(_unread(f"GPU {each.index}", each.lost))
    gpu_connections = tuple(
        tuple(
            node_topology.SELF if one == other else _way(answers, one, other) for other, _ in named
        )
        for one, _ in named
    )
    return GpuInventory(
        tuple(_gpu(each, numa_nodes) for _, each in named),
        gpu_connections,
        tuple(_straight(each, at_address, len(named)) for _, each in named),
        tuple(read_failures),
    )


def _way(answers: DriverReadings, one: int, other: int) -> str:
    table: Sequence[Sequence[int | None]] = answers.ancestors
    level = table[one][other] if one < len(table) and other < len(table[one]) else None
    return FARTHEST if level is None else LEVELS.get(level, FARTHEST)


def _straight(card: GpuReading, at_address: Mapping[str, int], size: int) -> tuple[int, ...]:
    counts = [0] * size
    for link in card.links:
        place = at_address.get(devices.address(link.pci)) if link.remote == "gpu" else None
        if place is not None:
            counts[place] += 1
    return tuple(counts)


def _gpu(card: GpuReading, numa_nodes: Mapping[str, int]) -> node_topology.Gpu:
    pci = devices.address(card.pci) if card.pci else ""
    return node_topology.Gpu(
        index=card.index,
        uuid=card.uuid,
        model=card.model,
        memory_bytes=card.memory_bytes,
        pci=pci,
        numa_node=numa_nodes.get(pci, node_topology.UNKNOWN_NUMA_NODE),
        nvswitch_links=sum(link.remote == "switch" for link in card.links),
        mig=card.mig,
        slices=tuple(
            node_topology.MigSlice(
                uuid=each.uuid, profile=each.profile, memory_bytes=each.memory_bytes
            )
            for each in card.slices
        ),
        fabric=card.fabric,
        problems=tuple(_problems(card)),
    )


def _problems(card: GpuReading) -> list[str]:
    problems = [f"it does not respond: {card.lost}"] if card.lost else []
    if card.uncorrected:
        problems.append(f"{card.uncorrected} memory errors that could not be corrected")
    if card.remap_failed:
        problems.append("a broken memory row could not be remapped: replace the GPU")
    elif card.remap_pending:
        problems.append("a broken memory row is remapped once the GPU is reset")
    grave = sorted(set(card.xids) - OF_PROGRAMS)
    if grave:
        problems.append(f"the driver reported Xid {', '.join(map(str, grave))}")
    return problems


def keep_vanished(before: GpuInventory, now: GpuInventory) -> GpuInventory:
    """``now``, with the GPUs of ``before`` that are missing, so that the allocation of a vanished
    GPU remains visible.

    The vanished GPUs come last, without links and with a problem that names the cause.
    """
    there = {each.uuid for each in now.gpus}
    lost = [each for each in before.gpus if each.uuid not in there]
    if not lost:
        return now
    marked = tuple(
        msgspec.structs.replace(each, nvswitch_links=0, slices=(), problems=(GONE,))
        for each in lost
    )
    size = len(now.gpus) + len(lost)
    gpu_connections = [(*line, *[FARTHEST] * len(lost)) for line in now.gpu_connections]
    gpu_connections += [
        tuple(node_topology.SELF if at == to else FARTHEST for to in range(size))
        for at in range(len(now.gpus), size)
    ]
    links = [(*line, *[0] * len(lost)) for line in now.nvlinks] + [(0,) * size] * len(lost)
    return GpuInventory(
        (*now.gpus, *marked), tuple(gpu_connections), tuple(links), now.read_failures
    )


def _unread(what: str, why: str) -> node_topology.ReadFailure:
    return node_topology.ReadFailure(what=what, why=why)


def with_plugin_health(
    cards: Sequence[node_topology.Gpu], allocatable: Mapping[str, frozenset[str]]
) -> tuple[node_topology.Gpu, ...]:
    """The GPUs, with a problem for those that the device plugin does not report as healthy.

    A plugin without healthy devices cannot be distinguished from a missing plugin. Plugins that
    share GPUs report other ids than UUIDs, which do not identify a GPU.
    """
    healthy = allocatable.get(RESOURCE, frozenset())
    if healthy.isdisjoint(each.uuid for each in cards):
        return tuple(cards)
    return tuple(
        each
        if each.mig or each.uuid in healthy
        else msgspec.structs.replace(each, problems=(*each.problems, NOT_ALLOCATABLE))
        for each in cards
    )
