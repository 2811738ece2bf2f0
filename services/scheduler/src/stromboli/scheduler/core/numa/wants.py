"""What a pod wants of a node's CPUs: how many for each container alone, and aligned how."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stromboli.shared import keys, units
from stromboli.shared.api import core


class Wants(NamedTuple):
    """``needs``: CPUs of each container's own, 0 for one that shares. ``policy``: the alignment
    that the pod insists on, empty for whatever its node does."""

    needs: tuple[int, ...]
    policy: str

    @property
    def counts(self) -> bool:
        """There is anything to ask about."""
        return bool(self.policy) or any(self.needs)


def of(pod: core.Pod) -> Wants | None:
    """What the pod wants; None for one that is not Guaranteed: the kubelet gives it no CPUs of its
    own, whatever it says."""
    spec = pod.spec
    if not all(_is_guaranteed(each) for each in (*spec.containers, *spec.init_containers)):
        return None
    policy = pod.metadata.annotation(keys.NUMA_TOPOLOGY_POLICY) or ""
    return Wants(
        tuple(_whole(each) for each in spec.containers), "" if policy == "none" else policy
    )


def names(pod: core.Pod) -> Sequence[str]:
    """Its containers, in the order of ``Wants.needs``."""
    return [each.name for each in pod.spec.containers]


def _is_guaranteed(container: core.Container) -> bool:
    """Cpu and memory are limited, and asked for is what they are limited to."""
    limits = _amounts(container.resources.limits)
    asked = {**limits, **_amounts(container.resources.requests)}
    return all(
        limits.get(name, 0) > 0 and asked[name] == limits[name] for name in ("cpu", "memory")
    )


def _whole(container: core.Container) -> int:
    """Whole CPUs; a fraction is shared."""
    milli = _amounts(container.resources.limits).get("cpu", 0)
    return 0 if milli % 1000 else milli // 1000


def _amounts(given: Mapping[str, core.Quantity] | None) -> units.Amounts:
    return units.amounts(given or {})
