"""Checks, before evictions are committed, that the evicted pods do not take the room back.

Jobs create evicted pods again, and the next session serves these and the gang in its usual order. A
trial does the same now: it makes the victims pending and serves their jobs and the gang as
``allocate`` and ``backfill`` would. A gang that does not start in the trial would evict again in
each session, without end. Victims compete that are of the gang's queue, or of one that is within
its share: as in Volcano, what another queue holds beyond its share may be evicted even if that
queue is served first. Cost: one ``allocate`` of these jobs for each statement that evicts.
"""

from collections.abc import Iterable
from functools import cmp_to_key

import msgspec
import numpy as np

from stromboli.scheduler.core.actions import allocate, eviction_rules
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, requirements, topology_domains

_PLACED = (entities.Status.ALLOCATED, entities.Status.PIPELINED)


class Trial(msgspec.Struct, frozen=True):
    """What the next session would do after the evictions.

    ``is_useful``: the gang starts, or gets all nominated pods if it has started before; or no
    victim is placed again. Then something else keeps the gang, such as the place of another
    terminating pod, which will be free when the next session serves it.
    ``taking_back``: the jobs of victims that would be placed again.
    """

    is_useful: bool
    taking_back: frozenset[str] = eviction_rules.NO_JOBS


def try_evictions(ssn: session.Session, job: entities.Job, stmt: statement.Statement) -> Trial:
    """Serve the gang and its victims as the next session would. Changes nothing."""
    saved = stmt.save()
    victims = [task for each in saved if each.kind == "evict" for task in each.tasks]
    nominated = sum(len(each.tasks) for each in saved if each.kind == "pipeline")
    if not victims:
        return Trial(is_useful=True)
    stmt.discard()
    needed = nominated if ssn.job_pipelined(job) else 0
    placed_before = _count_placed(job)
    trial = ssn.statement()
    rivals = [victim for victim in victims if _evict(ssn, job, victim, trial)]
    jobs = {job.key: job, **{victim.job: ssn.jobs[victim.job] for victim in rivals}}
    explanations = [_Explanation(each) for each in jobs.values()]
    if rivals:
        with ssn.finder.future(), ssn.topology.confined(topology_domains.ROOT_INDEX):
            allocate.rehearse(ssn, jobs.values(), trial)
            _place_best_effort(ssn, jobs.values(), trial)
    is_placed = ssn.job_pipelined(job) and _count_placed(job) - placed_before >= needed
    taking_back = frozenset(task.job for task in rivals if task.status in _PLACED) - {job.key}
    trial.discard()
    for explanation in explanations:
        explanation.restore()
    stmt.recover(saved)
    return Trial(is_placed or not taking_back, taking_back)


def _evict(
    ssn: session.Session,
    job: entities.Job,
    victim: entities.Task,
    trial: statement.Statement,
) -> bool:
    """Evict the victim in the trial. Returns whether it then competes with the gang."""
    queue = ssn.queue_of(ssn.jobs[victim.job])
    competes = queue is ssn.queue_of(job) or _is_within_share(ssn, queue, victim)
    trial.evict(victim, "")
    if competes:
        trial.requeue(victim)
    return competes


def _is_within_share(ssn: session.Session, queue: entities.Queue, task: entities.Task) -> bool:
    """Return whether the queue holds no more than it deserves of what the task requests; True if no
    plugin divides the cluster."""
    share = ssn.queue_usage(queue)
    if share is None:
        return True
    columns = set(np.flatnonzero(task.request).tolist()) - {requirements.PODS}
    return all(share.allocated[column] <= share.deserved[column] for column in columns)


def _count_placed(job: entities.Job) -> int:
    return job.count(*_PLACED)


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
