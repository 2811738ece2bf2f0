"""Making room: who may be evicted where, and which of them must go so that a task fits.

Nothing is evicted unless the task is proven to fit afterwards, and no one goes who could stay: a
node that has room comes before all that have none, and of a node's victims those that turn out to
be needless are spared, the most valuable first.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key

import msgspec
import numpy as np

from stromboli.scheduler.core.framework import amounts, model, points, session, statement

NEVER = "Never"
"""The preemption policy of pods that wait rather than evict."""
_PREEMPTED = ("DisruptionTarget", "True", "PreemptionByScheduler")

Chooser = Callable[[model.Task, Sequence[model.Task]], list[model.Task]]
"""What plugins leave of a node's candidates: ``Session.preemptable`` or ``Session.reclaimable``."""


class Victims:
    """Tasks that may be evicted, by queue and node, as they were when an action began.

    Those of equal standing are listed youngest first. O(tasks) to make.
    """

    def __init__(self, within: session.Session, statuses: Iterable[model.Status]) -> None:
        self._session = within
        self._statuses = frozenset(statuses)
        self._listed: dict[str, dict[int, list[model.Task]]] = {}
        self._held: dict[str, amounts.Table] = {}
        for row, tasks in enumerate(within.nodes.tasks):
            for task in sorted(tasks.values(), key=_worth, reverse=True):
                job = within.job_of(task)
                if job is None or job.frozen:
                    continue
                if task.preemptable and task.status in self._statuses:
                    self._list(task, job.queue, row)

    @property
    def queues(self) -> list[str]:
        """Queues with any, by name."""
        return sorted(self._listed)

    def on(self, row: int, queues: Iterable[str]) -> list[model.Task]:
        """Those of the queues on a node that have not been evicted since."""
        return [
            task
            for queue in queues
            for task in self._listed.get(queue, {}).get(row, ())
            if task.status in self._statuses
        ]

    def may_help(self, task: model.Task, queues: Iterable[str]) -> points.Mask:
        """Nodes that could hold the task if all went; on the others there is nothing to try."""
        future = self._session.nodes.future_idle
        for queue in queues:
            if queue in self._held:
                future = future + self._held[queue]
        return amounts.covered(task.request, future) & self._session.nodes.labelled.usable

    def held_by(self, queues: Iterable[str]) -> points.Mask:
        """Nodes that had tasks of the queues when the action began."""
        mask = np.zeros(len(self._session.nodes), np.bool_)
        for queue in queues:
            mask[list(self._listed.get(queue, ()))] = True
        return mask

    def _list(self, task: model.Task, queue: str, row: int) -> None:
        self._listed.setdefault(queue, {}).setdefault(row, []).append(task)
        if queue not in self._held:
            self._held[queue] = np.zeros_like(self._session.nodes.idle)
        self._held[queue][:, row] += task.request


class Room(msgspec.Struct, frozen=True, eq=False):
    """A place for a task, once the victims are gone. Nothing of it is applied."""

    node: str
    victims: Sequence[model.Task]


def room_on(
    within: session.Session,
    task: model.Task,
    node: str,
    candidates: Sequence[model.Task],
    choose: Chooser,
) -> Room | None:
    """The room that a node's candidates can make for a task, with as few of them as will do.

    None if plugins leave too few. The session is as before when this returns.
    """
    chosen = choose(task, within.evictable(within.job_of(task), candidates))
    row = within.nodes.rows[node]
    future = within.nodes.future_idle_of(row)
    freed = sum((victim.request for victim in chosen), np.zeros_like(future))
    if not _covers(task, future + freed):
        return None
    evicted = _enough(within, task, node, within.ordered_victims(chosen, task))
    return None if evicted is None else Room(node, _spared(within, task, node, evicted))


def take(within: session.Session, task: model.Task, room: Room, reason: str) -> statement.Statement:
    """Evict the victims and promise the task their place."""
    trial = within.statement()
    for victim in room.victims:
        trial.evict(victim, reason)
    occurred = any(not victim.is_best_effort for victim in room.victims)
    trial.pipeline(task, room.node, eviction_occurred=occurred)
    return trial


def settle(
    within: session.Session,
    whole: statement.Statement,
    inseparable: Iterable[Sequence[model.Task]] = (),
) -> None:
    """Take back evictions that all promises of the statement turn out not to need.

    What is evicted for a later task may make room for an earlier one too. The last evicted, the
    most valuable, are spared first; tasks of one ``inseparable`` group all or none.
    """
    saved = whole.save()
    evicted = [task for each in saved if each.kind == "evict" for task in each.tasks]
    ending = [list(group) for group in inseparable]
    grouped = {task.uid for group in ending for task in group}
    singles = [[task] for task in reversed(evicted) if task.uid not in grouped]
    spareable = _spareable(within, [*ending, *singles])
    # What is left of a job that ends would hold its place in vain.
    ended = {group[0].job for group in ending if group not in spareable}
    spareable = [group for group in spareable if group[0].job not in ended]
    if not spareable or _replay(within, whole, saved, spareable):
        return
    # Rules beyond resources forbid to spare them all: those that can be, one by one.
    spared: list[Sequence[model.Task]] = []
    for group in spareable:
        if group[0].job in ended:
            continue
        if _replay(within, whole, saved, [*spared, group]):
            spared.append(group)
        elif group in ending:
            ended.add(group[0].job)
    _replay(within, whole, saved, spared)


