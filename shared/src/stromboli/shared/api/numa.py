"""nodeinfo.volcano.sh/v1alpha1 Numatopology: a node's CPUs, where they are and who holds them.

Writers leave out zeros: an absent number is 0.
"""

from stromboli.shared.api.core import Quantity
from stromboli.shared.api.meta import Int64, Object, Part


class CpuPlace(Part, frozen=True, kw_only=True):
    """Where a CPU is. ``core`` counts within its socket, or through all of them."""

    numa: Int64 = 0
    socket: Int64 = 0
    core: Int64 = 0


class NumaResource(Part, frozen=True, kw_only=True):
    """``allocatable``: CPUs that no pod holds alone, as in ``0-3,8``; reserved ones included."""

    allocatable: str = ""
    capacity: Int64 = 0


class ContainerAllocation(Part, frozen=True, kw_only=True):
    """What one container holds alone, by resource."""

    name: str = ""
    allocations: dict[str, str] | None = None


class PodAllocation(Part, frozen=True, kw_only=True):
    """A pod that holds CPUs alone. Some writers know its uid only, others its name only."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    container_allocations: tuple[ContainerAllocation, ...] = ()


class NumatopologySpec(Part, frozen=True, kw_only=True):
    """``policies``: CPUManagerPolicy and TopologyManagerPolicy of the kubelet."""

    policies: dict[str, str] | None = None
    res_reserved: dict[str, Quantity] | None = None
    numares: dict[str, NumaResource] | None = None
    cpu_detail: dict[str, CpuPlace] | None = None
    pod_allocations: tuple[PodAllocation, ...] = ()


class Numatopology(Object, frozen=True, kw_only=True):
    """One node's CPUs; it is named after its node, cluster scoped."""

    spec: NumatopologySpec = NumatopologySpec()
