"""The requests of a pod under the names that resource quotas use.

Source: Kubernetes' pod quota evaluator. A container with a limit and no request requests its limit,
as the API server defaults it.
"""

from collections.abc import Callable

from stromboli.shared.api import core
from stromboli.shared.formats import units

LIMITED = ("cpu", "memory", "ephemeral-storage")
"""Resources whose limits are subject to quota, in addition to their requests."""


def total(counted: list[tuple[core.PodSpec, int]]) -> dict[str, str]:
    """Quota name -> the total quantity of these pods. ``counted``: (spec, number of such pods).
    Raises ValueError for an invalid quantity."""
    named: units.Amounts = {"count/pods": 0, "pods": 0}
    for spec, count in counted:
        named = units.add(named, units.times(count, usage(spec)))
    return {name: text(name, value) for name, value in sorted(named.items())}


def usage(spec: core.PodSpec) -> units.Amounts:
    """Quota name -> amount of one pod, in the units of ``amount``. Raises ValueError for an invalid
    quantity."""
    requests, limits = _amounts(spec)
    amounts = {"count/pods": 1, "pods": 1}
    for name, value in requests.items():
        amounts[name] = amounts[f"requests.{name}"] = value
    return amounts | {f"limits.{name}": limits[name] for name in LIMITED if name in limits}


def requests(spec: core.PodSpec) -> units.Amounts:
    """The requests of one pod. Raises ValueError for an invalid quantity."""
    return _amounts(spec)[0]


def resource(name: str) -> str:
    """The resource of a quota name: ``cpu`` for ``requests.cpu``."""
    return name.removeprefix("requests.").removeprefix("limits.")


def amount(name: str, quantity: core.Quantity) -> int:
    """A quantity under a quota name as an amount in the unit of its resource. Raises ValueError for
    an invalid quantity."""
    return units.amount(resource(name), quantity)


def text(name: str, value: int) -> str:
    """An amount under a quota name as a readable quantity."""
    return units.text(resource(name), value)


def _amounts(spec: core.PodSpec) -> tuple[units.Amounts, units.Amounts]:
    """The sums of requests and limits of the whole pod."""
    overhead = units.amounts(spec.overhead or {})
    limits = _over_containers(spec, _limits)
    # Overhead increases an existing limit; it does not create one.
    bounded = {name: value for name, value in overhead.items() if name in limits}
    requests = _over_containers(spec, _requests)
    return units.add(requests, overhead), units.add(limits, bounded)


def _over_containers(
    spec: core.PodSpec, of: Callable[[core.Container], units.Amounts]
) -> units.Amounts:
    """The sum over containers and sidecars or, if larger, the maximum over the steps of
    initialization."""
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