def _replay(
    within: session.Session,
    whole: statement.Statement,
    saved: Sequence[statement.Operation],
    spared: Iterable[Sequence[model.Task]],
) -> bool:
    """Do again what was saved, without evicting these; all of it, and False, if some promise could
    not be kept then."""
    stay = {task.uid for group in spared for task in group}
    whole.discard()
    for each in saved:
        for task in each.tasks:
            if each.kind == "evict" and task.uid not in stay:
                whole.evict(task, each.reason)
    for each in saved:
        for task, node in zip(each.tasks, each.nodes, strict=True):
            if each.kind == "pipeline":
                if not _fits(within, task, node):
                    whole.discard()
                    whole.recover(saved)
                    return False
                whole.pipeline(task, node, each.eviction_occurred)
    return True


def _spareable(
    within: session.Session, groups: Iterable[Sequence[model.Task]]
) -> list[Sequence[model.Task]]:
    """Groups for which their nodes have room after all that was promised."""
    left: dict[str, amounts.Vector] = {}
    found = []
    for group in groups:
        trial = dict(left)
        for task in group:
            row = within.nodes.rows[task.node]
            room = trial.get(task.node, within.nodes.future_idle_of(row))
            trial[task.node] = room - task.request
        if all(np.all(trial[task.node] >= 0) for task in group):
            left = trial
            found.append(group)
    return found


def free_room(within: session.Session, task: model.Task) -> points.Mask:
    """Nodes that hold the task without any eviction, if its queue may have it at all."""
    if not within.allocatable(within.queue_of(within.jobs[task.job]), task):
        return np.zeros(len(within.nodes), np.bool_)
    mask: points.Mask = within.finder.verdict(task).passed & within.finder.fits_future(task)
    return mask


def may_evict(within: session.Session, task: model.Task) -> bool:
    """Whether the pod may evict others now: its policy allows it, and it does not wait already
    for what was evicted for it at the node it is nominated to."""
    if task.pod.spec.preemption_policy == NEVER:
        return False
    nominated = within.nodes.rows.get(task.pod.status.nominated_node_name)
    if nominated is None:
        return True
    verdict = within.finder.verdict(task)
    if verdict.passed[nominated] and within.finder.fits_future(task)[nominated]:
        return False
    return not verdict.resolvable[nominated] or not any(
        other.priority < task.priority and _is_preempted(other)
        for other in within.nodes.tasks[nominated].values()
    )


def wanting(within: session.Session, job: model.Job) -> list[model.Task]:
    """The job's tasks that wait for a place and may be given one, in order."""
    return within.ordered_tasks(task for task in job.pending if not task.is_gated)


def starving(within: session.Session) -> dict[str, list[model.Job]]:
    """Queue -> jobs that may evict others, in order."""
    found: dict[str, list[model.Job]] = {}
    for job in within.waiting_jobs():
        is_tried = job.is_decidable and not job.is_pending and within.job_valid(job) is None
        is_tried = is_tried and not within.nearness.problem(job)
        # Whoever may not pass the job in front may not evict others for it either.
        is_tried = is_tried and within.job_starving(job) and not within.held_back(job)
        if is_tried and within.is_full:
            within.untried.add(job.key)
        elif is_tried:
            found.setdefault(job.queue, []).append(job)
    return {queue: within.ordered_jobs(jobs) for queue, jobs in found.items()}


def ordered_queues(within: session.Session, names: Iterable[str]) -> list[model.Queue]:
    """Queues as they are to be served."""
    return sorted((within.queues[name] for name in names), key=cmp_to_key(within.compare_queues))


def _enough(
    within: session.Session, task: model.Task, node: str, victims: Iterable[model.Task]
) -> list[model.Task] | None:
    """The first victims, as many as it takes; None if all of them are not enough."""
    trial = within.statement()
    evicted: list[model.Task] = []
    waiting = iter(victims)
    try:
        while not _fits(within, task, node):
            victim = next(waiting, None)
            if victim is None:
                return None
            trial.evict(victim, "")
            evicted.append(victim)
    finally:
        trial.discard()
    return evicted


def _spared(
    within: session.Session, task: model.Task, node: str, evicted: list[model.Task]
) -> list[model.Task]:
    """The victims without those that need not go. The last one always must."""
    needed = list(evicted)
    for victim in reversed(evicted[:-1]):
        others = [other for other in needed if other is not victim]
        trial = within.statement()
        for other in others:
            trial.evict(other, "")
        if _fits(within, task, node):
            needed = others
        trial.discard()
    return needed


def _fits(within: session.Session, task: model.Task, node: str) -> bool:
    row = within.nodes.rows[node]
    return (
        _covers(task, within.nodes.future_idle_of(row))
        and within.allocatable(within.queue_of(within.jobs[task.job]), task)
        and bool(within.finder.verdict(task).passed[row])
    )


def _covers(task: model.Task, amount: amounts.Vector) -> bool:
    return bool(np.all((task.request <= amount) | (task.request == 0)))


def _worth(task: model.Task) -> tuple[int, float, str]:
    """More for what should rather go: low priority, then youth."""
    return (-task.priority, task.created.timestamp(), task.key)


def _is_preempted(task: model.Task) -> bool:
    return task.pod.metadata.deletion_timestamp is not None and any(
        (condition.type, condition.status, condition.reason) == _PREEMPTED
        for condition in task.pod.status.conditions
    )
