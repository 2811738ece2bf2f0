"""Chooses the nodes that fetch the data sets of waiting gangs before these start.

A gang waits for resources or, with ``Required`` data sets, for its data. For each of its pods that
it needs to start, a node is chosen on which the pod is feasible apart from its data, and whose
cache has room. Nodes are preferred in this order, so that the choice is stable during a fetch:

1. with idle resources now, else once terminating pods have ended, else when the node is empty;
2. that have the data or are to have it;
3. with the least time to fetch; then by row.

Gangs choose in two turns, each in the order in which they are served:

1. Gangs that wait for ``Required`` data and for nothing else: all of their pods have idle nodes
   with room in their caches, and not all of these have the data. Such a gang takes room
   for all of its pods or none, and starts once the data arrives.
2. All other gangs, in the room that is left. So a gang that may never start does not delay the
   data of other gangs.
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
"""Beginning of the reason for nodes that are feasible once they have the data."""
MOST_GANGS = 32
"""Maximum number of gangs for which a session prefetches, in each turn; each costs a few passes
over nodes."""
MOST_TRIED = 256
"""Maximum number of waiting gangs that a session considers, the first ones in job order."""
REQUIRED, PREFERRED = 500, 100
"""Lowest priorities of a gang's data sets: below the priority of data sets of placed pods, which
wait for their data."""


def candidates(ssn: session.Session, *, with_preferred: bool) -> list[entities.Job]:
    """The gangs to prefetch for, in the order in which they are served. ``with_preferred``: also
    for gangs that start without their data. O(waiting jobs + their pending tasks)."""
    jobs = [
        job
        for job in ssn.waiting_jobs()
        if job.phase == "Inqueue"
        and job.is_decidable
        and any(_is_wanted(task, with_preferred=with_preferred) for task in job.pending)
    ]
    return ssn.ordered_jobs(jobs)[:MOST_TRIED] if jobs else []


def _is_wanted(task: entities.Task, *, with_preferred: bool) -> bool:
    requests = () if task.is_gated else task.task_class.data_sets
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
    urgencies = {job.key: max(MOST_GANGS - at, 0) for at, job in enumerate(jobs)}
    startable: set[str] = set()
    for job in jobs:
        if len(startable) >= MOST_GANGS:
            break
        if chosen.put_startable(job, urgencies[job.key]):
            startable.add(job.key)
    others = [job for job in jobs if job.key not in startable]
    for job in others[:MOST_GANGS]:
        chosen.put(job, urgencies[job.key])
    return chosen.result()


class _Choice:
    """The nodes chosen so far. ``_reserved``: bytes that the choice takes, by row."""

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

    def put_startable(self, job: entities.Job, urgency: int) -> bool:
        """Choose nodes if the gang waits for required data only (turn 1); else change nothing.
        Returns whether nodes were chosen."""
        task_groups = self._classes(job)
        if not any(_is_required(tasks[0].task_class.data_sets) for tasks in task_groups):
            return False
        before = self._reserved.copy(), {row: dict(each) for row, each in self._copies.items()}
        lacks_data = False
        for tasks in task_groups:
            rows, left = self._put_class(job, tasks, urgency, idle_only=True)
            if left > 0:
                lacks_data = False
                break
            for request in tasks[0].task_class.data_sets:
                lacks_data = lacks_data or not self._estimates.complete(request)[rows].all()
        if not lacks_data:
            self._reserved, self._copies = before
        return lacks_data

    def put(self, job: entities.Job, urgency: int) -> None:
        """Choose nodes for as many of the gang's pods as possible (turn 2)."""
        for tasks in self._classes(job):
            self._put_class(job, tasks, urgency, idle_only=False)

    def _classes(self, job: entities.Job) -> list[list[entities.Task]]:
        """The tasks with data sets that the gang needs to start, by class."""
        left = max(job.min_available - job.ready, 1)
        of_class: dict[entities.TaskClass, list[entities.Task]] = {}
        waiting = [task for task in job.pending if not task.is_gated]
        for task in self._session.ordered_tasks(waiting)[:left]:
            of_class.setdefault(task.task_class, []).append(task)
        return [tasks for kind, tasks in of_class.items() if kind.data_sets]

    def result(self) -> dict[str, tuple[data.WantedCopy, ...]]:
        """Node -> the copies, ordered by key."""
        names = self._session.nodes.names
        return {
            names[row]: tuple(copies[key] for key in sorted(copies))
            for row, copies in sorted(self._copies.items())
        }

    def _put_class(
        self, job: entities.Job, tasks: Sequence[entities.Task], urgency: int, *, idle_only: bool
    ) -> tuple[list[int], int]:
        """Choose nodes for equal tasks: the rows, and the number of tasks without a node."""
        task, count = tasks[0], len(tasks)
        requests = task.task_class.data_sets
        added = self._added_bytes(requests)
        fits = self._room.held_bytes + self._reserved + added <= self._room.capacity
        feasible = self._feasible(task) & fits & (self._room.capacity > 0)
        if idle_only:
            feasible &= self._session.finder.fits_idle(task)
        base = REQUIRED if _is_required(requests) else PREFERRED
        rows: list[int] = []
        for row in self._ordered(task, np.flatnonzero(feasible)):
            if count <= 0:
                break
            rows.append(row)
            count -= self._pods_of(task, row)
            self._reserved[row] += added[row]
            copies = self._copies.setdefault(row, {})
            for request in requests:
                if request.key:
                    copies.setdefault(request.key, _copy(request, base + urgency, job.key))
        return rows, count

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
        requested = np.flatnonzero(task.request > 0)
        if not requested.size:
            return 1
        nodes = self._session.nodes
        idle = nodes.idle[requested, row]
        free = (
            idle if (idle >= task.request[requested]).all() else nodes.allocatable[requested, row]
        )
        return max(int((free // task.request[requested]).min()), 1)


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
