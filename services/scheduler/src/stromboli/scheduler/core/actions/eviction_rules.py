"""Preemptors and victim candidates of the evicting actions, and their order."""

import functools
import operator
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cmp_to_key

import numpy as np

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.scheduler.core.placement import extension_points

NEVER = "Never"
"""The preemption policy of pods that wait instead of evicting others."""
_PREEMPTED = ("DisruptionTarget", "True", "PreemptionByScheduler")


_Requests = Sequence[tuple[resource_vectors.Vector, list[int]]]
"""Request of some tasks, and the rows of the nodes that hold them."""
MayHaveVictims = Callable[[extension_points.Evictor, entities.Job], bool]
"""``Session.may_preempt`` or ``Session.may_reclaim``."""
NO_JOBS: frozenset[str] = frozenset()
MOST_SEARCHES = 8
"""Maximum number of searches for one gang, each without the jobs that would take back the room of
the previous one."""


class VictimIndex:
    """Tasks that may be evicted, by job and node.

    A search visits the jobs that may have victims for it, and the nodes that could hold a task
    without them. The resources that a job holds on each node are summed when first needed: O(its
    tasks). Tasks of the same priority are listed youngest first.
    """

    def __init__(
        self,
        ssn: session.Session,
        statuses: Iterable[entities.Status],
        may_have: MayHaveVictims,
    ) -> None:
        self._session = ssn
        self._statuses = frozenset(statuses)
        self._may_have = may_have
        self._on_node: dict[int, list[entities.Task]] = {}
        self._held: dict[str, _Requests] = {}
        self._jobs: dict[extension_points.Evictor, tuple[int, frozenset[str]]] = {}
        self._summed: tuple[frozenset[str], resource_vectors.Table] | None = None

    def jobs_for(
        self, job: entities.Job, is_victim: Callable[[entities.Job], bool]
    ) -> frozenset[str]:
        """Return the keys of the other jobs that may have victims for a job.

        ``is_victim``: the rule of the action, the same for all jobs of a queue. O(jobs with
        candidates) after a change of the session, O(1) otherwise for each queue and priority.
        """
        evictor = extension_points.Evictor(job.queue, job.priority)
        changes = len(self._session.nodes.touched)
        known = self._jobs.get(evictor)
        if known is None or known[0] != changes:
            evictable_jobs = frozenset(
                other.key
                for other in self._holders
                if is_victim(other) and self._may_have(evictor, other)
            )
            known = self._jobs[evictor] = changes, evictable_jobs
        return known[1] - {job.key} if job.key in known[1] else known[1]

    def on(self, row: int, jobs: Container[str]) -> list[entities.Task]:
        """Return the candidates of these jobs on a node, by queue, without those that have been
        evicted since."""
        listed = self._on_node.get(row)
        if listed is None:
            listed = self._on_node[row] = self._candidates(row)
        return [task for task in listed if task.job in jobs and task.status in self._statuses]

    def of_job(self, job: entities.Job) -> list[entities.Task]:
        """Return the candidates of a job on all nodes."""
        tasks = [] if job.frozen else job.with_status(*self._statuses)
        return [
            task for task in tasks if task.preemptable and task.node in self._session.nodes.rows
        ]

    def helpful_nodes(self, task: entities.Task, jobs: frozenset[str]) -> extension_points.Mask:
        """Return the nodes that could hold the task if all candidates of the jobs were evicted. No
        other node is worth a trial."""
        future = self._session.nodes.future_idle
        if jobs:
            future = future + self._held_by(jobs)
        return resource_vectors.fits(task.request, future) & self._session.nodes.labelled.usable

    @functools.cached_property
    def _holders(self) -> list[entities.Job]:
        """The jobs that had candidates at the first use in the session."""
        return [
            job
            for job in self._session.jobs.values()
            if not job.frozen and any(job.by_status.get(status) for status in self._statuses)
        ]

    def _candidates(self, row: int) -> list[entities.Task]:
        queued_tasks = []
        tasks = self._session.nodes.tasks[row].values()
        for task in sorted(tasks, key=_eviction_preference, reverse=True):
            job = self._session.job_of(task)
            if job is not None and not job.frozen and task.preemptable:
                queued_tasks.append((job.queue, task))
        return [task for _, task in sorted(queued_tasks, key=operator.itemgetter(0))]

    def _requests(self, key: str) -> _Requests:
        """What the candidates of a job request, and on which nodes; as of the first call."""
        known = self._held.get(key)
        if known is None:
            rows = self._session.nodes.rows
            by_class: dict[entities.TaskClass, tuple[resource_vectors.Vector, list[int]]] = {}
            job = self._session.jobs[key]
            for status in self._statuses:
                for task in job.by_status.get(status, {}).values():
                    row = rows.get(task.node)
                    if task.preemptable and row is not None:
                        by_class.setdefault(task.task_class, (task.request, []))[1].append(row)
            known = self._held[key] = list(by_class.values())
        return known

    def _held_by(self, jobs: frozenset[str]) -> resource_vectors.Table:
        """What the candidates of the jobs hold on each node. O(tasks of the jobs that differ from
        those of the previous call)."""
        if self._summed is None:
            self._summed = NO_JOBS, np.zeros_like(self._session.nodes.idle)
        before, total = self._summed
        if before != jobs:
            for key in jobs - before:
                for request, rows in self._requests(key):
                    np.add.at(total.T, rows, request)
            for key in before - jobs:
                for request, rows in self._requests(key):
                    np.subtract.at(total.T, rows, request)
            self._summed = jobs, total
        return self._summed[1]


