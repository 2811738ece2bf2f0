"""Recordings of machines: a folder with the structure of ``/sys`` and a file with the GPU driver's
responses, generated from a short description.

The layouts are those of real servers as documented by their vendors; device numbers are invented.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

HOST_GIB = 64


class PciCard(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI card. ``above``: its host bridge and bridges from the top. ``net`` and ``rdma``: its
    interfaces, for a network card."""

    address: str
    above: tuple[str, ...]
    code: str = "0x030200"
    cell: int = 0
    net: str = ""
    rdma: str = ""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a machine. ``cores``, ``memory_mib``: of each NUMA node. CPUs are
    numbered as by Linux on Intel: the first threads of all cores, then the second ones.
    ``nvlinks``: (one GPU, another) -> links in this direction. ``nvswitch_links``: links of each
    GPU to NVSwitches. ``ancestors``: NVML's levels, GPUs x GPUs."""

    sockets: int = 1
    cells_per_socket: int = 1
    cores: int = 4
    threads: int = 2
    memory_mib: int = HOST_GIB * 1024
    offline: frozenset[int] = frozenset()
    huge_pages_2mi: int = 0
    gpus: tuple[PciCard, ...] = ()
    nics: tuple[PciCard, ...] = ()
    others: tuple[PciCard, ...] = ()
    nvlinks: Mapping[tuple[int, int], int] = {}
    nvswitch_links: int = 0
    ancestors: tuple[tuple[int, ...], ...] = ()
    model: str = "NVIDIA H100 80GB HBM3"

    @property
    def cells(self) -> int:
        """The number of NUMA nodes."""
        return self.sockets * self.cells_per_socket

    def cpus_of(self, cell: int) -> list[int]:
        """All CPUs of a NUMA node, offline ones included."""
        total = self.cells * self.cores
        first = range(cell * self.cores, (cell + 1) * self.cores)
        return [thread * total + core for thread in range(self.threads) for core in first]


def write(machine: Machine, folder: Path) -> tuple[Path, Path]:
    """Write the ``/sys`` tree and the GPU driver's responses of a machine below a folder; return
    both paths."""
    sys, answers = folder / "sys", folder / "nvml.json"
    _processors(machine, sys / "devices/system")
    for card in (*machine.gpus, *machine.nics, *machine.others):
        _card(card, sys)
    answers.write_text(json.dumps(driver_answers(machine)))
    return sys, answers


