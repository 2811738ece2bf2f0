"""Machines as their agents report them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from stromboli.shared.api import core
from stromboli.shared.messages import node_topology as seen
from stromboli.testkit import builders

GPU = "nvidia.com/gpu"
CUBE_MESH = {  # The eight V100 of a DGX-1V: NVLinks between each two, quads 0-3 and 4-7.
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2,
    (1, 2): 2, (1, 3): 1, (1, 5): 2,
    (2, 3): 2, (2, 6): 1,
    (3, 7): 1,
    (4, 5): 1, (4, 6): 1, (4, 7): 2,
    (5, 6): 2, (5, 7): 1,
    (6, 7): 2,
}  # fmt: skip
GIB = 2**30


def uuid(gpu: int, node: str = "n1") -> str:
    return f"GPU-{node}-{gpu}"


def holding(pod: str, *gpus: int, node: str = "n1", cpus: str = "") -> seen.ExclusiveAllocation:
    devices = seen.AllocatedDevices(resource=GPU, ids=tuple(uuid(at, node) for at in gpus))
    return seen.ExclusiveAllocation(
        namespace="default",
        pod=pod,
        container="main",
        cpus=cpus,
        devices=(devices,) if gpus else (),
    )


def observed(
    node: str = "n1",
    *,
    gpus: int = 8,
    numa_nodes: int = 2,
    cores: int = 4,
    nvlinks: Mapping[tuple[int, int], int] | None = None,
    to_switch: int = 0,
    near: str = "PXB",
    nics: int = 0,
    sick: Sequence[int] = (),
    slices: Mapping[int, Sequence[str]] | None = None,
    exclusive_allocations: Sequence[seen.ExclusiveAllocation] = (),
    pod_memory: int | None = None,
    kubelet: seen.KubeletConfiguration = seen.KubeletConfiguration(),  # noqa: B008 - frozen
    silent_since: datetime | None = None,
) -> seen.TopologyObserved:
    """``cells`` NUMA nodes of ``cores`` cores without threads, 16 GiB each; GPUs and network cards
    are distributed over them in order. ``slices``: GPU -> profiles into which it is divided.
    ``pod_memory``: bytes of each NUMA node that are allocatable.
    """

    def cell_of(at: int, count: int) -> int:
        return at * numa_nodes // count

    found = [[0] * gpus for _ in range(gpus)]
    for (one, other), count in (nvlinks or {}).items():
        found[one][other] = found[other][one] = count
    divided = slices or {}
    return seen.TopologyObserved(
        node=node,
        at=builders.NOON,
        silent_since=silent_since,
        topology=seen.NodeTopology(
            numa_nodes=tuple(
                seen.NumaNode(
                    id=numa_node,
                    cpus=f"{numa_node * cores}-{(numa_node + 1) * cores - 1}",
                    memory_bytes=16 * GIB,
                    allocatable_memory_bytes=pod_memory,
                )
                for numa_node in range(numa_nodes)
            ),
            cores=tuple(
                seen.CpuCore(cpus=str(cpu), numa_node=cpu // cores, socket=cpu // cores)
                for cpu in range(numa_nodes * cores)
            ),
            gpus=tuple(
                seen.Gpu(
                    index=at,
                    uuid=uuid(at, node),
                    numa_node=cell_of(at, gpus),
                    nvswitch_links=to_switch,
                    mig=at in divided,
                    slices=tuple(
                        seen.MigSlice(uuid=f"MIG-{node}-{at}-{part}", profile=profile)
                        for part, profile in enumerate(divided.get(at, ()))
                    ),
                    problems=("XID 79",) if at in sick else (),
                )
                for at in range(gpus)
            ),
            gpu_connections=tuple(
                tuple(
                    near if cell_of(one, gpus) == cell_of(other, gpus) else "SYS"
                    for other in range(gpus)
                )
                for one in range(gpus)
            ),
            nvlinks=tuple(map(tuple, found)),
            nics=tuple(
                seen.Nic(
                    name=f"ib{at}",
                    rdma=f"mlx5_{at}",
                    numa_node=cell_of(at, nics),
                    is_up=True,
                    gpu_connections=tuple(
                        "PIX" if gpu * nics // gpus == at else "SYS" for gpu in range(gpus)
                    ),
                )
                for at in range(nics)
            ),
            kubelet=kubelet,
            exclusive_allocations=tuple(exclusive_allocations),
        ),
    )


def aligning(policy: str, **more: Any) -> seen.KubeletConfiguration:
    """A kubelet that aligns CPUs and devices."""
    return seen.KubeletConfiguration(cpu_policy="static", topology_policy=policy, **more)


def node(name: str = "n1", gpus: int = 8, **extra: int) -> core.Node:
    """``extra``: further resources, with ``__`` for the slash."""
    named = {key.replace("__", "/"): count for key, count in extra.items()}
    return builders.make_node(name, cpu=64, memory="256Gi", extra={GPU: gpus, **named})


def container(name: str = "main", gpus: int = 0, **limits: core.Quantity) -> core.Container:
    """``limits``: further ones, with ``__`` for the slash. With cpu and memory the container is
    Guaranteed.
    """
    named: dict[str, core.Quantity] = {
        key.replace("__", "/"): value for key, value in limits.items()
    }
    if gpus:
        named[GPU] = gpus
    return core.Container(
        name=name, resources=core.ResourceRequirements(limits=named, requests=dict(named))
    )
