"""GPUs that several pods share, and the choice of GPUs for a pod.

A GPU has memory, 100 percent of compute and a number of users. A pod requests, per container, a
number of GPUs with a part of both on each. All functions depend on the GPUs of one node alone.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stromboli.scheduler.core.plugins.deviceshare import mig

ALL_CORES = 100
"""The compute of a GPU, in percent."""
UNLIMITED = 2**31
"""The number of users of a GPU without a limit."""
MIG = "mig"


class ContainerRequest(NamedTuple):
    """The request of a container: ``number`` GPUs, on each ``percent`` of the memory or, if that is
    0, ``memory_mib``, and ``cores`` percent of the compute; 100 means the GPU exclusively."""

    number: int
    memory_mib: int = 0
    percent: int = 0
    cores: int = 0

    def memory_on(self, gpu: "Gpu") -> int:
        """Return the requested MiB on this GPU."""
        return gpu.memory_mib * self.percent // 100 if self.percent else self.memory_mib


class GpuRequest(NamedTuple):
    """The GPU request of a pod; equal requests get equal allocations. A container without GPUs
    requests 0.

    ``mode``: empty for any. ``types`` and ``not_types``: upper-case parts of a GPU's type. ``ids``
    and ``not_ids``: UUIDs. Empty ``types`` or ``ids`` allow any. ``exclusive_job``: the job whose
    pods share no GPU, empty if they may. ``rules``: no two pods with a common rule share a GPU.
    """

    containers: tuple[ContainerRequest, ...]
    mode: str = ""
    types: tuple[str, ...] = ()
    not_types: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    not_ids: tuple[str, ...] = ()
    exclusive_job: str = ""
    rules: frozenset[int] = frozenset()

    def allows(self, gpu: "Gpu") -> bool:
        """Return whether the pod may use the GPU at all."""
        kind = gpu.kind.upper()
        return (
            gpu.is_healthy
            and self.mode in ("", gpu.mode)
            and (not self.ids or gpu.uuid in self.ids)
            and gpu.uuid not in self.not_ids
            and (not self.types or any(part in kind for part in self.types))
            and not any(part in kind for part in self.not_types)
        )


class GpuAllocation(msgspec.Struct, frozen=True):
    """A container's share of a GPU. ``instance``: on a MIG GPU, ``group-position``."""

    uuid: str
    memory_mib: int
    cores: int
    instance: str = ""


class Owner(NamedTuple):
    """A pod with allocations. ``job``: empty if there is none."""

    uid: str
    job: str
    rules: frozenset[int] = frozenset()


PodAllocation = tuple[tuple[GpuAllocation, ...], ...]
"""Allocations per container."""


class Gpu(msgspec.Struct, eq=False):
    """A GPU and its users. ``place``: its index on the node."""

    uuid: str
    place: int
    max_users: int
    memory_mib: int
    kind: str = ""
    mode: str = ""
    is_healthy: bool = True
    layouts: tuple[mig.Geometry, ...] = ()
    """The geometries that it supports, if its mode is ``mig``."""
    users: tuple[tuple[Owner, GpuAllocation], ...] = ()
    used_mib: int = 0
    used_cores: int = 0

    @property
    def state(self) -> tuple[Hashable, ...]:
        """The state for comparisons: GPUs with equal states are interchangeable for a request,
        unless it names GPUs or excludes other users."""
        kind = (self.kind, self.mode, self.is_healthy, self.max_users, self.memory_mib)
        instances = tuple(sorted(share.instance for _, share in self.users))
        return (*kind, self.used_mib, self.used_cores, len(self.users), instances)

    def put(self, owner: Owner, share: GpuAllocation) -> None:
        """Add an allocation of the owner."""
        self.users += ((owner, share),)
        self._recount()

    def drop(self, uid: str) -> None:
        """Remove all allocations of the pod."""
        self.users = tuple(user for user in self.users if user[0].uid != uid)
        self._recount()

    def _recount(self) -> None:
        self.used_mib = sum(share.memory_mib for _, share in self.users)
        self.used_cores = sum(share.cores for _, share in self.users)

    def share(
        self, demand: ContainerRequest, gpu_request: GpuRequest, owner: Owner
    ) -> GpuAllocation | None:
        """Return the share of the GPU for the container, None if too little is free."""
        memory = demand.memory_on(self)
        blocked = (
            len(self.users) >= self.max_users
            or (demand.cores == ALL_CORES and self.users)
            or self.used_cores >= ALL_CORES
            or self.used_cores + demand.cores > ALL_CORES
            or self._conflicts_with_users(gpu_request, owner)
        )
        if blocked:
            return None
        if self.mode != MIG:
            fits = self.used_mib + memory <= self.memory_mib
            return GpuAllocation(self.uuid, memory, demand.cores) if fits else None
        instance_names = [share.instance for _, share in self.users]
        instance = mig.smallest_free_instance(self.layouts, instance_names, memory)
        if instance is None:
            return None
        return GpuAllocation(self.uuid, instance.memory_mib, demand.cores, instance.name)

    def _conflicts_with_users(self, gpu_request: GpuRequest, owner: Owner) -> bool:
        return any(
            other.uid != owner.uid
            and (
                (gpu_request.exclusive_job and other.job == gpu_request.exclusive_job)
                or gpu_request.rules & other.rules
            )
            for other, _ in self.users
        )


