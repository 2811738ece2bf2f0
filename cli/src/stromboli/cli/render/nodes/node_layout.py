"""Prepares a node's hardware and allocations for display. Pure."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from stromboli.cli.render import output
from stromboli.shared.formats import counts, cpu_lists
from stromboli.shared.messages import node_topology

T = TypeVar("T")
FREE, RESERVED = "·", "r"
"""Marks of CPUs without a pod; letters mark pods, see ``NodeLayout.holders``."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqstuvwxyz"
"""Letters of pods in order, without those that have another meaning."""
MANY = "#"
"""The mark of all pods for which there is no letter."""
GIB = 2**30


class PodHoldings(msgspec.Struct, frozen=True):
    """A pod with its exclusive resources. ``gpus``: indexes in ``NodeLayout.gpus``."""

    letter: str
    name: str
    cpus: str
    gpus: tuple[int, ...]
    devices: tuple[str, ...]
    memory: tuple[str, ...]


class GpuSlot(msgspec.Struct, frozen=True):
    """A GPU, and letters of the pods on it."""

    gpu: node_topology.Gpu
    letters: str


class Link(msgspec.Struct, frozen=True):
    """The connection of two devices: ``NV18``, ``PIX`` and so on. ``differs``: the two ends report
    different numbers of NVLinks; the lower one is used.
    """

    label: str
    nvlinks: int = 0
    differs: bool = False


class NumaCell(msgspec.Struct, frozen=True):
    """A NUMA node. ``cores``: CPUs of each core with their marks. ``gpus`` and ``nics``: indexes in
    the fields of the same names of ``NodeLayout``.
    """

    numa_node: node_topology.NumaNode
    sockets: tuple[int, ...]
    cores: tuple[tuple[tuple[int, str], ...], ...]
    gpus: tuple[int, ...]
    nics: tuple[int, ...]


class NodeLayout(msgspec.Struct, frozen=True):
    """A node for display. GPUs and NICs of unknown NUMA nodes are in the last
    cell, whose id is -1. ``links``: GPUs x GPUs, None on the diagonal.
    """

    node: str
    title: tuple[str, ...]
    kubelet: str
    age: str
    is_silent: bool
    numa_nodes: tuple[NumaCell, ...]
    gpus: tuple[GpuSlot, ...]
    nics: tuple[node_topology.Nic, ...]
    links: tuple[tuple[Link | None, ...], ...]
    holders: tuple[PodHoldings, ...]
    notes: tuple[str, ...]


def node_layout(topology: node_topology.TopologyObserved, now: datetime) -> NodeLayout:
    """The layout of a node, from its reported topology."""
    machine = topology.topology
    holders, marks = _holders(machine)
    gpus = tuple(
        GpuSlot(gpu, "".join(each.letter for each in holders if at in each.gpus))
        for at, gpu in enumerate(machine.gpus)
    )
    silent = topology.silent_since
    age = (
        f"silent for {output.age(silent, now)}: the data may be outdated"
        if silent is not None
        else f"unchanged for {output.age(topology.at, now)}"
    )
    return NodeLayout(
        node=topology.node,
        title=tuple(_title(machine)),
        kubelet=_kubelet(machine.kubelet),
        age=age,
        is_silent=silent is not None,
        numa_nodes=tuple(_cells(machine, marks)),
        gpus=gpus,
        nics=machine.nics,
        links=_links(machine),
        holders=holders,
        notes=tuple(f"{each.what}: {each.why}" for each in machine.read_failures),
    )


