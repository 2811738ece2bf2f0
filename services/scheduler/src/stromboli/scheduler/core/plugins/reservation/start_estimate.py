"""Estimates when and where a blocked gang can start: once enough running tasks have ended.

This is EASY backfill (Lifka, The ANL/IBM SP Scheduling System, 1995): the first job gets a start
time and the room that it will use; others may use that room until then. Room means resource amounts
on nodes. The estimate is computed from declared run times.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np

from stromboli.scheduler.core.framework import run_times, session
from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.scheduler.core.placement import extension_points


class Demand(msgspec.Struct, frozen=True, eq=False):
    """Equal tasks that need nodes at the same time. ``mask``: feasible nodes."""

    request: resource_vectors.Vector
    count: int
    mask: extension_points.Mask


class Reservation(msgspec.Struct, frozen=True, eq=False):
    """The start time and nodes of a gang. ``start``: None if unknown. ``rows``: node row -> the
    resources that the gang will use there."""

    job: str
    start: datetime | None
    rows: Mapping[int, resource_vectors.Vector]

    @property
    def need(self) -> resource_vectors.Sum:
        """Return the sum of the reserved resources; there is at least one row."""
        vectors = list(self.rows.values())
        return resource_vectors.sum_of(vectors, len(vectors[0]))


class EndTimes:
    """Known end times of placed tasks. O(tasks) to build, and to read after a change; ``add`` and
    ``remove`` follow placements."""

    def __init__(self, ssn: session.Session, known: run_times.RunTimes) -> None:
        self._session = ssn
        self._run_times = known
        self._ends: dict[str, tuple[float, int, resource_vectors.Vector]] = {}
        self._sorted: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        for job in ssn.jobs.values():
            if known.is_known(job):
                self.add(job.with_status(*entities.ALLOCATED, entities.Status.PIPELINED))

    def add(self, tasks: Iterable[entities.Task]) -> None:
        """Add tasks that were placed or nominated."""
        for task in tasks:
            row = self._session.nodes.rows.get(task.node)
            end = self._run_times.end(task)
            if row is not None and end is not None:
                self._ends[task.uid] = (end.timestamp(), row, task.request)
                self._sorted = None

    def remove(self, tasks: Iterable[entities.Task]) -> None:
        """Remove tasks."""
        for task in tasks:
            if self._ends.pop(task.uid, None) is not None:
                self._sorted = None

    def times(self) -> list[float]:
        """Return the distinct end times, ascending, in seconds since the epoch."""
        ends: list[float] = np.unique(self._table()[0]).tolist()
        return ends

    def ended_by(self, time: float) -> resource_vectors.Table:
        """Return the resources released by then, by node. O(tasks that end by then)."""
        ends, rows, requests = self._table()
        ended = np.zeros_like(self._session.nodes.idle)
        last = int(np.searchsorted(ends, time, side="right"))
        np.add.at(ended.T, rows[:last], requests[:last])
        return ended

    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._sorted is None:
            sorted_ends = sorted(self._ends.values(), key=lambda each: each[0])
            width = len(self._session.nodes.idle)
            self._sorted = (
                np.array([end for end, _, _ in sorted_ends], np.float64),
                np.array([row for _, row, _ in sorted_ends], np.intp),
                np.array([request for _, _, request in sorted_ends], np.int64).reshape(-1, width),
            )
        return self._sorted


def pack(
    room: resource_vectors.Table, demands: Sequence[Demand], order: Sequence[int]
) -> dict[int, resource_vectors.Vector] | None:
    """Return the resources that all demands take on each row of the room (resources x nodes), with
    nodes tried in this order; None if there is too little room. Exact for one demand; of several
    demands, the largest is placed first.

    O(demands x resources x nodes).
    """
    left = room.copy()
    used: dict[int, resource_vectors.Vector] = {}
    ranked = np.array(order, np.intp)
    for demand in sorted(demands, key=lambda each: tuple(-each.request)):
        requested = demand.request > 0
        fits = np.min(
            left[requested] // demand.request[requested, np.newaxis], axis=0, initial=demand.count
        )
        fits = np.where(demand.mask, np.maximum(fits, 0), 0)[ranked]
        until = np.cumsum(fits)
        if not len(until) or until[-1] < demand.count:
            return None
        task_counts = np.minimum(fits, np.maximum(demand.count - (until - fits), 0))
        for row, count in zip(
            ranked[task_counts > 0].tolist(), task_counts[task_counts > 0].tolist(), strict=True
        ):
            amount = demand.request * count
            left[:, row] -= amount
            used[row] = used[row] + amount if row in used else amount
    return used


def earliest(times: Sequence[float], fits: Callable[[float], bool]) -> float | None:
    """Return the earliest of ascending times at which ``fits`` holds, given that it stays true once
    it holds.

    O(log times) calls. Returns None if it does not hold at the last time.
    """
    if not times or not fits(times[-1]):
        return None
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(times[middle]):
            high = middle
        else:
            low = middle + 1
    return times[low]
