"""Sums over the jobs of each queue, maintained while jobs change.

Opening a session therefore costs O(queues) and not O(jobs and pods).
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from datetime import datetime, timedelta

import numpy as np

from stromboli.scheduler.core.model import entities, resource_columns, resource_vectors

QUEUE_ALLOCATION_GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""The scheduling gate that this scheduler removes when the queue has room."""

PODS_EXPECTED_WITHIN = timedelta(minutes=1)
"""How long pods of an admitted job may be missing. Their creation takes seconds. The limit covers
pods that cannot be created and operators that keep the PodGroup of a suspended job."""

MAX_SHARED_SUMS = 1_000


class UsageTotals:
    """Sums by resource over the jobs of a queue. ``jobs``: their number."""

    __slots__ = ("_rows", "jobs", "table")

    def __init__(self, width: int) -> None:
        self.table: resource_vectors.Sum = np.zeros((4, width), np.object_)
        self.jobs = 0
        self._rows: list[list[int]] | None = None

    @property
    def rows(self) -> list[list[int]]:
        """The sums as lists in the order allocated, request, elastic, inqueue; read-only. The same
        lists until a job of the queue changes."""
        if self._rows is None:
            self._rows = self.table.tolist()
        return self._rows

    def change(self, part: resource_vectors.Sum, jobs: int) -> None:
        """Add the sums of a job (``jobs`` 1), or subtract them (-1)."""
        if jobs > 0:
            self.table += part
        else:
            self.table -= part
        self.jobs += jobs
        self._rows = None

    def move_columns(self, sources: resource_columns.Sources) -> None:
        """Rearrange the sums after a change of the resource columns."""
        self.table = resource_vectors.moved(self.table, sources)
        self._rows = None

    @property
    def allocated(self) -> resource_vectors.Sum:
        """Resources that tasks hold."""
        row: resource_vectors.Sum = self.table[0]
        return row

    @property
    def request(self) -> resource_vectors.Sum:
        """Resources that tasks hold or that pending tasks request."""
        row: resource_vectors.Sum = self.table[1]
        return row

    @property
    def elastic(self) -> resource_vectors.Sum:
        """Resources that jobs hold beyond their minimum resources."""
        row: resource_vectors.Sum = self.table[2]
        return row

    @property
    def inqueue(self) -> resource_vectors.Sum:
        """Resources that jobs still lack for their minimum resources (``inqueue_request``)."""
        row: resource_vectors.Sum = self.table[3]
        return row