def format_bytes(amount: int) -> str:
    """A number of bytes with a unit, such as ``1.5 GiB``."""
    for unit, name in ((2**40, "TiB"), (GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if amount >= unit:
            return f"{amount / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{amount} B"


def short_model(model: str) -> str:
    """A GPU's model without its maker's name."""
    return model.removeprefix("NVIDIA ")


def _title(machine: node_topology.NodeTopology) -> Iterator[str]:
    cpus = sum(len(_cpus(core.cpus)) for core in machine.cores)
    yield counts.counted(len({core.socket for core in machine.cores}), "socket")
    yield counts.counted(len(machine.numa_nodes), "NUMA node")
    yield f"{counts.counted(len(machine.cores), 'core')}, {counts.counted(cpus, 'CPU')}"
    memory = sum(numa_node.memory_bytes for numa_node in machine.numa_nodes)
    if memory:
        yield format_bytes(memory)
    models = [short_model(gpu.model) or "GPU" for gpu in machine.gpus]
    if machine.offline_cpus:
        yield f"CPUs {machine.offline_cpus} offline"
    for model in dict.fromkeys(models):
        yield f"{models.count(model)} × {model}"


def _kubelet(facts: node_topology.KubeletConfiguration) -> str:
    parts = [
        f"{what} {policy}"
        for what, policy in (
            ("CPU manager", facts.cpu_policy),
            ("memory manager", facts.memory_policy),
            ("topology manager", facts.topology_policy),
            ("scope", facts.topology_scope),
        )
        if policy
    ]
    if facts.reserved_cpus:
        parts.append(f"CPUs {facts.reserved_cpus} reserved")
    elif facts.reserved.get("cpu"):
        parts.append(f"{facts.reserved['cpu']} CPU reserved")
    return ", ".join(parts)


def _cpus(text: str) -> frozenset[int]:
    """The CPUs of a list. Reports of a broken agent may be invalid: such a list counts as empty."""
    try:
        return cpu_lists.parsed(text)
    except ValueError:
        return frozenset()


def _holders(machine: node_topology.NodeTopology) -> tuple[tuple[PodHoldings, ...], dict[int, str]]:
    by_pod: dict[str, list[node_topology.ExclusiveAllocation]] = {}
    for each in machine.exclusive_allocations:
        name = f"{each.namespace}/{each.pod}" if each.pod else f"pod {each.uid}"
        by_pod.setdefault(name, []).append(each)
    marks = dict.fromkeys(_cpus(machine.kubelet.reserved_cpus), RESERVED)
    pod_holdings = []
    for place, (name, exclusive_allocations) in enumerate(by_pod.items()):
        letter = LETTERS[place] if place < len(LETTERS) else MANY
        cpus = frozenset[int]().union(*(_cpus(each.cpus) for each in exclusive_allocations))
        marks |= dict.fromkeys(cpus, letter)
        devices = [device for each in exclusive_allocations for device in each.devices]
        gpus = {at for device in devices for id_ in device.ids for at in _gpus_of(machine, id_)}
        pod_holdings.append(
            PodHoldings(
                letter=letter,
                name=name,
                cpus=cpu_lists.written(cpus),
                gpus=tuple(sorted(gpus)),
                devices=tuple(f"{len(device.ids)} {device.resource}" for device in devices),
                memory=tuple(
                    f"{format_bytes(block.size_bytes)} {block.kind} of node "
                    + ",".join(map(str, block.numa_nodes))
                    for each in exclusive_allocations
                    for block in each.memory
                ),
            )
        )
    return tuple(pod_holdings), marks


def _gpus_of(machine: node_topology.NodeTopology, id_: str) -> Iterator[int]:
    """The index of the GPU with this device id: its uuid, ``nvidia<index>``, or the uuid of one of
    its MIG devices."""
    plain = id_.partition("::")[0]  # a GPU slice is its uuid with a number as suffix
    for at, gpu in enumerate(machine.gpus):
        if plain in (gpu.uuid, f"nvidia{gpu.index}", *(part.uuid for part in gpu.slices)):
            yield at


def _cells(machine: node_topology.NodeTopology, marks: dict[int, str]) -> Iterator[NumaCell]:
    ids = [numa_node.id for numa_node in machine.numa_nodes]
    for numa_node in machine.numa_nodes:
        yield _cell(machine, marks, numa_node, [numa_node.id])
    nowhere = node_topology.NumaNode(id=node_topology.UNKNOWN_NUMA_NODE)
    named = {core.numa_node for core in machine.cores} | {gpu.numa_node for gpu in machine.gpus}
    others = (named | {nic.numa_node for nic in machine.nics}).difference(ids)
    if others:
        yield _cell(machine, marks, nowhere, others)


def _cell(
    machine: node_topology.NodeTopology,
    marks: dict[int, str],
    numa_node: node_topology.NumaNode,
    ids: Collection[int],
) -> NumaCell:
    own = [core for core in machine.cores if core.numa_node in ids]
    cores = (tuple((cpu, marks.get(cpu, FREE)) for cpu in sorted(_cpus(it.cpus))) for it in own)
    return NumaCell(
        numa_node,
        tuple(sorted({core.socket for core in own})),
        tuple(core for core in cores if core),
        tuple(at for at, gpu in enumerate(machine.gpus) if gpu.numa_node in ids),
        tuple(at for at, nic in enumerate(machine.nics) if nic.numa_node in ids),
    )


def _links(machine: node_topology.NodeTopology) -> tuple[tuple[Link | None, ...], ...]:
    places = range(len(machine.gpus))
    return tuple(
        tuple(None if one == other else _link(machine, one, other) for other in places)
        for one in places
    )


def _link(machine: node_topology.NodeTopology, one: int, other: int) -> Link:
    there, back = (
        _table_cell(machine.nvlinks, one, other, 0),
        _table_cell(machine.nvlinks, other, one, 0),
    )
    switched = min(machine.gpus[one].nvswitch_links, machine.gpus[other].nvswitch_links)
    count = min(there, back) + switched
    label = f"NV{count}" if count else _table_cell(machine.gpu_connections, one, other, "?")
    return Link(label, count, there != back)


def _table_cell(table: Sequence[Sequence[T]], row: int, column: int, otherwise: T) -> T:
    if row < len(table) and column < len(table[row]):
        return table[row][column]
    return otherwise
