"""Reclaim: a queue takes back from others what is its own (spec/scheduling 8.5).

Other than the field's scheduler, no node is robbed while another has room (one without tasks of
other queues is left to allocate), and a task must pass predicates and its queue's limits on the
node as it is after the evictions.
"""

import numpy as np

from stromboli.scheduler.core.actions import evicting
from stromboli.scheduler.core.framework import model, session

NAME = "reclaim"


def run(within: session.Session) -> None:
    """Evict tasks of other queues for starving jobs, queue by queue as shares change."""
    starving = evicting.starving(within)
    victims = evicting.Victims(within, (model.Status.RUNNING,))
    while starving:
        queue = evicting.ordered_queues(within, starving)[0]
        jobs = starving.pop(queue.name)
        if not within.overused(queue):
            for job in jobs:
                # Room that is made node by node may lie anywhere: gangreclaim serves these.
                if not within.nearness.insists(job):
                    _reclaim_for(within, job, victims)


def _reclaim_for(within: session.Session, job: model.Job, victims: evicting.Victims) -> None:
    whole = within.statement()
    queue = within.queue_of(job)
    failed: dict[model.TaskClass, int] = {}
    for task in evicting.wanting(within, job):
        if not within.job_starving(job):
            break
        if not _may_reclaim(within, task, queue):
            continue
        if failed.get(task.task_class) == len(within.nodes.touched):
            continue  # Nothing has changed since an equal task found no room.
        room = _room(within, task, queue, victims)
        if room is None:
            failed[task.task_class] = len(within.nodes.touched)
        else:
            whole.merge(evicting.take(within, task, room, NAME))
    if within.job_pipelined(job):
        evicting.settle(within, whole)
        whole.commit()
    else:
        whole.discard()


def _may_reclaim(within: session.Session, task: model.Task, queue: model.Queue) -> bool:
    return (
        task.pod.spec.preemption_policy != evicting.NEVER
        and within.preemptive(queue, [task])
        and within.finder.pre_predicate(task) is None
    )


def _room(
    within: session.Session, task: model.Task, queue: model.Queue, victims: evicting.Victims
) -> evicting.Room | None:
    others = [
        name
        for name in victims.queues
        if name != queue.name and name in within.queues and within.queues[name].reclaimable
    ]
    free = evicting.free_room(within, task)
    if free.any():
        shared = np.zeros_like(free)
        for row in np.flatnonzero(free & victims.held_by(others)):
            shared[row] = bool(victims.on(int(row), others))
        # Room on a node that others do not use is for allocate to give, at once and for good.
        return evicting.Room(within.finder.best(task, shared), ()) if shared.any() else None
    helps = victims.may_help(task, others) & within.finder.verdict(task).resolvable
    for row in np.flatnonzero(helps):
        candidates = victims.on(int(row), others)
        if candidates:
            node = within.nodes.names[row]
            room = evicting.room_on(within, task, node, candidates, within.reclaimable)
            if room is not None:
                return room
    return None
