"""Kubernetes quantities as exact integers.

A resource amount is an ``int`` in the resource's own unit: ``cpu`` in milli-cores, ``memory`` in
bytes, ``pods`` (and every ``count/...``) in whole units, everything else in milli-units, as in
Volcano. Integers make sums exact in any order.
"""

import functools
import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

Amounts = dict[str, int]
"""Resource name -> amount in the resource's unit. A name that is absent means zero."""

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i))?"
)
LARGEST = 2**63 - 1
"""Kubernetes' largest quantity; larger ones are capped to it."""
MOST = 2**62
"""The largest amount in a resource's unit, effectively unlimited. The sum of two smaller amounts
fits a signed integer of 64 bits.
"""
_LARGEST = Decimal(LARGEST)
_SMALLEST = Decimal("1e-9")
"""Kubernetes' smallest non-zero quantity; smaller ones are rounded up to it."""
_MOST_CHARACTERS = 100
"""Maximum length of a quantity in characters, far above that of any real one; each distinct text is
cached."""
_NEARLY = re.compile(r"(\d+(?:\.\d+)?) ?([kmgtpe])i?b?", re.IGNORECASE | re.ASCII)
"""A number with a unit as in other programs, where most mean powers of 1024."""
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


def quantity(text: str | int | float) -> Decimal:
    """The value of a Kubernetes quantity such as ``500m``, ``1.5Gi`` or ``2e3``. As in Kubernetes,
    it is at most 2^63-1 and, unless 0, at least a billionth in magnitude.

    Raises ValueError that names the text and the accepted suffixes. Cached: a cluster has few
    distinct quantities.
    """
    written = text if isinstance(text, str) else repr(text)
    if len(written) > _MOST_CHARACTERS:
        raise ValueError(
            f"{written[:20]!r}... is not a quantity: it has {len(written)} characters, "
            f"write at most {_MOST_CHARACTERS}"
        )
    return _quantity(written)


@functools.lru_cache(maxsize=4096)
def _quantity(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        guess = suggestion(text)
        raise ValueError(
            f"{text!r} is not a quantity{f' (did you mean {guess}?)' if guess else ''}: write a "
            f"number with one of the suffixes {' '.join(_FACTOR)} or an exponent, such as 500m or "
            "1Gi"
        )
    number, exponent, suffix = match.groups()
    # Clamping the exponent does not change the result; arithmetic with a huge exponent would
    # take indefinitely.
    power = max(-200, min(200, int(exponent or 0)))
    value = Decimal(number).scaleb(power) * _FACTOR.get(suffix, 1)
    if value and abs(value) < _SMALLEST:
        return _SMALLEST.copy_sign(value)
    return max(-_LARGEST, min(_LARGEST, value))


def suggestion(text: str) -> str:
    """The quantity that was probably meant by an invalid one, such as ``1Gi`` by ``1g`` or ``1GB``;
    empty without a guess."""
    match = _NEARLY.fullmatch(text)
    return "" if match is None else f"{match[1]}{match[2].upper()}i"


@functools.lru_cache(maxsize=4096)
def amount(name: str, text: str | int | float) -> int:
    """A quantity of resource ``name`` in its unit, rounded up as in Kubernetes, at most
    ``MOST``. Cached as ``quantity``.
    """
    value = quantity(text)
    if name != "memory" and name != "pods" and not name.startswith("count/"):
        value *= 1000
    return max(-MOST, min(MOST, int(value.to_integral_value(ROUND_CEILING))))


def amounts(quantities: Mapping[str, str | int | float]) -> Amounts:
    """All quantities of a resource list as amounts in units."""
    return {name: amount(name, text) for name, text in quantities.items()}


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The sum of both amounts, per resource."""
    total = dict(left)
    for name, value in right.items():
        total[name] = total.get(name, 0) + value
    return total


def highest(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    """The larger of both amounts, per resource."""
    top = dict(left)
    for name, value in right.items():
        top[name] = max(top.get(name, 0), value)
    return top


def times(factor: int, values: Mapping[str, int]) -> Amounts:
    """Every amount multiplied by ``factor``."""
    return {name: factor * value for name, value in values.items()}


def text(name: str, value: int) -> str:
    """An amount as a readable quantity: ``1500m``, ``64Mi``, ``3``."""
    if name == "memory":
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            unit = int(_FACTOR[suffix])
            if value and value % unit == 0:
                return f"{value // unit}{suffix}"
        return str(value)
    if name == "pods" or name.startswith("count/"):
        return str(value)
    return str(value // 1000) if value % 1000 == 0 else f"{value}m"