def put(path: Path, text: object) -> None:
    """Write a file; create its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def _listed(cpus: Sequence[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def _processors(machine: Machine, system: Path) -> None:
    everything = [cpu for cell in range(machine.cells) for cpu in machine.cpus_of(cell)]
    running = [cpu for cpu in everything if cpu not in machine.offline]
    put(system / "cpu/online", _listed(running))
    put(system / "cpu/offline", _listed(sorted(machine.offline)))
    put(system / "node/online", _listed(range(machine.cells)))
    total = machine.cells * machine.cores
    for cell in range(machine.cells):
        socket = cell // machine.cells_per_socket
        own = [cpu for cpu in machine.cpus_of(cell) if cpu in running]
        node = system / f"node/node{cell}"
        put(node / "cpulist", _listed(own))
        put(node / "distance", " ".join(_distances(machine, cell)))
        put(
            node / "meminfo",
            f"Node {cell} MemTotal:  {machine.memory_mib * 1024} kB\nNode {cell} MemFree: 7 kB",
        )
        pages = node / "hugepages/hugepages-2048kB"
        put(pages / "nr_hugepages", machine.huge_pages_2mi)
        put(pages / "free_hugepages", machine.huge_pages_2mi)
        for cpu in own:
            siblings = [cpu % total + thread * total for thread in range(machine.threads)]
            folder = system / f"cpu/cpu{cpu}/topology"
            put(folder / "physical_package_id", socket)
            _link(node / f"cpu{cpu}", Path(f"../../cpu/cpu{cpu}"))
            put(folder / "thread_siblings_list", _listed([it for it in siblings if it in running]))


def _distances(machine: Machine, cell: int) -> list[str]:
    near = range(
        cell // machine.cells_per_socket * machine.cells_per_socket,
        (cell // machine.cells_per_socket + 1) * machine.cells_per_socket,
    )
    return [
        "10" if other == cell else "12" if other in near else "21" for other in range(machine.cells)
    ]


def _card(card: PciCard, sys: Path) -> None:
    real = sys.joinpath("devices", *card.above, card.address)
    put(real / "class", card.code)
    put(real / "numa_node", card.cell)
    _link(sys / "bus/pci/devices" / card.address, real)
    if card.net:
        put(real / "net" / card.net / "operstate", "up")
        put(real / "net" / card.net / "speed", 100_000)
        _link(real / "net" / card.net / "device", real)
        _link(sys / "class/net" / card.net, real / "net" / card.net)
    if card.rdma:
        port = real / "infiniband" / card.rdma / "ports/1"
        put(port / "state", "4: ACTIVE")
        put(port / "rate", "400 Gb/sec (4X NDR)")
        put(port / "link_layer", "InfiniBand")
        _link(real / "infiniband" / card.rdma / "device", real)
        _link(sys / "class/infiniband" / card.rdma, real / "infiniband" / card.rdma)


def _link(path: Path, to: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)


def driver_answers(machine: Machine) -> dict[str, Any]:
    """NVML's responses for the machine's GPUs."""
    if not machine.gpus:
        return {"absent": "no NVIDIA driver is loaded"}
    return {
        "gpus": [
            {
                "index": at,
                "uuid": f"GPU-{at}",
                "model": machine.model,
                "pci": f"0000{card.address.upper()}",
                "memoryBytes": 80 * 2**30,
                "links": _links(machine, at),
            }
            for at, card in enumerate(machine.gpus)
        ],
        "ancestors": machine.ancestors,
    }


def _links(machine: Machine, at: int) -> list[dict[str, str]]:
    direct = [
        {"remote": "gpu", "pci": f"0000{machine.gpus[other].address.upper()}"}
        for (one, other), count in sorted(machine.nvlinks.items())
        for _ in range(count)
        if one == at
    ]
    return direct + [{"remote": "switch", "pci": "00000000:05:00.0"}] * machine.nvswitch_links


# --- layouts --------------------------------------------------------------------------------


def symmetric_links(pairs: Mapping[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """The links of pairs in both directions, with equal numbers."""
    return {**pairs, **{(other, one): count for (one, other), count in pairs.items()}}


def plain_server(cells: int) -> Machine:
    """A server with this number of NUMA nodes and no GPUs: two sockets if it has two or more."""
    sockets = min(cells, 2)
    return Machine(sockets=sockets, cells_per_socket=cells // sockets, huge_pages_2mi=512)


def eight_gpus_switched() -> Machine:
    """An HGX board: 8 GPUs on NVSwitches, four on each socket, each with an InfiniBand card under
    the same PCIe switch."""
    gpus, nics = [], []
    for at in range(8):
        cell, bus = at // 4, 0x10 + 0x10 * at
        above = (
            f"pci0000:{bus:02x}",
            f"0000:{bus:02x}:01.0",
            f"0000:{bus + 1:02x}:00.0",
        )
        port = f"0000:{bus + 2:02x}:00.0", f"0000:{bus + 2:02x}:01.0"
        gpus.append(PciCard(address=f"0000:{bus + 3:02x}:00.0", above=(*above, port[0]), cell=cell))
        nics.append(
            PciCard(
                address=f"0000:{bus + 4:02x}:00.0",
                above=(*above, port[1]),
                code="0x020700",
                cell=cell,
                net=f"ib{at}",
                rdma=f"mlx5_{at}",
            )
        )
    ancestors = tuple(
        tuple(0 if one == other else 40 if one // 4 == other // 4 else 50 for other in range(8))
        for one in range(8)
    )
    return Machine(
        sockets=2,
        cores=16,
        gpus=tuple(gpus),
        nics=tuple(nics),
        nvswitch_links=18,
        ancestors=ancestors,
        huge_pages_2mi=1024,
    )


def four_gpus_pcie() -> Machine:
    """A PCIe server: two cards under one switch on each socket, no NVLink, one network card."""
    gpus = []
    for at in range(4):
        cell, bus = at // 2, 0x20 + 0x40 * (at // 2)
        above = (
            f"pci0000:{bus:02x}",
            f"0000:{bus:02x}:01.0",
            f"0000:{bus + 1:02x}:00.0",
            f"0000:{bus + 2:02x}:0{at % 2}.0",
        )
        gpus.append(PciCard(address=f"0000:{bus + 3 + at % 2:02x}:00.0", above=above, cell=cell))
    nic = PciCard(
        address="0000:31:00.0",
        above=("pci0000:30", "0000:30:02.0"),
        code="0x020000",
        net="eth0",
    )
    ancestors = tuple(
        tuple(0 if one == other else 10 if one // 2 == other // 2 else 50 for other in range(4))
        for one in range(4)
    )
    return Machine(
        sockets=2,
        cores=8,
        gpus=tuple(gpus),
        nics=(nic,),
        ancestors=ancestors,
        model="NVIDIA L40S",
    )


def asymmetric_links() -> Machine:
    """Four cards: 0 reports one link less to 1 than 1 to 0, and 3 reports none to 2."""
    links = symmetric_links({(0, 1): 4, (2, 3): 4})
    links[0, 1] = 3
    del links[3, 2]
    return msgspec.structs.replace(four_gpus_pcie(), nvlinks=links)


def with_offline_cpus() -> Machine:
    """One thread of a core and one whole core are offline."""
    return Machine(sockets=2, cores=4, offline=frozenset({9, 3, 11}))
