"""nodeinfo.volcano.sh/v1alpha1 Numatopology: a node's CPUs, their location and their exclusive
owners.

Writers omit zeros: an absent number is 0.
"""

from stromboli.shared.api.core import Quantity
from stromboli.shared.api.meta import Int64, Object, Part


class CpuPlace(Part, frozen=True, kw_only=True):
    """The location of a CPU. ``core`` is numbered per socket or across all sockets."""

    numa: Int64 = 0
    socket: Int64 = 0
    core: Int64 = 0


class NumaResource(Part, frozen=True, kw_only=True):
    """``allocatable``: CPUs that no pod holds exclusively, as in ``0-3,8``; includes reserved
    ones.
    """

    allocatable: str = ""
    capacity: Int64 = 0


class ContainerAllocation(Part, frozen=True, kw_only=True):
    """The exclusive resources of one container."""

    name: str = ""
    allocations: dict[str, str] | None = None


class PodAllocation(Part, frozen=True, kw_only=True):
    """A pod with exclusive CPUs. Some writers set only its uid, others only its name."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    container_allocations: tuple[ContainerAllocation, ...] = ()


class NumatopologySpec(Part, frozen=True, kw_only=True):
    """``policies``: the kubelet's CPUManagerPolicy and TopologyManagerPolicy."""

    policies: dict[str, str] | None = None
    res_reserved: dict[str, Quantity] | None = None
    numares: dict[str, NumaResource] | None = None
    cpu_detail: dict[str, CpuPlace] | None = None
    pod_allocations: tuple[PodAllocation, ...] = ()


class Numatopology(Object, frozen=True, kw_only=True):
    """The CPUs of one node. The object has the node's name and is cluster scoped."""

    spec: NumatopologySpec = NumatopologySpec()
