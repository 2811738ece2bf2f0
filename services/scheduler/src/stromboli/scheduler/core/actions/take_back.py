"""Checks, before evictions are committed, that the evicted pods do not take the room back.

Jobs create evicted pods again, and the next session serves these and the gang in its usual order. A
trial does the same now: it makes the victims pending and serves their jobs and the gang as
``allocate`` and ``backfill`` would. A gang that does not start in the trial would evict again in
each session, without end. Victims compete with the gang if they are in its queue, or in a queue
that is within its share: as in Volcano, what another queue holds beyond its share may be evicted
even if that queue is served first. Cost: at most one ``allocate`` of these jobs for each statement.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cmp_to_key

import numpy as np

from stromboli.scheduler.core.actions import allocate, eviction_rules
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import (
    entities,
    requirements,
    resource_vectors,
    topology_domains,
)

_PLACED = (entities.Status.ALLOCATED, entities.Status.PIPELINED)


def jobs_taking_back(
    ssn: session.Session, job: entities.Job, stmt: statement.Statement
) -> frozenset[str]:
    """Return the jobs whose evicted pods would take the room back, so that the gang would not start
    or, if it has started before, not get all nominated pods. Empty if the gang gets its room.

    Serves the gang and its victims as the next session would. Changes nothing. The result is empty
    too if no victim is placed again: evictions then end, since fewer pods are left each time.
    """
    tasks = {kind: [*_tasks(stmt, kind)] for kind in ("evict", "pipeline")}
    rivals = _rivals(ssn, job, tasks["evict"])
    if not rivals:
        return eviction_rules.NO_JOBS
    trial, taking_back = ssn.statement(), eviction_rules.NO_JOBS
    trial.requeue(tasks["pipeline"])
    trial.requeue(rivals)
    needed = len(tasks["pipeline"]) if ssn.job_pipelined(job) else 0
    jobs = [*{job.key: job, **{rival.job: ssn.jobs[rival.job] for rival in rivals}}.values()]
    explanations = [_Explanation(each) for each in jobs]

    def is_served() -> bool:
        return ssn.job_pipelined(job) and _count_placed(job, rivals, trial) >= needed

    with ssn.finder.future(), ssn.topology.confined(topology_domains.ROOT_INDEX):
        allocate.rehearse(ssn, jobs, trial, is_served)
        if not is_served():
            _place_best_effort(ssn, jobs, trial)
    if not is_served():
        taking_back = frozenset(rival.job for rival in rivals if rival.status in _PLACED)
    trial.discard()
    for each in jobs:
        ssn.job_order_changed(each)
    for explanation in explanations:
        explanation.restore()
    return taking_back


def _tasks(stmt: statement.Statement, kind: str) -> Iterator[entities.Task]:
    return (task for each in stmt.operations if each.kind == kind for task in each.tasks)


def _rivals(
    ssn: session.Session, job: entities.Job, victims: Sequence[entities.Task]
) -> list[entities.Task]:
    """Return the victims that compete with the gang: those of its queue, and those whose queue held
    no more than its share before their eviction."""
    own, rivals = ssn.queue_of(job), []
    freed: dict[str, resource_vectors.Vector] = {}
    for victim in reversed(victims):
        queue = ssn.queue_of(ssn.jobs[victim.job])
        if queue is not own:
            freed[queue.name] = victim.request + freed.get(queue.name, 0)
        if queue is own or _is_within_share(ssn, queue, victim, freed[queue.name]):
            rivals.append(victim)
    return rivals[::-1]


def _is_within_share(
    ssn: session.Session,
    queue: entities.Queue,
    task: entities.Task,
    freed: resource_vectors.Vector,
) -> bool:
    """Return whether the queue held no more than it deserves of each resource that the task
    requests, before ``freed`` was evicted; True if no plugin divides the cluster."""
    share = ssn.queue_usage(queue)
    if share is None:
        return True
    columns = set(np.flatnonzero(task.request).tolist()) - {requirements.PODS}
    return all(
        share.allocated[column] + freed[column] <= share.deserved[column] for column in columns
    )


def _count_placed(
    job: entities.Job, rivals: Iterable[entities.Task], trial: statement.Statement
) -> int:
    """Return the number of the job's tasks that the trial places, without its own victims."""
    uids = {rival.uid for rival in rivals}
    return sum(
        task.job == job.key and task.uid not in uids and task.status in _PLACED
        for each in trial.operations
        if each.kind in {"allocate", "pipeline"}
        for task in each.tasks
    )


def _place_best_effort(
    ssn: session.Session, jobs: Iterable[entities.Job], trial: statement.Statement
) -> None:
    """Place pods that request nothing, in the order of queues, jobs and tasks."""
    by_queue: dict[str, list[entities.Job]] = {}
    for job in jobs:
        if job.pending_best_effort:
            by_queue.setdefault(job.queue, []).append(job)
    for queue in sorted(map(ssn.queues.__getitem__, by_queue), key=cmp_to_key(ssn.compare_queues)):
        for job in ssn.ordered_jobs(by_queue[queue.name]):
            for task in eviction_rules.pending_tasks(ssn, job):
                if task.is_best_effort and ssn.finder.pre_predicate(task) is None:
                    room = eviction_rules.nodes_with_free_room(ssn, task)
                    if room.any():
                        trial.pipeline(task, ssn.finder.best(task, room))


class _Explanation:
    """What a session explains about a job, as before a trial."""

    def __init__(self, job: entities.Job) -> None:
        self._job = job
        self._errors = dict(job.fit_errors)
        self._error, self._topology = job.fit_error, job.topology_error
        self._is_refused = job.is_refused_by_queue
        self._last = [(task, task.last_status, task.last_node) for task in job.unplaced]

    def restore(self) -> None:
        """Undo what the trial explained."""
        job = self._job
        job.fit_errors, job.fit_error = self._errors, self._error
        job.topology_error, job.is_refused_by_queue = self._topology, self._is_refused
        for task, status, node in self._last:
            task.last_status, task.last_node = status, node
