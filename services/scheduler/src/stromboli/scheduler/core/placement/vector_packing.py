"""Packs tasks with different requests onto nodes, for gangs that greedy placement fails to place.

Greedy placement takes tasks in their order and the node with the best score, so a small task may
take the only room that a large one fits. ``pack`` searches for nodes for all tasks together:

1. The largest kind of task is placed first, on the nodes on which it leaves the least room.
2. If that fails and there are few tasks and nodes, a depth-first search tries the other counts per
   node, with at most ``MAX_STEPS`` steps. It is exact if it ends within this limit.

Vector packing is NP-hard; best-fit decreasing needs at most 11/9 of the optimum plus a constant in
one dimension (Johnson et al. 1974), so the search helps only on small and full clusters.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import resource_vectors

MAX_SEARCHED = 32
"""Largest number of tasks, and of nodes with room for any of them, for which the search runs."""
MAX_STEPS = 1000
"""Number of nodes that the search fills before it gives up: about 20 ms."""

Counts = dict[int, int]
"""Node (row) -> number of tasks."""


class Demand(msgspec.Struct, frozen=True, eq=False):
    """``count`` tasks of one kind. ``mask``: the nodes that may take them."""

    request: resource_vectors.Vector
    count: int
    mask: npt.NDArray[np.bool_]


def pack(room: resource_vectors.Table, demands: Sequence[Demand]) -> list[Counts] | None:
    """The nodes of each demand's tasks, in the order of ``demands``; None if no packing is found.

    ``room``: resources x nodes. O(demands x resources x nodes), and the search.
    """
    left = np.maximum(room, 0)
    needed = sum((each.request * each.count for each in demands), np.zeros_like(left[:, 0]))
    if np.any(needed > left.sum(axis=1)):
        return None
    scale = np.maximum(left.max(axis=1, initial=0), 1).astype(np.float64)
    order = sorted(range(len(demands)), key=lambda at: -float((demands[at].request / scale).max()))
    search = _Search(left, scale, [demands[at] for at in order])
    solution = search.greedy() or search.exhaustive()
    if solution is None:
        return None
    placed: list[Counts] = [{} for _ in demands]
    for at, counts in zip(order, solution, strict=True):
        placed[at] = counts
    return placed


class _Search:
    """``demands``: the largest first. ``scale``: the most that a node has of each resource."""

    def __init__(
        self,
        left: resource_vectors.Table,
        scale: npt.NDArray[np.float64],
        demands: Sequence[Demand],
    ) -> None:
        self._remaining = left
        self._scale = scale
        self._demands = demands
        self._steps = MAX_STEPS

    def greedy(self) -> list[Counts] | None:
        """Fill the tightest nodes with each demand in turn; None if a demand finds too little
        room."""
        left = self._remaining.copy()
        packing: list[Counts] = []
        for demand in self._demands:
            rows, fits = self._ranked(left, demand)
            before = np.cumsum(fits) - fits
            task_counts = np.clip(demand.count - before, 0, fits)
            if int(task_counts.sum()) < demand.count:
                return None
            left[:, rows] -= demand.request[:, np.newaxis] * task_counts
            used = task_counts > 0
            packing.append(dict(zip(rows[used].tolist(), task_counts[used].tolist(), strict=True)))
        return packing

    def exhaustive(self) -> list[Counts] | None:
        """The first solution of the depth-first search; None if there is none, or if the search is
        too large."""
        usable = {
            row for each in self._demands for row in self._ranked(self._remaining, each)[0].tolist()
        }
        tasks = sum(each.count for each in self._demands)
        if len(usable) > MAX_SEARCHED or tasks > MAX_SEARCHED:
            return None
        return self._placed(0, self._remaining.copy())

    def _placed(self, at: int, left: resource_vectors.Table) -> list[Counts] | None:
        """The nodes for the tasks of this demand and of all later demands."""
        if at == len(self._demands):
            return []
        rows, fits = self._ranked(left, self._demands[at])
        return self._filled(at, left, rows, fits, self._demands[at].count)

    def _filled(
        self,
        at: int,
        left: resource_vectors.Table,
        rows: npt.NDArray[np.intp],
        fits: npt.NDArray[np.int64],
        count: int,
    ) -> list[Counts] | None:
        """The nodes among these for ``count`` tasks of this demand, and the nodes for all later
        demands."""
        if count == 0:
            later = self._placed(at + 1, left)
            return None if later is None else [{}, *later]
        if int(fits.sum()) < count:
            return None
        row = int(rows[0])
        for task_count in range(min(int(fits[0]), count), -1, -1):
            self._steps -= 1
            if self._steps < 0:
                return None
            left[:, row] -= self._demands[at].request * task_count
            packing = self._filled(at, left, rows[1:], fits[1:], count - task_count)
            left[:, row] += self._demands[at].request * task_count
            if packing is not None:
                if task_count:
                    packing[0][row] = task_count
                return packing
        return None

    def _ranked(
        self, left: resource_vectors.Table, demand: Demand
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
        """Nodes with room for a task of the demand, and for how many; the nodes on which its tasks
        leave the least room come first."""
        requested = np.flatnonzero(demand.request > 0)
        fits = np.where(demand.mask, demand.count, 0).astype(np.int64)
        if requested.size:
            most = (left[requested] // demand.request[requested, np.newaxis]).min(axis=0)
            fits = np.minimum(fits, most)
        rows = np.flatnonzero(fits > 0)
        spare = left[:, rows] - demand.request[:, np.newaxis] * fits[rows]
        slack = (spare[requested] / self._scale[requested, np.newaxis]).sum(axis=0)
        rows = rows[np.argsort(slack, kind="stable")]
        return rows, fits[rows]