OrderGpus = Callable[[Sequence[Gpu], ContainerRequest], Iterable[Gpu]]
"""Orders the allowed GPUs for a container. It sees their current state."""
ScoreAllocation = Callable[[Gpu, GpuAllocation], float]
"""Scores an allocation after it is made."""


class Policy(NamedTuple):
    """How GPUs are chosen, and how a choice scores the node."""

    order: OrderGpus
    link_score: ScoreAllocation


def _highest_index_first(gpus: Sequence[Gpu], _: ContainerRequest) -> Iterable[Gpu]:
    return sorted(gpus, key=lambda gpu: -gpu.place)


def _lowest_index_first(gpus: Sequence[Gpu], _: ContainerRequest) -> Iterable[Gpu]:
    return sorted(gpus, key=lambda gpu: gpu.place)


def _fullest_first(gpus: Sequence[Gpu], _: ContainerRequest) -> Iterable[Gpu]:
    return sorted(gpus, key=lambda gpu: (-gpu.used_mib, gpu.place))


def _least_used_first(gpus: Sequence[Gpu], _: ContainerRequest) -> Iterable[Gpu]:
    return sorted(gpus, key=lambda gpu: (len(gpu.users), gpu.place))


def _zero(_: Gpu, __: GpuAllocation) -> float:
    return 0.0


def _fullness(gpu: Gpu, _: GpuAllocation) -> float:
    return 100 * gpu.used_mib / gpu.memory_mib if gpu.memory_mib else 0.0


def _idleness(gpu: Gpu, _: GpuAllocation) -> float:
    return 100.0 if len(gpu.users) == 1 else 0.0


LOWEST = Policy(_lowest_index_first, _zero)
"""The lowest index that has room."""
POLICIES: Mapping[str, Policy] = {
    "": Policy(_highest_index_first, _zero),
    "binpack": Policy(_fullest_first, _fullness),
    "spread": Policy(_least_used_first, _idleness),
}


def allocate(
    gpus: Sequence[Gpu], gpu_request: GpuRequest, owner: Owner, policy: Policy
) -> tuple[PodAllocation, float] | None:
    """Allocate GPUs to the pod. Returns the allocation and its score; None if there is too little.

    Containers are served one after another and take what fits in the policy's order, each container
    from distinct GPUs. The GPUs are changed even if the result is None.
    """
    allowed = [gpu for gpu in gpus if gpu_request.allows(gpu)]
    allocation: list[tuple[GpuAllocation, ...]] = []
    score = 0.0
    for demand in gpu_request.containers:
        shares: list[GpuAllocation] = []
        left = list(allowed)
        while len(shares) < demand.number:
            for gpu in policy.order(left, demand):
                share = gpu.share(demand, gpu_request, owner)
                if share is not None:
                    break
            else:
                return None
            gpu.put(owner, share)
            score += policy.link_score(gpu, share)
            shares.append(share)
            left.remove(gpu)
        allocation.append(tuple(shares))
    return tuple(allocation), score


def copied(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return copies of the GPUs for a trial."""
    return [msgspec.structs.replace(gpu) for gpu in gpus]
