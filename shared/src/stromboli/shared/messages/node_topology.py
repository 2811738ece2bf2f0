"""The observed hardware of a node: NUMA nodes, CPUs, GPUs and their interconnect, NICs, and
exclusive allocations.

An agent on the node reads the hardware, and the monitor publishes it. Values that could not be read
are listed in ``read_failures``, never guessed: an empty field whose reading failed is *unknown*.
"""

import msgspec

from stromboli.shared.decoding import Instant
from stromboli.shared.messages.base import Message, register

UNKNOWN_NUMA_NODE = -1
"""The value for a device whose NUMA node the machine does not report."""
SELF = "X"
"""nvidia-smi's name for the connection of a GPU to itself."""


class HugePages(Message, frozen=True, kw_only=True):
    """Huge pages of one size on a NUMA node; the count is in pages."""

    size_bytes: int
    total: int = 0
    free: int = 0


class NumaNode(Message, frozen=True, kw_only=True):
    """A NUMA node. ``cpus``: its online CPUs, as in ``0-3,8``; empty for a node with memory only,
    such as a GPU's.

    ``allocatable_memory_bytes``: the part of ``memory_bytes`` that the kubelet's memory manager
    assigns to pods; None if it assigns none by NUMA node, or if the part is unknown.
    ``distances``: to the machine's NUMA nodes in the order of their ids; 10 is local (ACPI SLIT).
    """

    id: int
    cpus: str = ""
    memory_bytes: int = 0
    allocatable_memory_bytes: int | None = None
    huge_pages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()


class CpuCore(Message, frozen=True, kw_only=True):
    """A core with its hyperthreads. It is identified by its lowest CPU, because core numbers are
    unique only within a socket.
    """

    cpus: str
    numa_node: int = 0
    socket: int = 0


class PciDevice(Message, frozen=True, kw_only=True):
    """A PCI device whose location matters to workloads. ``kind``: its class, such as
    ``network``."""

    address: str
    kind: str
    numa_node: int = UNKNOWN_NUMA_NODE


class MigSlice(Message, frozen=True, kw_only=True):
    """A MIG instance of a GPU. ``profile``: as in ``1g.10gb``."""

    uuid: str
    profile: str = ""
    memory_bytes: int = 0


class Gpu(Message, frozen=True, kw_only=True):
    """A GPU. ``nvswitch_links``: its NVLinks to NVSwitches. ``problems``: why the GPU must not be
    used; empty means healthy. ``fabric``: cluster and clique of its NVLink domain beyond the node.
    """

    index: int
    uuid: str
    model: str = ""
    memory_bytes: int = 0
    pci: str = ""
    numa_node: int = UNKNOWN_NUMA_NODE
    nvswitch_links: int = 0
    mig: bool = False
    slices: tuple[MigSlice, ...] = ()
    fabric: str = ""
    problems: tuple[str, ...] = ()


class Nic(Message, frozen=True, kw_only=True):
    """A network interface. ``rdma``: its RDMA device (``mlx5_0``), if it has one; ``link``: its
    link layer. ``gpu_connections``: the connection to each GPU, in nvidia-smi's names, in the
    order of the GPUs.
    """

    name: str
    pci: str = ""
    numa_node: int = UNKNOWN_NUMA_NODE
    rdma: str = ""
    link: str = ""
    is_up: bool = False
    gbit_s: int = 0
    gpu_connections: tuple[str, ...] = ()


class AllocatedDevices(Message, frozen=True, kw_only=True):
    """Devices of one resource, by the ids of their device plugin."""

    resource: str
    ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] = ()


class AllocatedMemory(Message, frozen=True, kw_only=True):
    """Reserved memory of NUMA nodes. ``kind``: ``memory``, ``hugepages-2Mi`` and so on."""

    kind: str
    size_bytes: int
    numa_nodes: tuple[int, ...] = ()


class ExclusiveAllocation(Message, frozen=True, kw_only=True):
    """The exclusive resources of a container. The kubelet's API gives the pod's name, its state
    files give the pod's uid: either may be empty.
    """

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    cpus: str = ""
    devices: tuple[AllocatedDevices, ...] = ()
    memory: tuple[AllocatedMemory, ...] = ()


class KubeletConfiguration(Message, frozen=True, kw_only=True):
    """The relevant configuration of the node's kubelet. ``reserved``: amounts that pods cannot use.
    ``reserved_cpus``: the reserved CPUs, if configured. ``source``: where the allocations were
    read: ``podresources``, ``state files``, or empty if nowhere.
    """

    cpu_policy: str = ""
    memory_policy: str = ""
    topology_policy: str = ""
    topology_scope: str = ""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    reserved: dict[str, str] = msgspec.field(default_factory=dict)
    reserved_cpus: str = ""
    source: str = ""


class ReadFailure(Message, frozen=True, kw_only=True):
    """A value that could not be read, and why."""

    what: str
    why: str


class NodeTopology(Message, frozen=True, kw_only=True):
    """The hardware of one node. ``gpu_connections`` and ``nvlinks``: GPUs x GPUs in the order of
    ``gpus``: the connection of two GPUs in nvidia-smi's names, and the number of direct NVLinks.
    """

    numa_nodes: tuple[NumaNode, ...] = ()
    cores: tuple[CpuCore, ...] = ()
    offline_cpus: str = ""
    pci: tuple[PciDevice, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpu_connections: tuple[tuple[str, ...], ...] = ()
    nvlinks: tuple[tuple[int, ...], ...] = ()
    nics: tuple[Nic, ...] = ()
    kubelet: KubeletConfiguration = KubeletConfiguration()
    exclusive_allocations: tuple[ExclusiveAllocation, ...] = ()
    read_failures: tuple[ReadFailure, ...] = ()


@register("stromboli.cluster.topology_observed.v1")
class TopologyObserved(Message, frozen=True, kw_only=True):
    """A node's hardware as of ``at`` (key: the node). Published when it changes.

    ``silent_since``: the time of its agent's last report, if that is too old to rely on; None while
    the agent reports.
    """

    node: str
    at: Instant
    topology: NodeTopology
    silent_since: Instant | None = None
