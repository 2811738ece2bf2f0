"""The exclusive hardware request of a pod: CPUs, memory and devices of each container, and their
NUMA alignment."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stromboli.scheduler.core.numa import alignment
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.shared.formats import units


class HardwareRequest(NamedTuple):
    """The exclusive request of a pod. ``policy``: the alignment that the pod requires; empty for
    the node's own.
    """

    requested: alignment.PodRequest
    policy: str

    @property
    def has_cpus(self) -> bool:
        """Whether a container gets exclusive CPUs."""
        return any(need.cpus for need in self.requested.containers)

    @property
    def has_memory(self) -> bool:
        """Whether a container gets memory of NUMA nodes where the kubelet assigns it."""
        return any(need.memory for need in self.requested.containers)

    @property
    def devices(self) -> frozenset[str]:
        """Device resources that its containers request."""
        return frozenset(name for need in self.requested.containers for name, _ in need.devices)


def hardware_request(pod: core.Pod) -> HardwareRequest | None:
    """The exclusive request of the pod; None if it has none and requires no alignment.

    The kubelet assigns exclusive CPUs and memory only to pods of class Guaranteed; devices to all.
    """
    spec = pod.spec
    is_guaranteed = all(_is_guaranteed(each) for each in (*spec.containers, *spec.init_containers))
    policy = pod.metadata.annotation(keys.NUMA_TOPOLOGY_POLICY) or ""
    pod_request = HardwareRequest(
        alignment.PodRequest(
            tuple(_need(each, is_guaranteed=is_guaranteed) for each in spec.containers),
            tuple(
                need
                for each in spec.init_containers
                if (need := _need(each, is_guaranteed=is_guaranteed))
            ),
        ),
        policy if is_guaranteed and policy != alignment.NONE else "",
    )
    return pod_request if pod_request.policy or any(pod_request.requested.containers) else None


def container_names(pod: core.Pod) -> Sequence[str]:
    """Names of its containers in the order of ``PodRequest.containers``."""
    return [each.name for each in pod.spec.containers]


def _is_guaranteed(container: core.Container) -> bool:
    """Whether requests of cpu and memory equal their limits."""
    limits = _amounts(container.resources.limits)
    requested = {**limits, **_amounts(container.resources.requests)}
    return all(
        limits.get(name, 0) > 0 and requested[name] == limits[name] for name in ("cpu", "memory")
    )


def _need(container: core.Container, *, is_guaranteed: bool) -> alignment.ContainerRequest:
    limits = container.resources.limits or {}
    amounts = _amounts({name: limits[name] for name in ("cpu", "memory") if name in limits})
    milli = amounts.get("cpu", 0)
    devices = {name: int(units.quantity(value)) for name, value in limits.items() if "/" in name}
    return alignment.ContainerRequest(
        milli // 1000 if is_guaranteed and not milli % 1000 else 0,  # a fraction is shared
        tuple(sorted((name, count) for name, count in devices.items() if count > 0)),
        amounts.get("memory", 0) if is_guaranteed else 0,
    )


def _amounts(quantities: Mapping[str, core.Quantity] | None) -> units.Amounts:
    return units.amounts(quantities or {})
