"""Arithmetic on resource rows, and the shares of queues and jobs.

A session updates shares with every task that it places, and a row has only a few columns, for which
a list of integers is several times faster than an array. The request of a task class is therefore
stored as pairs of column and amount.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.shared.formats import units

Row: TypeAlias = list[int]
"""One amount per resource of the session; ``resource_vectors.INFINITE`` and above mean no limit."""
Demand: TypeAlias = tuple[tuple[int, int], ...]
"""A task's request: pairs of column and amount above zero, ``pods`` included."""


class Demands:
    """Caches the demand of each class of tasks."""

    def __init__(self) -> None:
        self._known: dict[entities.TaskClass, Demand] = {}

    def of(self, task: entities.Task) -> Demand:
        """Return what the task requests."""
        demand = self._known.get(task.task_class)
        if demand is None:
            demand = self._known[task.task_class] = pairs(task.request.tolist())
        return demand


def pairs(row: Sequence[int]) -> Demand:
    """Return the columns with amounts above zero."""
    return tuple((column, amount) for column, amount in enumerate(row) if amount > 0)


def quota_relevant(demand: Iterable[tuple[int, int]]) -> Demand:
    """Return the demand without ``pods``, which quota checks ignore."""
    return tuple((column, amount) for column, amount in demand if column != requirements.PODS)


def row_of(ssn: session.Session, named: Mapping[str, int], missing: int = 0) -> Row:
    """Return amounts by name as a row; ``missing`` for resources without an amount."""
    return [named.get(name, missing) for name in ssn.resources.names]


def add(row: Row, demand: Demand, times: int = 1) -> None:
    """Add the demand to the row in place; ``times`` -1 subtracts it."""
    for column, amount in demand:
        row[column] += times * amount


def sum_of(left: Sequence[int], right: Sequence[int]) -> Row:
    """Return the sum per resource."""
    return [first + second for first, second in zip(left, right, strict=True)]


def difference(left: Sequence[int], right: Sequence[int]) -> Row:
    """Return the first row less the second, at least zero per resource."""
    return [max(first - second, 0) for first, second in zip(left, right, strict=True)]


def minimum(left: Sequence[int], right: Sequence[int]) -> Row:
    """Return the minimum per resource."""
    return [min(first, second) for first, second in zip(left, right, strict=True)]


def is_within(left: Sequence[float], right: Sequence[float]) -> bool:
    """Return whether no resource of the first row exceeds the second."""
    return all(first <= second for first, second in zip(left, right, strict=True))


def fits(used: Sequence[int], demand: Demand, limit: Sequence[float]) -> bool:
    """Return whether usage and demand stay within the limit in all requested resources except
    ``pods``."""
    return all(
        used[column] + amount <= limit[column]
        for column, amount in demand
        if column != requirements.PODS
    )


def count_fitting(used: Sequence[int], demand: Demand, limit: Sequence[float], most: int) -> int:
    """Return how many such demands, up to ``most``, fit within the limit in addition to
    ``used``."""
    for column, amount in demand:
        if column != requirements.PODS:
            # Limits may have fractions of a unit; whole units decide, as for one demand at a time.
            most = min(most, (math.floor(limit[column]) - used[column]) // amount)
    return max(most, 0)


def exceeded_names(
    ssn: session.Session, needed: Sequence[int], limit: Sequence[float], demand: Demand
) -> list[str]:
    """Return the requested resources whose needed amount exceeds the limit: cpu and memory first,
    others by name."""
    names = ssn.resources.names
    short = [
        names[column] for column, _ in quota_relevant(demand) if needed[column] > limit[column]
    ]
    return sorted(short, key=lambda name: ({"cpu": 0, "memory": 1}.get(name, 2), name))


def dominant_share(used: Sequence[int], limit: Sequence[float]) -> float:
    """Return the largest used fraction of any limit above zero."""
    return max(
        (amount / top for amount, top in zip(used, limit, strict=True) if top > 0), default=0.0
    )


def is_empty(named: units.Amounts) -> bool:
    """Return whether all amounts except ``pods`` are zero."""
    return not any(amount > 0 for name, amount in named.items() if name != "pods")
