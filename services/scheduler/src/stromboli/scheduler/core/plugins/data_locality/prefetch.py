"""Chooses the nodes that fetch the data sets of waiting gangs before these start.

A gang waits for resources or, with ``Required`` data sets, for its data. For each of its pods that
it needs to start, a node is chosen on which the pod is feasible apart from its data, and whose
cache has room. Nodes are preferred in this order, so that the choice is stable during a fetch:

1. with idle resources now, else once terminating pods have ended, else when the node is empty;
2. that have the data or are to have it;
3. with the least time to fetch; then by row.

Gangs choose in the order in which they are served, so that the first ones get the room.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.data_locality import cache_room, fetch_times
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data

LACKS = "node(s) lack required data sets"
"""Begin of the reason of nodes that are feasible once they have the data."""
MOST_GANGS = 32
"""Maximum number of gangs for which a session prefetches; each costs a few passes over nodes."""
REQUIRED, PREFERRED = 500, 100
"""Lowest priorities of a gang's data sets: below those of placed pods, which wait for theirs."""


def candidates(ssn: session.Session, *, with_preferred: bool) -> list[entities.Job]:
    """The gangs to prefetch for, in the order in which they are served. ``with_preferred``: also
    for gangs that start without their data. O(waiting jobs + their pending tasks)."""
    found = [
        job
        for job in ssn.waiting_jobs()
        if job.phase == "Inqueue"
        and job.is_decidable
        and any(_is_wanted(task, with_preferred=with_preferred) for task in job.pending)
    ]
    return ssn.ordered_jobs(found)[:MOST_GANGS] if found else []


def _is_wanted(task: entities.Task, *, with_preferred: bool) -> bool:
    requests = task.task_class.data_sets
    return any(each.key for each in requests) and (with_preferred or _is_required(requests))


def _is_required(requests: Sequence[data_sets.DataSetRequest]) -> bool:
    return any(each.locality == data_sets.REQUIRED for each in requests)


def plan(
    ssn: session.Session,
    jobs: Sequence[entities.Job],
    room: cache_room.CacheRoom,
    estimates: fetch_times.FetchEstimates,
) -> dict[str, tuple[data.WantedCopy, ...]]:
    """Node -> the data sets to fetch. O(gangs x nodes)."""
    chosen = _Choice(ssn, room, estimates)
    for position, job in enumerate(jobs):
        chosen.put(job, MOST_GANGS - position)
    return chosen.result()


class _Choice:
    """The choice so far. ``_reserved``: bytes that it takes, by row."""

    def __init__(
        self,
        ssn: session.Session,
        room: cache_room.CacheRoom,
        estimates: fetch_times.FetchEstimates,
    ) -> None:
        self._session = ssn
        self._room = room
        self._estimates = estimates
        self._reserved = np.zeros(len(ssn.nodes), np.int64)
        self._copies: dict[int, dict[str, data.WantedCopy]] = {}

    def put(self, job: entities.Job, urgency: int) -> None:
        """Choose nodes for the pods that the gang needs to start."""
        left = max(job.min_available - job.ready, 1)
        of_class: dict[entities.TaskClass, list[entities.Task]] = {}
        for task in self._session.ordered_tasks(job.pending)[:left]:
            of_class.setdefault(task.task_class, []).append(task)
        for tasks in of_class.values():
            if tasks[0].task_class.data_sets:
                self._put_class(job, tasks, urgency)

    def result(self) -> dict[str, tuple[data.WantedCopy, ...]]:
        """Node -> the copies, ordered by key."""
        names = self._session.nodes.names
        return {
            names[row]: tuple(copies[key] for key in sorted(copies))
            for row, copies in sorted(self._copies.items())
        }

    def _put_class(self, job: entities.Job, tasks: Sequence[entities.Task], urgency: int) -> None:
        task, count = tasks[0], len(tasks)
        requests = task.task_class.data_sets
        added = self._added_bytes(requests)
        fits = self._room.held_bytes + self._reserved + added <= self._room.capacity
        feasible = self._feasible(task) & fits & (self._room.capacity > 0)
        base = REQUIRED if _is_required(requests) else PREFERRED
        for row in self._ordered(task, np.flatnonzero(feasible)):
            if count <= 0:
                break
            count -= self._pods_of(task, row)
            self._reserved[row] += added[row]
            copies = self._copies.setdefault(row, {})
            for request in requests:
                if request.key:
                    copies.setdefault(request.key, _copy(request, base + urgency, job.key))

    def _added_bytes(self, requests: Sequence[data_sets.DataSetRequest]) -> cache_room.Bytes:
        """The bytes of the data sets, without those that pods or the choice hold there already."""
        added = self._room.added_bytes(requests)
        for row, copies in self._copies.items():
            known = sum(
                self._room.size(key)
                for key in cache_room.keys_of(requests)
                if key in copies and not self._room.held(key)[row]
            )
            added[row] -= known
        return added

    def _feasible(self, task: entities.Task) -> extension_points.Mask:
        """The nodes that only lack the data, or room that other pods use."""
        mask: extension_points.Mask = self._session.nodes.labelled.usable.copy()
        for check in self._session.finder.filter_result(task).checks:
            if not check.reason.startswith(LACKS) and (
                check.is_lasting or check.code is not extension_points.Code.UNSCHEDULABLE
            ):
                mask &= check.passed
        mask &= resource_vectors.fits(task.request, self._session.nodes.allocatable)
        return mask

    def _ordered(self, task: entities.Task, rows: npt.NDArray[np.intp]) -> list[int]:
        finder, requests = self._session.finder, task.task_class.data_sets
        idle, future = finder.fits_idle(task)[rows], finder.fits_future(task)[rows]
        busy = np.where(idle, 0, np.where(future, 1, 2))
        absent = np.zeros(len(rows), np.int64)
        for request in requests:
            absent += ~self._estimates.arriving(request)[rows]
        seconds = self._estimates.times(requests).seconds[rows]
        order = np.lexsort((rows, seconds, absent, busy))
        return [int(row) for row in rows[order]]

    def _pods_of(self, task: entities.Task, row: int) -> int:
        """How many of the pods the node takes; at least one."""
        asked = np.flatnonzero(task.request > 0)
        if not asked.size:
            return 1
        nodes = self._session.nodes
        idle = nodes.idle[asked, row]
        free = idle if (idle >= task.request[asked]).all() else nodes.allocatable[asked, row]
        return max(int((free // task.request[asked]).min()), 1)


def _copy(request: data_sets.DataSetRequest, priority: int, job: str) -> data.WantedCopy:
    return data.WantedCopy(
        key=request.key,
        uri=request.uri,
        digest=request.digest,
        bytes=request.bytes,
        priority=priority,
        pinned=request.locality == data_sets.REQUIRED,
        reason=f"pending gang {job}",
    )
