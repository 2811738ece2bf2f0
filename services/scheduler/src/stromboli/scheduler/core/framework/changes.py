"""The changes of a session to the cluster model, for rollback."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.shared.api import scheduling

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session


class _Before(msgspec.Struct, frozen=True):
    phase: str
    conditions: list[scheduling.PodGroupCondition]


class Changes:
    """The state of tasks before their first change, and of jobs when the session opened."""

    def __init__(self, ssn: "session.Session") -> None:
        self._session = ssn
        self._tasks: dict[str, tuple[entities.Task, entities.Status, str]] = {}
        self._held: dict[str, resource_vectors.Sum] = {}
        self._jobs: dict[str, _Before] = {}
        for job in ssn.waiting_jobs():
            self.note_job(job)

    def note_job(self, job: entities.Job) -> None:
        """Record a job before it changes."""
        self._jobs[job.key] = _Before(job.phase, list(job.conditions))

    def note(self, tasks: Sequence[entities.Task]) -> None:
        """Record tasks of one job before they change."""
        if tasks[0].status is entities.Status.ALLOCATED:
            return  # Only a session allocates, so these tasks are recorded already.
        for task in tasks:
            if task.key not in self._tasks:
                self._tasks[task.key] = (task, task.status, task.node)
        job = self._session.jobs.get(tasks[0].job)
        if job is not None and job.key not in self._held:
            self._held[job.key] = job.allocated

    def held(self, job: entities.Job) -> resource_vectors.Sum:
        """What the job's tasks held when the session opened; read-only."""
        return self._held.get(job.key, job.allocated)

    def rollback(self) -> None:
        """Restore the state at the opening of the session."""
        for task, status, node in self._tasks.values():
            # Evicted and nominated tasks keep their node; only a task without a node was moved.
            self._session.change(task, status, task.node)
            task.node = node
            task.eviction_occurred = False
            task.last_status, task.last_node = None, ""
        for key, before in self._jobs.items():
            job = self._session.jobs[key]
            job.phase, job.conditions = before.phase, before.conditions
        for key in self._jobs.keys() | self._held.keys():
            touched = self._session.jobs.get(key)
            if touched is not None:
                touched.fit_errors, touched.fit_error, touched.topology_error = {}, "", ""
                touched.is_unschedulable = touched.is_refused_by_queue = False
                touched.is_backing_off = False
        self._tasks.clear()
