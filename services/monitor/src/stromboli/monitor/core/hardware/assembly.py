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
    topology = node_topology.NodeTopology(
        numa_nodes=numa_nodes,
        cores=processors.cores(reader, running, numa_nodes),
        offline_cpus=processors.offline(reader),
        pci=devices.pci(reader),
        read_failures=reader.read_failures,
    )
    return Layout(topology, running)


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
    gpu_inventory = gpus.build_inventory(
        answers, {each.address: each.numa_node for each in known.pci}
    )
    if before is not None:
        gpu_inventory = gpus.keep_vanished(
            gpus.GpuInventory(before.gpus, before.gpu_connections, before.nvlinks), gpu_inventory
        )
    reader = sysfs_tree.SysfsReader(read)
    nics = devices.nics(reader, known.pci, gpu_inventory.gpus)
    return msgspec.structs.replace(
        known,
        gpus=gpu_inventory.gpus,
        gpu_connections=gpu_inventory.gpu_connections,
        nvlinks=gpu_inventory.nvlinks,
        nics=nics,
        read_failures=(*known.read_failures, *reader.read_failures, *gpu_inventory.read_failures),
    )


def with_kubelet(
    machine: node_topology.NodeTopology, online: frozenset[int], readings: kubelet.KubeletReadings
) -> node_topology.NodeTopology:
    """The machine with the kubelet's configuration and allocations."""
    kubelet_state = kubelet.build_state(readings, online)
    numa_nodes = machine.numa_nodes
    if memory := kubelet_state.allocatable_memory:
        numa_nodes = tuple(
            # A NUMA node whose memory is reserved completely is not listed.
            msgspec.structs.replace(each, allocatable_memory_bytes=memory.get(each.id, 0))
            for each in numa_nodes
        )
    healthy = readings.allocatable.devices if readings.allocatable else {}
    return msgspec.structs.replace(
        machine,
        numa_nodes=numa_nodes,
        gpus=gpus.with_plugin_health(machine.gpus, healthy),
        kubelet=kubelet_state.facts,
        exclusive_allocations=kubelet_state.exclusive_allocations,
        read_failures=(*machine.read_failures, *kubelet_state.read_failures),
    )
