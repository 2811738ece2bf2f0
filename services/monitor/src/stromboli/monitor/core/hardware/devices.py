"""PCI devices with their NUMA nodes, network cards, and the way between two of them.

The real path of a device names every bridge above it. Ways are called as nvidia-smi has them: PIX
under one switch, PXB over several, PHB over the host bridge, NODE between host bridges of one NUMA
node, SYS across sockets. Between GPUs the driver knows better; between a GPU and a network card
this is the only word there is (spec/topology 7).
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
"""PCI class -> what it is in a word; bridges and the like are nothing to be near to."""
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE = re.compile(r"(\d+)(?:\.\d+)? Gb/sec")


def address(text: str) -> str:
    """A PCI address as sysfs has it: the GPU driver writes more digits, and capitals."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:].zfill(4)}:{rest}"


def pci(reader: sysfs_tree.SysfsReader) -> tuple[node_topology.PciDevice, ...]:
    """Devices of the kinds that matter, by address; a virtual function counts with its card."""
    found = []
    for name in reader.tree.children(PCI):
        code = reader.value(f"{PCI}/{name}/class", _code, "the class of PCI devices", name)
        kind = KINDS.get((code or "")[:4]) or KINDS.get((code or "")[:6])
        if kind is None or f"{PCI}/{name}/physfn" in reader.tree.links:
            continue
        found.append(
            node_topology.PciDevice(address=name, kind=kind, numa_node=_cell(reader, name))
        )
    return tuple(found)


def _cell(reader: sysfs_tree.SysfsReader, name: str) -> int:
    """-1 is the kernel's word for not known, which is not node 0 (trap 20)."""
    found = reader.value(f"{PCI}/{name}/numa_node", int, "the NUMA node of PCI devices", name)
    return node_topology.UNKNOWN_NUMA_NODE if found is None else max(found, -1)


def nics(
    reader: sysfs_tree.SysfsReader,
    known: tuple[node_topology.PciDevice, ...],
    gpus: tuple[node_topology.Gpu, ...],
) -> tuple[node_topology.Nic, ...]:
    """Network cards by address, each with its way to every GPU. Interfaces without a PCI device
    (bridges, tunnels) are none."""
    interfaces, rdma = (_on_cards(reader, folder) for folder in ("class/net", "class/infiniband"))
    cell_of = {each.address: each.numa_node for each in known}
    found = []
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
        found.append(
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
    return tuple(found)


def _on_cards(reader: sysfs_tree.SysfsReader, folder: str) -> dict[str, str]:
    """PCI address -> the first interface on it."""
    found: dict[str, str] = {}
    for name in reader.tree.children(folder):
        real = reader.tree.links.get(f"{folder}/{name}/device", "")
        addresses = _ADDRESS.findall(real)
        if addresses:
            found.setdefault(addresses[-1], name)
    return found


def _port(reader: sysfs_tree.SysfsReader, device: str) -> tuple[str, bool, int]:
    """Link layer, whether it is up, and Gbit/s of an RDMA device: of its first port that is up."""
    ports = []
    folder = f"class/infiniband/{device}/ports"
    for port in reader.tree.children(folder):
        layer = reader.tree.texts.get(f"{folder}/{port}/link_layer", "")
        state = reader.value(f"{folder}/{port}/state", str, "the state of RDMA ports", device)
        rate = reader.value(f"{folder}/{port}/rate", _gbit_s, "the rate of RDMA ports", device)
        ports.append((layer, "ACTIVE" in (state or ""), rate or 0))
    return next((port for port in ports if port[1]), ports[0] if ports else ("", False, 0))


def _ethernet(reader: sysfs_tree.SysfsReader, name: str) -> tuple[str, bool, int]:
    """The kernel tells the speed of links that are up only: else its file cannot be read."""
    is_up = reader.tree.texts.get(f"class/net/{name}/operstate", "") == "up"
    speed = reader.tree.texts.get(f"class/net/{name}/speed", "")
    return "Ethernet", is_up, int(speed) // 1000 if is_up and speed.isdecimal() else 0


def connection_type(
    found: sysfs_tree.SysfsTree, one: tuple[str, int], other: tuple[str, int]
) -> str:
    """The way between two devices, each an address and a NUMA node."""
    first, second = (_chain(found.links.get(f"{PCI}/{device}", "")) for device, _ in (one, other))
    if first and second and first[0] == second[0]:
        above, below = first[:-1], second[:-1]
        common = next(
            (at for at, pair in enumerate(zip(above, below, strict=False)) if pair[0] != pair[1]),
            min(len(above), len(below)),
        )
        if common == 1:
            return "PHB"
        # Under one switch each has its own port above it and nothing else up to what they share.
        return "PIX" if max(len(above), len(below)) - common <= 1 else "PXB"
    return "NODE" if one[1] == other[1] != node_topology.UNKNOWN_NUMA_NODE else "SYS"


def _chain(real: str) -> list[str]:
    """Host bridge, bridges and the device itself; empty for what is no PCI path."""
    parts = [part for part in real.split("/") if part.startswith("pci") or _ADDRESS.fullmatch(part)]
    return parts if parts and parts[0].startswith("pci") else []


def _code(text: str) -> str:
    int(text, 16)
    return text.lower()


def _gbit_s(text: str) -> int:
    found = _RATE.match(text)
    if found is None:
        raise ValueError(text)
    return int(found[1])
