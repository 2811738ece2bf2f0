"""Amounts of resources as vectors and tables, indexed by resource column.

Amounts are exact integers in the units of ``stromboli.shared.formats.units``. Columns are fixed
while a session is open. ``<=`` on integers equals Volcano's comparison with an epsilon of 0.1, and
``<`` equals its comparison without one. The caller decides whether an absent name counts as zero or
as ``INFINITE``.

The request of one pod and the capacity of one node fit 64 bits (``AMOUNT_LIMIT``). Sums over many
of them may not; a ``Sum`` therefore has Python integers.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import requirements, resource_columns
from stromboli.shared.formats import units

Vector: TypeAlias = npt.NDArray[np.int64]
"""One amount per resource column."""
Table: TypeAlias = npt.NDArray[np.int64]
"""``resources x nodes``."""

Sum: TypeAlias = npt.NDArray[np.object_]
"""One amount per resource column, as Python integers: an exact sum of any number of vectors. Sums
and vectors can be added and compared; a ``Table`` has 64-bit integers.
"""

INFINITE = 2**100
"""No limit: larger than any sum."""


def vector(
    resources: resource_columns.Resources, named: Mapping[str, int], missing: int = 0
) -> Vector:
    """Amounts by name as a vector. A name without a column is left out, because no object requests
    it.
    """
    values = np.full(len(resources.names), missing, np.int64)
    for name, amount in named.items():
        column = resources.known(name)
        if column is not None:
            values[column] = amount
    return values


def zeros(width: int) -> Sum:
    """A sum with zero of every resource."""
    return np.zeros(width, np.object_)


def multiplied(request: Vector, count: int) -> Sum:
    """The request of ``count`` equal tasks."""
    product: Sum = request.astype(np.object_) * count
    return product


def sum_of(vectors: Sequence[Vector] | Sequence[Sum], width: int) -> Sum:
    """The sum of vectors of this width; zeros if there is none. O(vectors x width)."""
    sums: Sum = np.sum(np.reshape(vectors, (-1, width)), axis=0, dtype=np.object_)
    return sums


def total(table: Table) -> Sum:
    """The sum over all nodes; two hundred nodes with ``60Pi`` each exceed 64 bits. O(resources x
    nodes).
    """
    high, low = table >> 32, table & 0xFFFF_FFFF  # each half's sum fits for 2^31 nodes
    halves = zip(high.sum(axis=1).tolist(), low.sum(axis=1).tolist(), strict=True)
    return np.array([(whole << 32) + rest for whole, rest in halves], np.object_)


def bounded(values: Vector | Sum) -> Vector:
    """A sum as a vector, clipped to ``units.MOST``, which no node has; for comparisons with
    nodes.
    """
    clipped: Vector = np.clip(values, -units.MOST, units.MOST).astype(np.int64)
    return clipped


def moved(values: npt.NDArray, sources: resource_columns.Sources, axis: int = -1) -> npt.NDArray:  # type: ignore[type-arg]  # vectors, sums and tables alike
    """The amounts after a change of the columns along ``axis``; zero for new columns.

    New columns of sums get Python's zero: with NumPy's zero, later sums could overflow.
    """
    reordered = np.take(values, sources, axis=axis)
    np.moveaxis(reordered, axis, 0)[sources < 0] = 0
    return reordered


def named(resources: resource_columns.Resources, values: Vector | Sum) -> dict[str, int]:
    """The amounts that are not zero, by name."""
    return {
        name: int(amount)
        for name, amount in zip(resources.names, values, strict=True)
        if amount != 0
    }


def requested_resources(request: Vector) -> npt.NDArray[np.bool_]:
    """The resources with an amount above zero, ``pods`` excluded: those that quota checks
    compare.
    """
    mask: npt.NDArray[np.bool_] = request > 0
    mask[requirements.PODS] = False
    return mask


def is_empty(values: Vector) -> bool:
    """Whether no resource but ``pods`` has an amount above zero."""
    return not bool(np.any(requested_resources(values)))


def fits(request: Vector, room: Table) -> npt.NDArray[np.bool_]:
    """Columns (nodes) of ``room`` that have every requested amount. Resources that are not
    requested may be overdrawn.
    """
    requested = request.nonzero()[0]
    enough = request[requested, np.newaxis] <= room[requested]
    mask: npt.NDArray[np.bool_] = np.logical_and.reduce(enough, axis=0)
    return mask


def excess(have: Vector | Sum, limit: Vector | Sum) -> Sum:
    """What exceeds the limit, never negative. At least one argument is a ``Sum``."""
    exceeded: Sum = np.maximum(have - limit, 0)
    return exceeded


def share(amount: float, total: float) -> float:
    """``amount / total``; for a total of zero 0 if the amount is zero, else 1."""
    if total == 0:
        return 0.0 if amount == 0 else 1.0
    return amount / total
