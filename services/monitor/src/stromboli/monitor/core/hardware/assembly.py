"""Builds one machine's ``NodeTopology`` from all readings."""

from typing import NamedTuple

import msgspec

from stromboli.monitor.core.hardware import devices, gpus, kubelet, processors, sysfs_tree
from stromboli.shared.messages import node_topology


class Layout(NamedTuple):
    """Hardware that rarely changes and is read periodically. ``online``: its CPUs."""

    topology: node_topology.NodeTopology
    online: frozenset[int]


def read_layout(read: sysfs_tree.SysfsTree) -> Layout:
    """Derive cores, NUMA nodes and PCI devices from the readings of sysfs."""
    reader = sysfs_tree.SysfsReader(read)
    running = processors.online(reader)
    numa_nodes = processors.numa_nodes(reader, running)
    made = node_topology.NodeTopology(
        numa_nodes=numa_nodes,
        cores=processors.cores(reader, running, numa_nodes),
        offline_cpus=processors.offline(reader),
        pci=devices.pci(reader),
        read_failures=reader.read_failures,
    )
    return Layout(made, running)


def with_gpus(
    base: Layout,
    read: sysfs_tree.SysfsTree,
    answers: gpus.DriverReadings,
    before: node_topology.NodeTopology | None,
) -> node_topology.NodeTopology:
    """The layout with its GPUs and their connections to NICs. ``before``: the last report, for GPUs
    that have disappeared since.
    """
    known = base.topology
    found = gpus.build_inventory(answers, {each.address: each.numa_node for each in known.pci})
    if before is not None:
        found = gpus.keep_vanished(
            gpus.GpuInventory(before.gpus, before.gpu_connections, before.nvlinks), found
        )
    reader = sysfs_tree.SysfsReader(read)
    nics = devices.nics(reader, known.pci, found.gpus)
    return msgspec.structs.replace(
        known,
        gpus=found.gpus,
        gpu_connections=found.gpu_connections,
        nvlinks=found.nvlinks,
        nics=nics,
        read_failures=(*known.read_failures, *reader.read_failures, *found.read_failures),
    )


def with_kubelet(
    machine: node_topology.NodeTopology, online: frozenset[int], readings: kubelet.KubeletReadings
) -> node_topology.NodeTopology:
    """The machine with the kubelet's configuration and allocations."""
    said = kubelet.build_state(readings, online)
    return msgspec.structs.replace(
        machine,
        gpus=gpus.with_plugin_health(machine.gpus, readings.allocatable_devices),
        kubelet=said.facts,
        exclusive_allocations=said.exclusive_allocations,
        read_failures=(*machine.read_failures, *said.read_failures),
    )
