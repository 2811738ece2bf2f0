"""NUMA nodes and cores as reported by the kernel.

Core numbers repeat across sockets, so a core is identified by its lowest CPU.
"""

import re

from stromboli.monitor.core.hardware import sysfs_tree
from stromboli.shared.formats import cpu_lists
from stromboli.shared.messages import node_topology

CPUS = "devices/system/cpu"
CELLS = "devices/system/node"
_TOTAL = re.compile(r"MemTotal:\s*(\d+) kB")
_PAGES = re.compile(r"hugepages-(\d+)kB$")


def online(reader: sysfs_tree.SysfsReader) -> frozenset[int]:
    """The online CPUs; if no file lists them, those with a topology."""
    cpus = reader.value(f"{CPUS}/online", cpu_lists.parsed, "CPUs online")
    if cpus:
        return cpus
    names = reader.tree.children(CPUS)
    return frozenset(int(name[3:]) for name in names if name[3:].isdecimal())


def offline(reader: sysfs_tree.SysfsReader) -> str:
    """The offline CPUs in the kernel's list format (``2-3,7``); empty if there are none."""
    cpus = reader.value(f"{CPUS}/offline", cpu_lists.parsed, "CPUs offline", quiet=True)
    return cpu_lists.written(cpus or ())


def numa_nodes(
    reader: sysfs_tree.SysfsReader, running: frozenset[int]
) -> tuple[node_topology.NumaNode, ...]:
    """The NUMA nodes by id. A machine that reports none is one node."""
    ids = reader.value(f"{CELLS}/online", cpu_lists.parsed, "NUMA nodes online", quiet=True)
    if ids is None:
        names = reader.tree.children(CELLS)
        ids = frozenset(int(name[4:]) for name in names if name[4:].isdecimal())
    if not ids:
        reader.record_missing("NUMA nodes", "the machine reports none: all CPUs count as node 0")
        return (node_topology.NumaNode(id=0, cpus=cpu_lists.written(running)),)
    return tuple(_cell(reader, number, running) for number in sorted(ids))


def _cell(
    reader: sysfs_tree.SysfsReader, number: int, running: frozenset[int]
) -> node_topology.NumaNode:
    folder, name = f"{CELLS}/node{number}", f"node {number}"
    own = reader.value(f"{folder}/cpulist", cpu_lists.parsed, "the CPUs of NUMA nodes", name)
    memory = reader.value(f"{folder}/meminfo", _memory_bytes, "the memory of NUMA nodes", name)
    distances = reader.value(
        f"{folder}/distance", _numbers, "the distances of NUMA nodes", name, quiet=True
    )
    return node_topology.NumaNode(
        id=number,
        cpus=cpu_lists.written((own or frozenset()) & running),
        memory_bytes=memory or 0,
        huge_pages=tuple(_huge_pages(reader, f"{folder}/hugepages", name)),
        distances=distances or (),
    )


def _huge_pages(
    reader: sysfs_tree.SysfsReader, folder: str, name: str
) -> list[node_topology.HugePages]:
    huge_pages = []
    for kind in reader.tree.children(folder):
        size = _PAGES.match(kind)
        if size is None:
            continue
        total, free = (
            reader.value(f"{folder}/{kind}/{file}", _count, "huge pages", name)
            for file in ("nr_hugepages", "free_hugepages")
        )
        size_bytes = int(size[1]) * 1024
        if total:
            pages = node_topology.HugePages(size_bytes=size_bytes, total=total, free=free or 0)
            huge_pages.append(pages)
    return sorted(huge_pages, key=lambda each: each.size_bytes)


def cores(
    reader: sysfs_tree.SysfsReader,
    running: frozenset[int],
    known: tuple[node_topology.NumaNode, ...],
) -> tuple[node_topology.CpuCore, ...]:
    """The cores with at least one online CPU, in the order of their lowest CPU."""
    cell_of = {cpu: numa_node.id for numa_node in known for cpu in cpu_lists.parsed(numa_node.cpus)}
    cpu_cores: list[node_topology.CpuCore] = []
    placed: set[int] = set()
    for cpu in sorted(running):
        if cpu in placed:
            continue
        folder = f"{CPUS}/cpu{cpu}/topology"
        threads = reader.value(
            f"{folder}/thread_siblings_list", cpu_lists.parsed, "hyperthreads", f"CPU {cpu}"
        )
        # A list that overlaps another core's, or lacks its own CPU, is invalid and ignored.
        own = (threads or frozenset()) & running - placed
        if cpu not in own:
            if threads is not None:
                reader.record_missing("hyperthreads", "the list lacks the CPU itself", f"CPU {cpu}")
            own = frozenset({cpu})
        placed |= own
        if cpu not in cell_of:
            reader.record_missing("the NUMA node", "no node lists it", f"CPU {cpu}")
        cpu_cores.append(
            node_topology.CpuCore(
                cpus=cpu_lists.written(own),
                numa_node=cell_of.get(cpu, node_topology.UNKNOWN_NUMA_NODE),
                socket=_socket(reader, folder, cpu),
            )
        )
    return tuple(cpu_cores)


def _socket(reader: sysfs_tree.SysfsReader, folder: str, cpu: int) -> int:
    """The socket. Virtual machines and some ARM boards report -1 for their only socket."""
    socket_id = reader.value(f"{folder}/physical_package_id", int, "the socket", f"CPU {cpu}")
    return max(socket_id or 0, 0)


def _memory_bytes(text: str) -> int:
    match = _TOTAL.search(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * 1024


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split())


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count
