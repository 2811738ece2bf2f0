"""Preemptors and victim candidates of the evicting actions, and their order."""

import functools
from collections.abc import Iterable
from functools import cmp_to_key

import numpy as np

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.scheduler.core.placement import extension_points

NEVER = "Never"
"""The preemption policy of pods that wait instead of evicting others."""
_PREEMPTED = ("DisruptionTarget", "True", "PreemptionByScheduler")


_Requests = dict[entities.TaskClass, tuple[resource_vectors.Vector, list[int]]]
"""Class of tasks -> their request, and the rows of the nodes that hold them."""


class VictimIndex:
    """Tasks that may be evicted, by queue and node, as of the first question of an action.

    Tasks of the same priority are listed youngest first. O(tasks) at the first question, O(tasks of
    the node) for each node.
    """

    def __init__(self, ssn: session.Session, statuses: Iterable[entities.Status]) -> None:
        self._session = ssn
        self._statuses = frozenset(statuses)
        self._on_node: dict[int, list[tuple[str, entities.Task]]] = {}
        self._summed: tuple[tuple[str, ...], resource_vectors.Table] | None = None

    @property
    def queues(self) -> list[str]:
        """The names of queues that have candidates."""
        return sorted(self._held)

    def on(self, row: int, queues: Iterable[str]) -> list[entities.Task]:
        """Return the candidates of these queues on a node, without those that have been evicted
        since."""
        listed = self._on_node.get(row)
        if listed is None:
            listed = self._on_node[row] = self._candidates(row)
        return [
            task
            for queue in queues
            for name, task in listed
            if name == queue and task.status in self._statuses
        ]

    def helpful_nodes(self, task: entities.Task, queues: Iterable[str]) -> extension_points.Mask:
        """Return the nodes that could hold the task if all candidates were evicted. No other node
        is worth a trial."""
        future = self._session.nodes.future_idle + self._held_by(tuple(queues))
        return resource_vectors.fits(task.request, future) & self._session.nodes.labelled.usable

    def _candidates(self, row: int) -> list[tuple[str, entities.Task]]:
        found = []
        tasks = self._session.nodes.tasks[row].values()
        for task in sorted(tasks, key=_eviction_preference, reverse=True):
            job = self._session.job_of(task)
            if job is not None and not job.frozen and task.preemptable:
                found.append((job.queue, task))
        return found

    @functools.cached_property
    def _held(self) -> dict[str, _Requests]:
        """Queue -> requests of its candidates."""
        found: dict[str, _Requests] = {}
        rows = self._session.nodes.rows
        for job in self._session.jobs.values():
            for status in () if job.frozen else self._statuses:
                for task in job.by_status.get(status, {}).values():
                    row = rows.get(task.node)
                    if task.preemptable and row is not None:
                        held = found.setdefault(job.queue, {})
                        held.setdefault(task.task_class, (task.request, []))[1].append(row)
        return found

    def _held_by(self, queues: tuple[str, ...]) -> resource_vectors.Table:
        """What the candidates of the queues hold on each node."""
        if self._summed is None or self._summed[0] != queues:
            total = np.zeros_like(self._session.nodes.idle)
            for queue in queues:
                for request, rows in self._held.get(queue, {}).values():
                    np.add.at(total.T, rows, request)
            self._summed = queues, total
        return self._summed[1]


def may_evict(ssn: session.Session, task: entities.Task) -> bool:
    """Return whether the pod may evict others now.

    Its preemption policy must allow it, and no earlier victims of it may be terminating on its
    nominated node.
    """
    if task.pod.spec.preemption_policy == NEVER:
        return False
    nominated = ssn.nodes.rows.get(task.pod.status.nominated_node_name)
    if nominated is None:
        return True
    filter_result = ssn.finder.filter_result(task)
    if filter_result.passed[nominated] and ssn.finder.fits_future(task)[nominated]:
        return False
    return not filter_result.resolvable[nominated] or not any(
        other.priority < task.priority and _is_preempted(other)
        for other in ssn.nodes.tasks[nominated].values()
    )


def pending_tasks(ssn: session.Session, job: entities.Job) -> list[entities.Task]:
    """Return the job's tasks that wait for a node and may be placed, in task order."""
    return ssn.ordered_tasks(task for task in job.pending if not task.is_gated)


def starving_jobs(ssn: session.Session) -> dict[str, list[entities.Job]]:
    """Return the jobs that may evict others by queue, in job order."""
    found: dict[str, list[entities.Job]] = {}
    for job in ssn.waiting_jobs():
        is_tried = job.is_decidable and not job.is_pending and ssn.job_valid(job) is None
        is_tried = is_tried and not ssn.topology.problem(job)
        # A job held back behind the head of its queue may not evict either.
        is_tried = is_tried and ssn.job_starving(job) and not ssn.held_back(job)
        if is_tried and ssn.is_full:
            ssn.untried.add(job.key)
        elif is_tried:
            found.setdefault(job.queue, []).append(job)
    return {queue: ssn.ordered_jobs(jobs) for queue, jobs in found.items()}


def ordered_queues(ssn: session.Session, names: Iterable[str]) -> list[entities.Queue]:
    """Return the queues in the order in which they are served."""
    return sorted((ssn.queues[name] for name in names), key=cmp_to_key(ssn.compare_queues))


def _eviction_preference(task: entities.Task) -> tuple[int, float, str]:
    """Return a sort key that is higher for better victims: low priority first, then youth."""
    return (-task.priority, task.created.timestamp(), task.key)


def _is_preempted(task: entities.Task) -> bool:
    return task.pod.metadata.deletion_timestamp is not None and any(
        (condition.type, condition.status, condition.reason) == _PREEMPTED
        for condition in task.pod.status.conditions
    )
