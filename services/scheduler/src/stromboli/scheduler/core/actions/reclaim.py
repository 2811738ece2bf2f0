"""Reclaim: a queue takes back from others what is its own (spec/scheduling 8.5).

Unlike Volcano, it evicts nothing on a node while another has room, and a task must pass predicates
and its queue's limits on the node as it is after the evictions.
"""

import numpy as np

from stromboli.scheduler.core.actions import evicting, victim_search
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities

NAME = "reclaim"


def run(within: session.Session) -> None:
    """Evict tasks of other queues for starving jobs, queue by queue as shares change."""
    starving = evicting.starving(within)
    victims = evicting.Victims(within, (entities.Status.RUNNING,))
    while starving:
        queue = evicting.ordered_queues(within, starving)[0]
        jobs = starving.pop(queue.name)
        if not within.overused(queue):
            for job in jobs:
                # Room that is made node by node may lie anywhere: gangreclaim serves these.
                if not within.nearness.insists(job):
                    _reclaim_for(within, job, victims)


def _reclaim_for(within: session.Session, job: entities.Job, victims: evicting.Victims) -> None:
    queue = within.queue_of(job)
    failed: dict[entities.TaskClass, int] = {}

    def may_place(task: entities.Task) -> bool:
        return within.preemptive(queue, [task]) and within.finder.pre_predicate(task) is None

    def make_room(task: entities.Task) -> victim_search.Room | None:
        if task.pod.spec.preemption_policy == evicting.NEVER:
            return None
        if failed.get(task.task_class) == len(within.nodes.touched):
            return None  # Nothing has changed since an equal task found no room.
        room = _room(within, task, queue, victims)
        if room is None:
            failed[task.task_class] = len(within.nodes.touched)
        return room

    def nominates_idle(node: str) -> bool:
        return bool(victims.on(within.nodes.rows[node], _others(within, queue, victims)))

    rules = victim_search.Rules(NAME, may_place, make_room, nominates_idle)
    victim_search.serve(within, job, evicting.wanting(within, job), rules)


def _room(
    within: session.Session, task: entities.Task, queue: entities.Queue, victims: evicting.Victims
) -> victim_search.Room | None:
    """Room on the first node whose victims make some."""
    others = _others(within, queue, victims)
    helps = victims.may_help(task, others) & within.finder.verdict(task).resolvable
    for row in np.flatnonzero(helps):
        candidates = victims.on(int(row), others)
        if candidates:
            node = within.nodes.names[row]
            room = victim_search.room_on(within, task, node, candidates, within.reclaimable)
            if room is not None:
                return room
    return None


def _others(within: session.Session, queue: entities.Queue, victims: evicting.Victims) -> list[str]:
    """The queues from which may be reclaimed."""
    return [
        name
        for name in victims.queues
        if name != queue.name and name in within.queues and within.queues[name].reclaimable
    ]
