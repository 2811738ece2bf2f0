"""Amounts as vectors over a session's resources.

Exact integers in the units of ``stromboli.shared.formats.units``; the columns of a session are
fixed when
it opens. Plain ``<=`` on integers is the field's comparison with its epsilon of 0.1, and ``<`` the
one without. A name that is absent counts as zero or as ``INFINITE``, as the caller says.

What one pod asks for and what one node has fits 64 bits, with room to spare (``AMOUNT_LIMIT``).
What many of them come to need not: it is a ``Sum``, whose numbers are Python's and have no bound.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import requirements, resource_columns
from stromboli.shared.formats import units

Vector: TypeAlias = npt.NDArray[np.int64]
"""One amount per resource."""
Table: TypeAlias = npt.NDArray[np.int64]
"""``resources x nodes``."""

Sum: TypeAlias = npt.NDArray[np.object_]
"""One amount per resource, of Python's integers: the sum of any number of vectors, exactly. Sums
and vectors may be added and compared; a ``Table`` is one of vectors."""

INFINITE = 2**100
"""No limit: more than any sum of what there is."""


def vector(
    resources: resource_columns.Resources, named: Mapping[str, int], missing: int = 0
) -> Vector:
    """Amounts by name as a vector. A name without a column is left out: no object asks for it."""
    values = np.full(len(resources.names), missing, np.int64)
    for name, amount in named.items():
        column = resources.known(name)
        if column is not None:
            values[column] = amount
    return values


def zeros(width: int) -> Sum:
    """Nothing of so many resources."""
    return np.zeros(width, np.object_)


def multiplied(request: Vector, count: int) -> Sum:
    """What so many equal tasks ask for."""
    product: Sum = request.astype(np.object_) * count
    return product


def sum_of(vectors: Sequence[Vector] | Sequence[Sum], width: int) -> Sum:
    """The sum of vectors of this width, be there any or not. O(vectors x width)."""
    found: Sum = np.sum(np.reshape(vectors, (-1, width)), axis=0, dtype=np.object_)
    return found


def total(table: Table) -> Sum:
    """The sum over all nodes: beyond a hundred that say ``60Pi`` it does not fit 64 bits.
    O(resources x nodes)."""
    high, low = table >> 32, table & 0xFFFF_FFFF  # each half's sum fits for 2^31 nodes
    halves = zip(high.sum(axis=1).tolist(), low.sum(axis=1).tolist(), strict=True)
    return np.array([(whole << 32) + rest for whole, rest in halves], np.object_)


def bounded(values: Vector | Sum) -> Vector:
    """The sum as a vector, to be compared with many nodes at once: beyond ``units.MOST``, which
    no node has, it is that."""
    clipped: Vector = np.clip(values, -units.MOST, units.MOST).astype(np.int64)
    return clipped


def moved(values: npt.NDArray, sources: resource_columns.Sources, axis: int = -1) -> npt.NDArray:  # type: ignore[type-arg]  # vectors, sums and tables alike
    """The same amounts in other columns, which lie on ``axis``; zero for new ones.

    Python's zero in sums: with NumPy's they would wrap around again.
    """
    found = np.take(values, sources, axis=axis)
    np.moveaxis(found, axis, 0)[sources < 0] = 0
    return found


def named(resources: resource_columns.Resources, values: Vector | Sum) -> dict[str, int]:
    """The amounts that are not zero, by name."""
    return {
        name: int(amount)
        for name, amount in zip(resources.names, values, strict=True)
        if amount != 0
    }


def requested_resources(request: Vector) -> npt.NDArray[np.bool_]:
    """The resources that a request names, ``pods`` aside: what quota checks look at."""
    mask: npt.NDArray[np.bool_] = request > 0
    mask[requirements.PODS] = False
    return mask


def is_empty(values: Vector) -> bool:
    """Nothing of anything; a place among ``pods`` does not count."""
    return not bool(np.any(requested_resources(values)))


def fits(request: Vector, room: Table) -> npt.NDArray[np.bool_]:
    """Columns (nodes) of ``room`` that hold the request in all that it asks for; what it does not
    ask for may be overdrawn."""
    needed = request[:, np.newaxis]
    mask: npt.NDArray[np.bool_] = np.all((needed <= room) | (needed == 0), axis=0)
    return mask


def fits_requested(used: Vector, limit: Vector, request: Vector) -> bool:
    """Whether ``used`` stays within ``limit`` in every resource that is asked for."""
    return bool(np.all((used <= limit) | ~requested_resources(request)))


def insufficient_names(
    resources: resource_columns.Resources, needed: Vector, limit: Vector, among: Iterable[int]
) -> list[str]:
    """The resources of which more is needed than there is: cpu, memory, then others by name."""
    short = [resources.names[column] for column in among if needed[column] > limit[column]]
    return sorted(short, key=lambda name: ({"cpu": 0, "memory": 1}.get(name, 2), name))


def excess(have: Vector | Sum, limit: Vector | Sum) -> Sum:
    """What exceeds the limit, never negative; one of them is a sum."""
    exceeded: Sum = np.maximum(have - limit, 0)
    return exceeded


def share(amount: float, total: float) -> float:
    """A part of a total; nothing of nothing is 0, something of nothing is 1."""
    if total == 0:
        return 0.0 if amount == 0 else 1.0
    return amount / total
