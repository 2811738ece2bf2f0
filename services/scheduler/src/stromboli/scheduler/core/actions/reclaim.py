"""The action ``reclaim``: a queue takes back from other queues what it deserves.

Differences from Volcano: nothing is evicted on a node while another node has room, and a task must
pass filters and the quota of its queue on the node as it is after the evictions.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from stromboli.scheduler.core.actions import eviction_rules, victim_search
from stromboli.scheduler.core.framework import ordering, session
from stromboli.scheduler.core.model import entities, requirements

NAME = "reclaim"
MAX_COMPARED = 64
"""Maximum number of nodes with room that are compared for the smallest victims; each takes about
100 us."""

ChooseRoom = Callable[[Iterator[victim_search.NodeRoom]], victim_search.NodeRoom | None]
"""Chooses one of a task's nodes with room."""


def run(ssn: session.Session) -> None:
    """Evict tasks of other queues for starving jobs. Queues are ordered again after each one."""
    starving = eviction_rules.starving_jobs(ssn)
    if not starving:
        return
    victims = eviction_rules.VictimIndex(ssn, (entities.Status.RUNNING,), ssn.may_reclaim)
    while starving:
        queue = ordering.first(ssn.compare_queues, [ssn.queues[name] for name in starving])
        jobs = starving.pop(queue.name)
        if not ssn.overused(queue):
            for job in jobs:
                # Room that is made node by node may be in any domain: left to gangreclaim.
                if not ssn.topology.has_hard_constraint(job):
                    _reclaim_for(ssn, job, victims)


def _reclaim_for(
    ssn: session.Session, job: entities.Job, victims: eviction_rules.VictimIndex
) -> None:
    """Evict for the job, and spare queues that would take the room back."""
    spared = eviction_rules.NO_JOBS
    while more := _reclaim_from_others(ssn, job, victims, spared):
        spared |= {ssn.jobs[key].queue for key in more}


def _reclaim_from_others(
    ssn: session.Session,
    job: entities.Job,
    victims: eviction_rules.VictimIndex,
    spared: frozenset[str],
) -> frozenset[str]:
    """Evict tasks of other queues, except the spared ones. Returns what ``commit_if_ready``
    returns."""
    queue = ssn.queue_of(job)

    def may_place(task: entities.Task) -> bool:
        return ssn.preemptive(queue, [task]) and ssn.finder.pre_predicate(task) is None

    # Computed once: evictions for this gang only remove jobs from the list.
    @functools.cache
    def others() -> frozenset[str]:
        known = victims.jobs_for(job, lambda other: _is_reclaimable(ssn, queue, other.key))
        return frozenset(key for key in known if ssn.jobs[key].queue not in spared)

    def search(choose: ChooseRoom) -> victim_search.MakeRoom:
        failed: dict[entities.TaskClass, int] = {}

        def make_room(task: entities.Task) -> victim_search.NodeRoom | None:
            if task.pod.spec.preemption_policy == eviction_rules.NEVER:
                return None
            if failed.get(task.task_class) == len(ssn.nodes.touched):
                return None  # Nothing has changed since an equal task found no room.
            room = choose(_choices(ssn, task, others(), victims))
            if room is None:
                failed[task.task_class] = len(ssn.nodes.touched)
            return room

        return make_room

    def nominates_idle(node: str) -> bool:
        on_node = ssn.nodes.tasks[ssn.nodes.rows[node]].values()
        jobs = {task.job for task in on_node if _is_reclaimable(ssn, queue, task.job)}
        return bool(victims.on(ssn.nodes.rows[node], jobs))

    def most_tasks(choices: Iterator[victim_search.NodeRoom]) -> victim_search.NodeRoom | None:
        return _most_tasks(ssn, eviction_rules.pending_tasks(ssn, job), choices)

    alternatives = search(_least_evicted), search(most_tasks)
    rules = victim_search.SearchRules(NAME, may_place, search(_first), nominates_idle, alternatives)
    return victim_search.evict_for_gang(ssn, job, eviction_rules.pending_tasks(ssn, job), rules)


def _choices(
    ssn: session.Session,
    task: entities.Task,
    others: frozenset[str],
    victims: eviction_rules.VictimIndex,
) -> Iterator[victim_search.NodeRoom]:
    """Yield the room on each node on which evictions make enough, in node order."""
    if not others:
        return
    helps = victims.helpful_nodes(task, others) & ssn.finder.filter_result(task).resolvable
    for row in np.flatnonzero(helps):
        candidates = victims.on(int(row), others)
        if candidates:
            node = ssn.nodes.names[row]
            room = victim_search.room_on(ssn, task, node, candidates, ssn.reclaimable)
            if room is not None:
                yield room


def _first(choices: Iterator[victim_search.NodeRoom]) -> victim_search.NodeRoom | None:
    return next(choices, None)


def _least_evicted(choices: Iterator[victim_search.NodeRoom]) -> victim_search.NodeRoom | None:
    """Return the room with the smallest victims of the first ``MAX_COMPARED``.

    A queue loses pods as long as it holds more than it deserves, and the last of them may be of any
    size. Evicting small victims first therefore leaves more for the next tasks.
    """
    compared = list(itertools.islice(choices, MAX_COMPARED))
    if not compared:
        return None
    freed = np.array([sum(victim.request for victim in room.victims) for room in compared])
    freed[:, requirements.PODS] = 0  # Quotas do not count pods.
    parts = freed / np.maximum(freed.max(axis=0), 1)
    return compared[int(np.argmin(parts.sum(axis=1)))]


def _most_tasks(
    ssn: session.Session,
    tasks: Sequence[entities.Task],
    choices: Iterator[victim_search.NodeRoom],
) -> victim_search.NodeRoom | None:
    """Return the room that holds the most of the gang's pending tasks, among the first
    ``MAX_COMPARED``.

    A large victim may free more room than the task needs on one node, and just enough on another.
    If a queue may lose only one more such pod, the choice of the node decides whether the whole
    gang fits.
    """
    best, most = None, -1
    for room in itertools.islice(choices, MAX_COMPARED):
        left = ssn.nodes.future_idle_of(ssn.nodes.rows[room.node])
        left = left + sum(victim.request for victim in room.victims if victim.node == room.node)
        fitting = 0
        for task in tasks:
            if np.all((task.request <= left) | (task.request == 0)):
                left, fitting = left - task.request, fitting + 1
        if fitting > most:
            best, most = room, fitting
    return best


def _is_reclaimable(ssn: session.Session, queue: entities.Queue, job: str) -> bool:
    """Return whether the job is in another queue that others may reclaim from."""
    other = ssn.jobs.get(job)
    return other is not None and other.queue != queue.name and ssn.queue_of(other).reclaimable
