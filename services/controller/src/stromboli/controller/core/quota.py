"""What a pod asks for, under the names that resource quotas use.

Source: spec/jobs.md 4.3 (the quota view of a pod) and Kubernetes' pod quota evaluator. A container
that has a limit and no request requests its limit, as the API server defaults it.
"""

from collections.abc import Callable, Mapping

from stromboli.shared import units
from stromboli.shared.api import core

_QUOTA_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def total(counted: list[tuple[core.PodSpec, int]]) -> dict[str, str]:
    """Quota name -> quantity of so many of each pod. Raises ValueError."""
    requests: units.Amounts = {}
    limits: units.Amounts = {}
    for spec, count in counted:
        one, most = _amounts(spec)
        requests = units.add(requests, units.times(count, one))
        limits = units.add(limits, units.times(count, most))
    return _named(requests, limits, pods=sum(count for _, count in counted))


def requests(spec: core.PodSpec) -> units.Amounts:
    """What one pod requests. Raises ValueError for a quantity that is none."""
    return _amounts(spec)[0]


def _named(requests: Mapping[str, int], limits: Mapping[str, int], pods: int) -> dict[str, str]:
    found = {"count/pods": str(pods), "pods": str(pods)}
    for name, value in requests.items():
        text = units.text(name, value)
        found[name] = text
        found[f"requests.{name}"] = text
    for name, value in limits.items():
        if name in _QUOTA_RESOURCES:
            found[f"limits.{name}"] = units.text(name, value)
    return dict(sorted(found.items()))


def _amounts(spec: core.PodSpec) -> tuple[units.Amounts, units.Amounts]:
    """(requests, limits) of the whole pod."""
    overhead = units.amounts(spec.overhead or {})
    limits = _over_containers(spec, _limits)
    # Overhead raises a limit that is set; it does not set one.
    bounded = {name: value for name, value in overhead.items() if name in limits}
    requests = _over_containers(spec, _requests)
    return units.add(requests, overhead), units.add(limits, bounded)


def _over_containers(
    spec: core.PodSpec, of: Callable[[core.Container], units.Amounts]
) -> units.Amounts:
    """Containers and sidecars together, or the largest start-up step if that is more."""
    running: units.Amounts = {}
    for container in spec.containers:
        running = units.add(running, of(container))
    sidecars: units.Amounts = {}
    starting: units.Amounts = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars = units.add(sidecars, of(container))
            starting = units.highest(starting, sidecars)
        else:
            starting = units.highest(starting, units.add(sidecars, of(container)))
    return units.highest(units.add(running, sidecars), starting)


def _requests(container: core.Container) -> units.Amounts:
    resources = container.resources
    return units.amounts({**(resources.limits or {}), **(resources.requests or {})})


def _limits(container: core.Container) -> units.Amounts:
    return units.amounts(container.resources.limits or {})
