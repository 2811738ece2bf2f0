"""The changes of a session to the cluster model, for rollback."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.shared.api import scheduling

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session


class _Before(msgspec.Struct, frozen=True):
    phase: str
    conditions: list[scheduling.PodGroupCondition]


class _Run(NamedTuple):
    """Tasks of one class, job, role and status, with this status and the node of each."""

    tasks: Sequence[entities.Task]
    status: entities.Status
    nodes: list[str]


class Changes:
    """The state of tasks before their first change, and of jobs when the session opened.

    Tasks are recorded and restored in the runs in which they were changed, because a session
    changes thousands of them.
    """

    def __init__(self, ssn: "session.Session") -> None:
        self._session = ssn
        self._runs: list[_Run] = []
        self._noted: set[entities.Task] = set()
        """The tasks of all runs."""
        self._held: dict[str, resource_vectors.Sum] = {}
        self._jobs: dict[str, _Before] = {}
        for job in ssn.waiting_jobs():
            self.note_job(job)

    def note_job(self, job: entities.Job) -> None:
        """Record a job before it changes."""
        self._jobs[job.key] = _Before(job.phase, list(job.conditions))

    def note(self, tasks: Sequence[entities.Task]) -> None:
        """Record tasks of one class, job, role and status before they change."""
        if tasks[0].status is entities.Status.ALLOCATED:
            return  # Only a session allocates, so these tasks are recorded already.
        if not self._noted.isdisjoint(tasks):
            tasks = [task for task in tasks if task not in self._noted]
        if not tasks:
            return
        self._noted.update(tasks)
        self._runs.append(_Run(tasks, tasks[0].status, [task.node for task in tasks]))
        job = self._session.jobs.get(tasks[0].job)
        if job is not None and job.key not in self._held:
            self._held[job.key] = job.allocated

    def held(self, job: entities.Job) -> resource_vectors.Sum:
        """The resources that the job's tasks held when the session opened; read-only."""
        return self._held.get(job.key, job.allocated)

    def rollback(self) -> None:
        """Restore the state at the opening of the session."""
        for run in self._runs:
            self._restore(run)
        for key, before in self._jobs.items():
            job = self._session.jobs[key]
            job.phase, job.conditions = before.phase, before.conditions
        for key in self._jobs.keys() | self._held.keys():
            touched = self._session.jobs.get(key)
            if touched is not None:
                touched.fit_errors, touched.fit_error, touched.topology_error = {}, "", ""
                touched.is_unschedulable = touched.is_refused_by_queue = False
                touched.is_backing_off = False
        self._runs.clear()
        self._noted.clear()

    def _restore(self, run: _Run) -> None:
        by_status: dict[entities.Status, list[entities.Task]] = {}
        for task in run.tasks:
            by_status.setdefault(task.status, []).append(task)
        for tasks in by_status.values():
            # A task that had a node before is still on it: sessions move no task between nodes.
            self._session.change_run(tasks, run.status, [task.node for task in tasks])
        for task, node in zip(run.tasks, run.nodes, strict=True):
            task.node = node
            task.eviction_occurred = False
            task.last_status, task.last_node = None, ""
