"""Amounts as vectors over a session's resources.

Exact integers in the units of ``stromboli.shared.units``; the columns of a session are fixed when
it opens. Plain ``<=`` on integers is the field's comparison with its epsilon of 0.1, and ``<`` the
one without. A name that is absent counts as zero or as ``INFINITE``, as the caller says.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core import shapes

Vector: TypeAlias = npt.NDArray[np.int64]
"""One amount per resource."""
Table: TypeAlias = npt.NDArray[np.int64]
"""``resources x nodes``."""

INFINITE = 2**62
"""No limit. Two of them still fit 64 bits with what is added to them."""


def vector(resources: shapes.Resources, named: Mapping[str, int], missing: int = 0) -> Vector:
    """Amounts by name as a vector. Every name must be a column: the session knows all names."""
    values = np.full(len(resources.names), missing, np.int64)
    for name, amount in named.items():
        column = resources.known(name)
        if column is not None:
            values[column] = amount
    return values


def total(table: Table) -> Vector:
    """The sum over all nodes, exact up to ``INFINITE`` and that from there on, whatever the sign:
    nodes beyond a hundred that say ``60Pi`` would wrap around to less than nothing.
    O(resources x nodes)."""
    high, low = table >> 32, table & 0xFFFF_FFFF  # each half's sum fits for 2^31 nodes
    whole = high.sum(axis=1) + (low.sum(axis=1) >> 32)
    rest = low.sum(axis=1) & 0xFFFF_FFFF
    limit = INFINITE >> 32
    within = np.clip(whole, -limit, limit - 1)
    found: Vector = (within << 32) + rest
    return np.where(whole >= limit, INFINITE, np.where(whole < -limit, -INFINITE, found))


def widened(values: Vector, width: int) -> Vector:
    """The same amounts among more resources, of which there are none."""
    return np.pad(values, (0, width - len(values)))


def named(resources: shapes.Resources, values: Vector) -> dict[str, int]:
    """The amounts that are not zero, by name."""
    return {
        name: int(amount)
        for name, amount in zip(resources.names, values, strict=True)
        if amount != 0
    }


def asked(request: Vector) -> npt.NDArray[np.bool_]:
    """The resources that a request names, ``pods`` aside: what quota checks look at."""
    mask: npt.NDArray[np.bool_] = request > 0
    mask[shapes.PODS] = False
    return mask


def is_empty(values: Vector) -> bool:
    """Nothing of anything; a place among ``pods`` does not count."""
    return not bool(np.any(asked(values)))


def covered(request: Vector, room: Table) -> npt.NDArray[np.bool_]:
    """Columns (nodes) of ``room`` that hold the request in all that it asks for; what it does not
    ask for may be overdrawn."""
    needed = request[:, np.newaxis]
    mask: npt.NDArray[np.bool_] = np.all((needed <= room) | (needed == 0), axis=0)
    return mask


def fits_asked(used: Vector, limit: Vector, request: Vector) -> bool:
    """Whether ``used`` stays within ``limit`` in every resource that is asked for."""
    return bool(np.all((used <= limit) | ~asked(request)))


def short_names(
    resources: shapes.Resources, needed: Vector, limit: Vector, among: Iterable[int]
) -> list[str]:
    """The resources of which more is needed than there is: cpu, memory, then others by name."""
    short = [resources.names[column] for column in among if needed[column] > limit[column]]
    return sorted(short, key=lambda name: ({"cpu": 0, "memory": 1}.get(name, 2), name))


def beyond(have: Vector, limit: Vector) -> Vector:
    """What exceeds the limit, never negative."""
    exceeded: Vector = np.maximum(have - limit, 0)
    return exceeded


def share(amount: float, total: float) -> float:
    """A part of a total; nothing of nothing is 0, something of nothing is 1."""
    if total == 0:
        return 0.0 if amount == 0 else 1.0
    return amount / total
