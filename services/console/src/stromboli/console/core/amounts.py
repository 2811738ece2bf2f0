"""Resource amounts as text, and as shares of bars. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from stromboli.cli.render import explanation_view
from stromboli.shared.api import core
from stromboli.shared.formats import units
from stromboli.shared.formats.units import Amounts
from stromboli.shared.jobspec import quota

GPU_NAMES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
"""Resources that count whole GPUs."""
MIG = "nvidia.com/mig-"
"""Prefix of the resources that count MIG instances."""
FIRST = ("cpu", "memory")
"""Resources that every table shows first."""


class Gauge(msgspec.Struct, frozen=True):
    """A used amount against limits, in percent of the largest limit for bars (0 to 100).

    ``deserved_percent``: the position of the deserved amount on the bar, None without one.
    ``borrowed``: the amount beyond it, empty for none. ``guarantee``: the reserved amount, empty
    for none.
    """

    resource: str
    used: str
    limit: str = ""
    percent: float = 0.0
    deserved: str = ""
    deserved_percent: float | None = None
    is_over: bool = False
    borrowed: str = ""
    guarantee: str = ""


def is_gpu(resource: str) -> bool:
    """Whether a resource counts GPUs or MIG instances."""
    return resource in GPU_NAMES or resource.startswith(MIG)


def gpus(amounts: Mapping[str, int]) -> int:
    """The GPUs and MIG instances in amounts, in thousandths."""
    return sum(amount for name, amount in amounts.items() if is_gpu(name))


def text(resource: str, amount: int) -> str:
    """An amount with its unit, for display: ``1.5`` cpu, ``15.6Gi``, ``8`` GPUs."""
    return explanation_view.format_amount(resource, amount)


def label(resource: str) -> str:
    """The name of a resource for display: ``CPU``, ``memory``, ``GPU``, else its own name."""
    if resource in GPU_NAMES:
        return "GPU" if resource == GPU_NAMES[0] else f"GPU ({resource.partition('.')[0]})"
    return {"cpu": "CPU"}.get(resource, resource)


def order(resources: Iterable[str]) -> list[str]:
    """Resources in the order of tables: GPUs, CPU, memory, then the others by name."""

    def rank(name: str) -> tuple[int, str]:
        if is_gpu(name):
            return 0, name
        return (1 + FIRST.index(name), name) if name in FIRST else (1 + len(FIRST), name)

    return sorted(set(resources), key=rank)


def read(quantities: Mapping[str, core.Quantity] | None) -> Amounts:
    """Quantities as amounts; invalid quantities are left out."""
    valid_amounts: Amounts = {}
    for name, quantity in (quantities or {}).items():
        try:
            valid_amounts[name] = units.amount(name, quantity)
        except ValueError:  # stored without admission
            continue
    return valid_amounts


def requests(spec: core.PodSpec) -> Amounts:
    """The request of a pod; empty if a quantity is invalid."""
    try:
        return quota.requests(spec)
    except ValueError:  # stored without admission
        return {}


def gauge(
    resource: str,
    used: int,
    limit: int | None,
    deserved: int | None = None,
    guarantee: int | None = None,
) -> Gauge:
    """A used amount against its limit, the deserved and the guaranteed amount."""
    whole = max(limit or 0, deserved or 0, 1) if limit or deserved else 0
    return Gauge(
        resource=label(resource),
        used=text(resource, used),
        limit=text(resource, limit) if limit is not None else "",
        percent=round(min(100.0, 100.0 * used / whole), 1) if whole else 0.0,
        deserved=text(resource, deserved) if deserved is not None else "",
        deserved_percent=round(min(100.0, 100.0 * deserved / whole), 1)
        if deserved is not None and whole
        else None,
        is_over=deserved is not None and used > deserved,
        borrowed=text(resource, used - deserved)
        if deserved is not None and used > deserved
        else "",
        guarantee=text(resource, guarantee) if guarantee else "",
    )
