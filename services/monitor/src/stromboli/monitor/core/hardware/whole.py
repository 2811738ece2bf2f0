"""One machine's ``NodeTopology`` from all readings of it."""

from typing import NamedTuple

import msgspec

from stromboli.monitor.core.hardware import devices, gpus, kubelet, processors, tree
from stromboli.shared.messages import node_topology


class Layout(NamedTuple):
    """What changes with the machine alone: read once in a while. ``online``: its CPUs."""

    topology: node_topology.NodeTopology
    online: frozenset[int]


def layout(read: tree.Tree) -> Layout:
    """Processors and PCI devices."""
    reader = tree.Reader(read)
    running = processors.online(reader)
    cells = processors.cells(reader, running)
    made = node_topology.NodeTopology(
        cells=cells,
        cores=processors.cores(reader, running, cells),
        offline_cpus=processors.offline(reader),
        pci=devices.pci(reader),
        unread=reader.unread,
    )
    return Layout(made, running)


def cards(
    base: Layout, read: tree.Tree, answers: gpus.Answers, before: node_topology.NodeTopology | None
) -> node_topology.NodeTopology:
    """The layout with its GPUs and the network cards' ways to them. ``before``: what was told
    last, with cards that may have vanished since."""
    known = base.topology
    found = gpus.found(answers, {each.address: each.cell for each in known.pci})
    if before is not None:
        found = gpus.keep_vanished(gpus.Found(before.gpus, before.ways, before.nvlinks), found)
    reader = tree.Reader(read)
    nics = devices.nics(reader, known.pci, found.gpus)
    return msgspec.structs.replace(
        known,
        gpus=found.gpus,
        ways=found.ways,
        nvlinks=found.nvlinks,
        nics=nics,
        unread=(*known.unread, *reader.unread, *found.unread),
    )


def whole(
    machine: node_topology.NodeTopology, online: frozenset[int], readings: kubelet.Readings
) -> node_topology.NodeTopology:
    """The machine with what its kubelet says."""
    said = kubelet.found(readings, online)
    return msgspec.structs.replace(
        machine,
        kubelet=said.facts,
        holdings=said.holdings,
        unread=(*machine.unread, *said.unread),
    )
