"""What a node really has: NUMA nodes, CPUs, GPUs and their links, NICs, and who holds them.

An agent on the node reads it, the monitor publishes it. Whatever could not be read is named in
``unread``, never guessed: an empty field is *not known*, unless ``unread`` says nothing of it.
"""

import msgspec

from stromboli.shared.decoding import Instant
from stromboli.shared.messages.base import Message, register

UNKNOWN_NUMA_NODE = -1
"""A device whose NUMA node the machine does not tell."""
SELF = "X"
"""A GPU's way to itself, as nvidia-smi writes it."""


class HugePages(Message, frozen=True, kw_only=True):
    """Pages of one size that a NUMA node sets aside, in pages."""

    size_bytes: int
    total: int = 0
    free: int = 0


class NumaNode(Message, frozen=True, kw_only=True):
    """A NUMA node. ``cpus``: those online, as in ``0-3,8``; none: memory alone, of a GPU for one.

    ``distances``: to the machine's NUMA nodes in the order of their ids, 10 is here (ACPI SLIT).
    """

    id: int
    cpus: str = ""
    memory_bytes: int = 0
    huge_pages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()


class CpuCore(Message, frozen=True, kw_only=True):
    """A core with its hyperthreads. Known by its lowest CPU: cores' own numbers repeat."""

    cpus: str
    numa_node: int = 0
    socket: int = 0


class PciDevice(Message, frozen=True, kw_only=True):
    """A device that work may want near: ``kind`` is its class in a word (``network``)."""

    address: str
    kind: str
    numa_node: int = UNKNOWN_NUMA_NODE


class MigSlice(Message, frozen=True, kw_only=True):
    """A part of a GPU that is a device of its own. ``profile``: as in ``1g.10gb``."""

    uuid: str
    profile: str = ""
    memory_bytes: int = 0


class Gpu(Message, frozen=True, kw_only=True):
    """A GPU. ``to_switch``: its NVLinks to NVSwitches. ``problems``: why nobody should compute
    on it; none is healthy. ``fabric``: cluster and clique of its NVLink domain beyond the node."""

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
    """A network card. ``rdma``: its RDMA device (``mlx5_0``), if it has one; ``link`` its link
    layer. ``ways``: to each GPU, in nvidia-smi's names, in the order of the GPUs."""

    name: str
    pci: str = ""
    numa_node: int = UNKNOWN_NUMA_NODE
    rdma: str = ""
    link: str = ""
    is_up: bool = False
    gbit_s: int = 0
    gpu_connections: tuple[str, ...] = ()


class AllocatedDevices(Message, frozen=True, kw_only=True):
    """Devices of one resource, by the ids that their plugin gave them."""

    resource: str
    ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] = ()


class AllocatedMemory(Message, frozen=True, kw_only=True):
    """Memory of NUMA nodes set aside. ``kind``: ``memory`` or ``hugepages-2Mi`` and so on."""

    kind: str
    size_bytes: int
    numa_nodes: tuple[int, ...] = ()


class ExclusiveAllocation(Message, frozen=True, kw_only=True):
    """What a container holds alone. The kubelet's API names its pod, its state files give the
    pod's uid: either may be empty."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    cpus: str = ""
    devices: tuple[AllocatedDevices, ...] = ()
    memory: tuple[AllocatedMemory, ...] = ()


class KubeletConfiguration(Message, frozen=True, kw_only=True):
    """What the node's kubelet goes by. ``reserved``: amounts kept from pods. ``reserved_cpus``:
    which CPUs these are, where it is told. ``source``: of the holdings: ``podresources``,
    ``state files``, or empty for none."""

    cpu_policy: str = ""
    memory_policy: str = ""
    topology_policy: str = ""
    topology_scope: str = ""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    reserved: dict[str, str] = msgspec.field(default_factory=dict)
    reserved_cpus: str = ""
    source: str = ""


class ReadFailure(Message, frozen=True, kw_only=True):
    """Something that could not be read, and why."""

    what: str
    why: str


class NodeTopology(Message, frozen=True, kw_only=True):
    """One machine. ``ways`` and ``nvlinks``: GPUs x GPUs in the order of ``gpus``: the way between
    two in nvidia-smi's names, and how many NVLinks go straight from one to the other."""

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
    """A node's hardware as of ``at`` (key: the node). Said when it changes.

    ``silent_since``: its agent was last heard then, too long ago to go by this; None while it
    gives signs of life.
    """

    node: str
    at: Instant
    topology: NodeTopology
    silent_since: Instant | None = None