class QueueUsage:
    """Totals by queue."""

    def __init__(self, width: int) -> None:
        self.queues: dict[str, UsageTotals] = {}
        """Only queues with jobs."""
        self.lapsed: frozenset[str] = frozenset()
        """Inqueue jobs for which no room is kept."""
        self._width = width
        self._parts: dict[str, tuple[str, resource_vectors.Sum]] = {}
        """Job -> its queue and its sums, which never change in place."""
        self._shared: dict[tuple[Hashable, ...], resource_vectors.Sum] = {}
        """What the sums of jobs without pending tasks depend on -> the sums. In a large cluster
        most jobs have the same sums as others."""
        self._arrived: dict[str, None] = {}
        """Inqueue jobs without pods since the last call of ``without_pods``."""
        self._awaited: dict[str, datetime] = {}
        """Inqueue job without pods -> since when, the longest wait first."""

    def put(self, job: entities.Job) -> None:
        """Add or update a job. O(its pending and gated tasks)."""
        self._subtract(job.key)
        if job.phase != "Inqueue" or job.tasks:
            self._stop_waiting(job.key)
        elif job.key not in self._awaited:
            self._arrived[job.key] = None
        part = self._sums(job)
        self._parts[job.key] = (job.queue, part)
        totals = self.queues.get(job.queue)
        if totals is None:
            totals = self.queues[job.queue] = UsageTotals(self._width)
        totals.change(part, 1)

    def _sums(self, job: entities.Job) -> resource_vectors.Sum:
        """The job's rows of ``UsageTotals.table``."""
        keeps_room = job.key not in self.lapsed and _lacks_room(job)
        if job.unplaced or job.gated:
            return self._new_sums(job, keeps_room=keeps_room)
        least = () if job.min_request is None else tuple(job.min_request.tolist())
        key = (tuple(job.allocated.tolist()), least, keeps_room)
        sums = self._shared.get(key)
        if sums is None:
            if len(self._shared) >= MAX_SHARED_SUMS:
                self._shared.clear()
            sums = self._shared[key] = self._new_sums(job, keeps_room=keeps_room)
        return sums

    def _new_sums(self, job: entities.Job, *, keeps_room: bool) -> resource_vectors.Sum:
        sums: resource_vectors.Sum = np.zeros((4, self._width), np.object_)
        sums[0], sums[1], sums[2] = job.allocated, job_request(job), job.elastic
        if keeps_room:
            sums[3] = inqueue_request(job)
        return sums

    def drop(self, key: str) -> None:
        """Remove a job, if it is there."""
        self._subtract(key)
        self._stop_waiting(key)

    def keep_no_room_for(self, keys: frozenset[str], jobs: Mapping[str, entities.Job]) -> None:
        """Replace the set of lapsed jobs. O(different jobs)."""
        different = keys ^ self.lapsed
        self.lapsed = keys
        for key in different & jobs.keys():
            self.put(jobs[key])

    def without_pods(self, now: datetime) -> tuple[list[str], datetime | None]:
        """The Inqueue jobs without pods for ``PODS_EXPECTED_WITHIN``, and the time at which the
        next job may be among them. Times are not stored: they begin again after a restart.
        O(arrived and found jobs).
        """
        for key in self._arrived:
            self._awaited[key] = now
        self._arrived.clear()
        job_keys: list[str] = []
        for key, since in self._awaited.items():
            due = min(since, now) + PODS_EXPECTED_WITHIN  # the clock may have been set back
            if now < due:
                return job_keys, due
            job_keys.append(key)
        return job_keys, None

    def _stop_waiting(self, key: str) -> None:
        self._arrived.pop(key, None)
        self._awaited.pop(key, None)

    def _subtract(self, key: str) -> None:
        queue, part = self._parts.pop(key, ("", None))
        if part is not None:
            totals = self.queues[queue]
            totals.change(part, -1)
            if not totals.jobs:
                del self.queues[queue]

    def move_columns(self, sources: resource_columns.Sources) -> None:
        """Rearrange the sums after a change of the resource columns. O(jobs x resources)."""
        self._width = len(sources)
        self._shared.clear()
        for totals in self.queues.values():
            totals.move_columns(sources)
        for key, (queue, part) in self._parts.items():
            self._parts[key] = (queue, resource_vectors.moved(part, sources))


def job_request(job: entities.Job) -> resource_vectors.Sum:
    """What the job holds and what its pending tasks request. O(pending tasks)."""
    if not job.unplaced:
        return job.allocated
    total: resource_vectors.Sum = job.allocated + sum_of_requests(job.unplaced, len(job.allocated))
    return total


def sum_of_requests(tasks: Collection[entities.Task], width: int) -> resource_vectors.Sum:
    """The sum of the tasks' requests. O(tasks), and O(width) for each different request."""
    kinds = {task.task_class.shape: task.request_sum for task in tasks}
    if len(kinds) == 1:  # most gangs: a sum of vectors takes ten times as long
        (only,) = kinds.values()
        return only if len(tasks) == 1 else only * len(tasks)
    counts = Counter(task.task_class.shape for task in tasks)
    return resource_vectors.sum_of([each * counts[shape] for shape, each in kinds.items()], width)


def without_gated(
    job: entities.Job, amount: resource_vectors.Vector | resource_vectors.Sum
) -> resource_vectors.Sum:
    """The amount minus what gated tasks request, never below zero.

    A task whose only gate is ``QUEUE_ALLOCATION_GATE`` counts as ungated.
    """
    gated = [task for task in job.gated.values() if not is_gated_by_queue_only(task)]
    return resource_vectors.excess(amount, sum_of_requests(gated, len(amount)))


def is_gated_by_queue_only(task: entities.Task) -> bool:
    """Whether ``QUEUE_ALLOCATION_GATE`` is the task's only scheduling gate."""
    return tuple(gate.name for gate in task.pod.spec.scheduling_gates) == (QUEUE_ALLOCATION_GATE,)


def inqueue_request(job: entities.Job) -> resource_vectors.Sum:
    """What an Inqueue job, or a running gang with its minimum of tasks, still lacks of its minimum
    resources; else zero. A running gang below its minimum lacks nothing: a task may have finished.
    """
    if job.min_request is None or not _lacks_room(job):
        return np.zeros_like(job.allocated)
    lacking = resource_vectors.excess(job.min_request, job.allocated)
    return without_gated(job, lacking) if job.gated else lacking


def _lacks_room(job: entities.Job) -> bool:
    """Whether the job may lack a part of its minimum resources."""
    return job.phase == "Inqueue" or (
        job.phase == "Running" and job.count_in(entities.ALLOCATED) >= job.min_available
    )
