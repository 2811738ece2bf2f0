"""Kubernetes quantities as exact integers.

A resource amount is an ``int`` in the resource's own unit: ``cpu`` in milli-cores, ``memory`` in
bytes, ``pods`` (and every ``count/...``) in whole units, everything else in milli-units, as the
scheduling reference has it (spec "Resource"). Integers make sums exact whatever their order.
"""

import functools
import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation

Amounts = dict[str, int]
"""Resource name -> amount in the resource's unit. A name that is absent means zero."""

_QUANTITY = re.compile(
    r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i))?$"
)
_FACTOR: Mapping[str, Decimal] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


@functools.lru_cache(maxsize=4096)
def quantity(text: str | int | float) -> Decimal:
    """The value of a Kubernetes quantity such as ``500m``, ``1.5Gi`` or ``2e3``.

    Raises ValueError that names the text and the accepted suffixes. Cached: a cluster has few
    distinct quantities.
    """
    match = _QUANTITY.match(str(text))
    if match is None:
        raise ValueError(
            f"{text!r} is not a quantity: write a number with one of the suffixes "
            f"{' '.join(_FACTOR)} or an exponent, such as 500m or 1Gi"
        )
    number, exponent, suffix = match.groups()
    try:
        value = Decimal(number + (exponent or ""))
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not a quantity: {error}") from None
    return value * _FACTOR[suffix] if suffix else value


def amount(name: str, text: str | int | float) -> int:
    """A quantity of resource ``name`` in its unit, rounded up as Kubernetes does."""
    value = quantity(text)
    if name != "memory" and name != "pods" and not name.startswith("count/"):
        value *= 1000
    return int(value.to_integral_value(ROUND_CEILING))


def amounts(quantities: Mapping[str, str | int | float]) -> Amounts:
    """A whole resource list in units."""
    return {name: amount(name, text) for name, text in quantities.items()}


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """Sum per resource."""
    total = dict(left)
    for name, value in right.items():
        total[name] = total.get(name, 0) + value
    return total


def highest(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """Maximum per resource."""
    top = dict(left)
    for name, value in right.items():
        top[name] = max(top.get(name, 0), value)
    return top


def times(factor: int, values: Mapping[str, int]) -> Amounts:
    """Every amount multiplied by ``factor``."""
    return {name: factor * value for name, value in values.items()}


def text(name: str, value: int) -> str:
    """An amount as a quantity a person reads: ``1500m``, ``64Mi``, ``3``."""
    if name == "memory":
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            unit = int(_FACTOR[suffix])
            if value and value % unit == 0:
                return f"{value // unit}{suffix}"
        return str(value)
    if name == "pods" or name.startswith("count/"):
        return str(value)
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"
