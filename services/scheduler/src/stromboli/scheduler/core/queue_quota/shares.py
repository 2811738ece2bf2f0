"""Rows of amounts and the shares that queues and jobs have of them.

A session asks about shares with every task it places, and a row has only a handful of columns: a
plain list of integers is several times faster there than an array. What a class of tasks asks for
is therefore kept as pairs of column and amount.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.shared.formats import units

Row: TypeAlias = list[int]
"""One amount per resource of the session; ``amounts.INFINITE`` and above stand for no limit."""
Demand: TypeAlias = tuple[tuple[int, int], ...]
"""What a task asks for: pairs of column and amount above zero, ``pods`` included."""


class Demands:
    """Requests as pairs, made once per class of tasks."""

    def __init__(self) -> None:
        self._known: dict[entities.TaskClass, Demand] = {}

    def of(self, task: entities.Task) -> Demand:
        """What the task asks for."""
        demand = self._known.get(task.task_class)
        if demand is None:
            demand = self._known[task.task_class] = pairs(task.request.tolist())
        return demand


def pairs(row: Sequence[int]) -> Demand:
    """What is above zero."""
    return tuple((column, amount) for column, amount in enumerate(row) if amount > 0)


def quota_relevant(demand: Iterable[tuple[int, int]]) -> Demand:
    """What quota checks look at: everything but the place among ``pods``."""
    return tuple((column, amount) for column, amount in demand if column != requirements.PODS)


def row_of(ssn: session.Session, named: Mapping[str, int], missing: int = 0) -> Row:
    """Amounts by name as a row."""
    return [named.get(name, missing) for name in ssn.resources.names]


def add(row: Row, demand: Demand, times: int = 1) -> None:
    """Charge a request to the row, or give it back with ``times`` -1."""
    for column, amount in demand:
        row[column] += times * amount


def sum_of(left: Sequence[int], right: Sequence[int]) -> Row:
    """Sum per resource."""
    return [first + second for first, second in zip(left, right, strict=True)]


def difference(left: Sequence[int], right: Sequence[int]) -> Row:
    """What is left of the first after taking the second, never below zero."""
    return [max(first - second, 0) for first, second in zip(left, right, strict=True)]


def minimum(left: Sequence[int], right: Sequence[int]) -> Row:
    """Minimum per resource."""
    return [min(first, second) for first, second in zip(left, right, strict=True)]


def is_within(left: Sequence[float], right: Sequence[float]) -> bool:
    """No resource of the first exceeds that of the second."""
    return all(first <= second for first, second in zip(left, right, strict=True))


def fits(used: Sequence[int], demand: Demand, limit: Sequence[float]) -> bool:
    """Whether the request on top stays within the limit in all that it asks for, pods aside."""
    return all(
        used[column] + amount <= limit[column]
        for column, amount in demand
        if column != requirements.PODS
    )


def count_fitting(used: Sequence[int], demand: Demand, limit: Sequence[float], most: int) -> int:
    """How many such requests, up to ``most``, fit on top of each other."""
    for column, amount in demand:
        if column != requirements.PODS:
            # Limits may have fractions of a unit; whole units decide, as they do one by one.
            most = min(most, (math.floor(limit[column]) - used[column]) // amount)
    return max(most, 0)


def exceeded_names(
    ssn: session.Session, needed: Sequence[int], limit: Sequence[float], demand: Demand
) -> list[str]:
    """Resources asked for of which more is needed than there is: cpu, memory, others by name."""
    names = ssn.resources.names
    short = [
        names[column] for column, _ in quota_relevant(demand) if needed[column] > limit[column]
    ]
    return sorted(short, key=lambda name: ({"cpu": 0, "memory": 1}.get(name, 2), name))


def dominant_share(used: Sequence[int], limit: Sequence[float]) -> float:
    """The largest part that is used of any limit above zero."""
    return max(
        (amount / top for amount, top in zip(used, limit, strict=True) if top > 0), default=0.0
    )


def is_empty(named: units.Amounts) -> bool:
    """No amount of anything; a number of ``pods`` does not count."""
    return not any(amount > 0 for name, amount in named.items() if name != "pods")