def may_evict(ssn: session.Session, task: entities.Task) -> bool:
    """Return whether the pod may evict others now.

    Its preemption policy must allow it, and none of its earlier victims may still be terminating on
    its nominated node.
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
    """Return the jobs that may evict others: queue -> its jobs, in job order."""
    jobs_by_queue: dict[str, list[entities.Job]] = {}
    for job in ssn.waiting_jobs():
        is_tried = job.is_decidable and not job.is_pending and ssn.job_valid(job) is None
        is_tried = is_tried and not ssn.topology.problem(job)
        # A job that is held back behind its queue's first job may not evict either.
        is_tried = is_tried and ssn.job_starving(job) and not ssn.held_back(job)
        if is_tried and ssn.is_full:
            ssn.untried.add(job.key)
        elif is_tried:
            jobs_by_queue.setdefault(job.queue, []).append(job)
    return {queue: ssn.ordered_jobs(jobs) for queue, jobs in jobs_by_queue.items()}


def spare_jobs(search: Callable[[frozenset[str]], frozenset[str]]) -> None:
    """Search until no victim would take the room back, at most ``MOST_SEARCHES`` times. ``search``:
    jobs to spare -> jobs of its victims that would take the room back."""
    spared = NO_JOBS
    for _ in range(MOST_SEARCHES):
        more = search(spared)
        if not more:
            return
        spared |= more


def ordered_queues(ssn: session.Session, names: Iterable[str]) -> list[entities.Queue]:
    """Return the queues in the order in which they are served."""
    return sorted((ssn.queues[name] for name in names), key=cmp_to_key(ssn.compare_queues))


def _eviction_preference(task: entities.Task) -> tuple[int, float, str]:
    """Return a sort key that is higher for better victims: lower priority, then later creation."""
    return (-task.priority, task.created.timestamp(), task.key)


def _is_preempted(task: entities.Task) -> bool:
    return task.pod.metadata.deletion_timestamp is not None and any(
        (condition.type, condition.status, condition.reason) == _PREEMPTED
        for condition in task.pod.status.conditions
    )


def nodes_with_free_room(ssn: session.Session, task: entities.Task) -> extension_points.Mask:
    """Return the nodes on which the task fits without an eviction; none if it exceeds its queue's
    quota."""
    if not ssn.allocatable(ssn.queue_of(ssn.jobs[task.job]), task):
        return np.zeros(len(ssn.nodes), np.bool_)
    mask: extension_points.Mask = ssn.finder.filter_result(
        task
    ).passed_in_future & ssn.finder.fits_future(task)
    return mask
