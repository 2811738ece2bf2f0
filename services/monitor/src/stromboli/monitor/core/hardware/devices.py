"""PCI devices with their NUMA nodes, NICs, and the connection between two of them.

The real path of a device contains every bridge above it. Connections have nvidia-smi's names: PIX
under one switch, PXB over several, PHB over the host bridge, NODE between host bridges of one NUMA
node, SYS across sockets. Between GPUs the driver is more precise; between a GPU and a NIC the path
is the only source.
"""

import re
from collections.abc import Mapping

from stromboli.monitor.core.hardware import sysfs_tree
from stromboli.shared.messages import node_topology

PCI = "bus/pci/devices"
KINDS: Mapping[str, str] = {
    "0x01": "storage",
    "0x02": "network",
    "0x03": "display",
    "0x0b": "processor",
    "0x12": "accelerator",
    "0x0c06": "network",
}
"""PCI class -> its name; bridges and similar devices are left out."""
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE = re.compile(r"(\d+)(?:\.\d+)? Gb/sec")


def address(text: str) -> str:
    """A PCI address in sysfs format: the GPU driver writes more digits, and capitals."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:].zfill(4)}:{rest}"


def pci(reader: sysfs_tree.SysfsReader) -> tuple[node_topology.PciDevice, ...]:
    """Devices of the relevant kinds, by address; a virtual function counts as its physical
    device.
    """
    pci_devices = []
    for name in reader.tree.children(PCI):
        code = reader.value(f"{PCI}/{name}/class", _code, "the class of PCI devices", name)
        kind = KINDS.get((code or "")[:4]) or KINDS.get((code or "")[:6])
        if kind is None or f"{PCI}/{name}/physfn" in reader.tree.links:
            continue
        pci_devices.append(
            node_topology.PciDevice(address=name, kind=kind, numa_node=_cell(reader, name))
        )
    return tuple(pci_devices)


def _cell(reader: sysfs_tree.SysfsReader, name: str) -> int:
    """The NUMA node. The kernel's -1 means unknown, not node 0."""
    numa_id = reader.value(f"{PCI}/{name}/numa_node", int, "the NUMA node of PCI devices", name)
    return node_topology.UNKNOWN_NUMA_NODE if numa_id is None else max(numa_id, -1)


def nics(
    reader: sysfs_tree.SysfsReader,
    known: tuple[node_topology.PciDevice, ...],
    gpus: tuple[node_topology.Gpu, ...],
) -> tuple[node_topology.Nic, ...]:
    """NICs by address, each with its connection to every GPU. Interfaces without a PCI device
    (bridges, tunnels) are left out.
    """
    interfaces, rdma = (_on_cards(reader, folder) for folder in ("class/net", "class/infiniband"))
    cell_of = {each.address: each.numa_node for each in known}
    network_cards = []
    for card in sorted(interfaces.keys() | rdma.keys()):
        if f"{PCI}/{card}/physfn" in reader.tree.links:
            continue
        name, device = interfaces.get(card, ""), rdma.get(card, "")
        link, is_up, gbit_s = _port(reader, device) if device else _ethernet(reader, name)
        numa_node = cell_of.get(card, node_topology.UNKNOWN_NUMA_NODE)
        gpu_connections = tuple(
            connection_type(reader.tree, (card, numa_node), (gpu.pci, gpu.numa_node))
            for gpu in gpus
        )
        network_cards.append(
            node_topology.Nic(
                name=name or device,
                pci=card,
                numa_node=numa_node,
                rdma=device,
                link=link,
                is_up=is_up,
                gbit_s=gbit_s,
                gpu_connections=gpu_connections,
            )
        )
    return tuple(network_cards)


def _on_cards(reader: sysfs_tree.SysfsReader, folder: str) -> dict[str, str]:
    """PCI address -> the first interface on it."""
    interfaces: dict[str, str] = {}
    for name in reader.tree.children(folder):
        real = reader.tree.links.get(f"{folder}/{name}/device", "")
        addresses = _ADDRESS.findall(real)
        if addresses:
            interfaces.setdefault(addresses[-1], name)
    return interfaces


def _port(reader: sysfs_tree.SysfsReader, device: str) -> tuple[str, bool, int]:
    """Link layer, whether it is up, and Gbit/s of an RDMA device, from its first active port."""
    ports = []
    folder = f"class/infiniband/{device}/ports"
    for port in reader.tree.children(folder):
        layer = reader.tree.texts.get(f"{folder}/{port}/link_layer", "")
        state = reader.value(f"{folder}/{port}/state", str, "the state of RDMA ports", device)
        rate = reader.value(f"{folder}/{port}/rate", _gbit_s, "the rate of RDMA ports", device)
        ports.append((layer, "ACTIVE" in (state or ""), rate or 0))
    return next((port for port in ports if port[1]), ports[0] if ports else ("", False, 0))


def _ethernet(reader: sysfs_tree.SysfsReader, name: str) -> tuple[str, bool, int]:
    """Link layer, whether it is up, and Gbit/s of an Ethernet interface. The kernel reports the
    speed only of active links; otherwise reading the file fails.
    """
    is_up = reader.tree.texts.get(f"class/net/{name}/operstate", "") == "up"
    speed = reader.tree.texts.get(f"class/net/{name}/speed", "")
    return "Ethernet", is_up, int(speed) // 1000 if is_up and speed.isdecimal() else 0


def connection_type(
    tree: sysfs_tree.SysfsTree, one: tuple[str, int], other: tuple[str, int]
) -> str:
    """The connection between two devices, each given by address and NUMA node."""
    first, second = (_chain(tree.links.get(f"{PCI}/{device}", "")) for device, _ in (one, other))
    if first and second and first[0] == second[0]:
        above, below = first[:-1], second[:-1]
        common = next(
            (at for at, pair in enumerate(zip(above, below, strict=False)) if pair[0] != pair[1]),
            min(len(above), len(below)),
        )
        if common == 1:
            return "PHB"
        # Under one switch each device has its own port; above the ports the paths are the same.
        return "PIX" if max(len(above), len(below)) - common <= 1 else "PXB"
    return "NODE" if one[1] == other[1] != node_topology.UNKNOWN_NUMA_NODE else "SYS"


def _chain(real: str) -> list[str]:
    """Host bridge, bridges and the device itself; empty for a path that is not a PCI path."""
    parts = [part for part in real.split("/") if part.startswith("pci") or _ADDRESS.fullmatch(part)]
    return parts if parts and parts[0].startswith("pci") else []


def _code(text: str) -> str:
    int(text, 16)
    return text.lower()


def _gbit_s(text: str) -> int:
    match = _RATE.match(text)
    if match is None:
        raise ValueError(text)
    return int(match[1])
