"""Finds room for a whole gang: the victim search that the four evicting actions share.

Rules, for one gang:

1. A task is nominated where there is room without a further eviction: idle, else freed by tasks
   that terminate, among them what this statement evicted for an earlier task of the gang.
2. Only a task for which there is none evicts, on one node, as few victims as will do.
3. The statement is committed only if the gang stands with it: all of its minimum has room.
4. Victims that the finished statement turns out not to need are spared, the most valuable first.
5. A gang for which all is idle is left to ``allocate`` where that comes later in the session: a
   nomination would keep the gang from being bound, in this session and in each one after it.
6. A gang of which only some tasks found room gets a second attempt: with the tasks that it needs at
   least, the largest first, and with the smallest victims (``SearchRules.make_least_room``). The
   first attempt follows Volcano; the second finds room where the first chose badly.

So idle, terminating and reclaimed room count together, and a node without victims never hides one
that has some. Everything is a function of the session: the search is deterministic.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from stromboli.scheduler.core.actions import gang_packing, topology_placement
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, resource_vectors
from stromboli.scheduler.core.placement import extension_points

ALLOCATE = "allocate"
"""The action that binds to what is idle."""

ChooseVictims = Callable[[entities.Task, Sequence[entities.Task]], list[entities.Task]]
"""What plugins leave of a node's candidates: ``Session.preemptable`` or ``Session.reclaimable``."""


class NodeRoom(msgspec.Struct, frozen=True, eq=False):
    """A node for a task once the victims are gone. Nothing of it is applied."""

    node: str
    victims: Sequence[entities.Task]


MakeRoom = Callable[[entities.Task], NodeRoom | None]
"""Room for a task that has none without evictions; None if no eviction helps."""


class SearchRules(msgspec.Struct, frozen=True, eq=False):
    """What an action lets the search do.

    ``action``: its name, the reason given to victims. ``may_place``: whether a task may be given
    room now. ``make_room``: by evictions, if it has none without. ``nominates_idle``: whether a
    gang that needs no eviction at all is nominated to idle room on this node, as far as Volcano's
    actions do so. ``make_least_room``: like ``make_room``, with as little evicted as possible; None
    if that is the same.
    """

    action: str
    may_place: Callable[[entities.Task], bool]
    make_room: MakeRoom
    nominates_idle: Callable[[str], bool]
    make_least_room: MakeRoom | None = None


def evict_for_gang(
    ssn: session.Session,
    job: entities.Job,
    tasks: Sequence[entities.Task],
    rules: SearchRules,
) -> None:
    """Evict for the gang and nominate its tasks, or change nothing. ``tasks``: in order."""
    stmt = ssn.statement()
    place(ssn, job, tasks, rules, stmt)
    is_partial = stmt.operations and not ssn.job_pipelined(job)
    is_equal = len({ssn.finder.kind(task) for task in tasks}) == 1
    if is_partial and not (is_equal and rules.make_least_room is None):
        stmt.discard()
        least = msgspec.structs.replace(rules, make_room=rules.make_least_room or rules.make_room)
        needed = gang_packing.smallest_needed(ssn, topology_placement.PlacementUnit(job), tasks)
        place(ssn, job, gang_packing.largest_first(ssn, needed), least, stmt)
    conclude(ssn, job, stmt, rules)


def place(
    ssn: session.Session,
    job: entities.Job,
    tasks: Iterable[entities.Task],
    rules: SearchRules,
    stmt: statement.Statement,
    *,
    with_surplus: bool = False,
) -> bool:
    """Add room for tasks to the statement until the gang stands and starves no more, or
    ``with_surplus`` for all of them; whether it does, or every task got room."""
    has_all = True
    for task in job.most_needed_first(tasks):
        if not with_surplus and ssn.job_pipelined(job) and not ssn.job_starving(job):
            return True
        has_all = nominate(ssn, task, rules, stmt) and has_all
    return has_all


def nominate(
    ssn: session.Session,
    task: entities.Task,
    rules: SearchRules,
    stmt: statement.Statement,
) -> bool:
    """Add room for one task to the statement, free room before any that must be made; whether
    there is some."""
    if not rules.may_place(task):
        return False
    free = nodes_with_free_room(ssn, task)
    if free.any():
        idle = free & ssn.finder.fits_idle(task)
        found: NodeRoom | None = NodeRoom(ssn.finder.best(task, idle if idle.any() else free), ())
    else:
        found = rules.make_room(task)
    if found is None:
        return False
    for victim in found.victims:
        stmt.evict(victim, rules.action)
    occurred = any(not victim.is_best_effort for victim in found.victims)
    stmt.pipeline(task, found.node, eviction_occurred=occurred)
    return True


def conclude(
    ssn: session.Session,
    job: entities.Job,
    stmt: statement.Statement,
    rules: SearchRules,
    inseparable: Iterable[Sequence[entities.Task]] = (),
) -> None:
    """Commit what the gang needs of the statement if it stands with it; else discard it.

    ``inseparable``: victims of which all are spared or none.
    """
    if not ssn.job_pipelined(job):
        stmt.discard()
        return
    reprieve_victims(ssn, stmt, inseparable)
    if _is_idle_alone(ssn, stmt) and _leaves_idle(ssn, stmt, rules):
        stmt.discard()
    else:
        stmt.commit()


def _is_idle_alone(ssn: session.Session, stmt: statement.Statement) -> bool:
    """Nothing is evicted, and nothing that terminates is waited for."""
    nodes = ssn.nodes
    for each in stmt.operations:
        if each.kind == "evict":
            return False
        for task, node in zip(each.tasks, each.nodes, strict=True):
            row = nodes.rows[node]
            if not _covers(task, nodes.idle[:, row] - nodes.pipelined[:, row] + task.request):
                return False
    return True


def room_on(
    ssn: session.Session,
    task: entities.Task,
    node: str,
    candidates: Sequence[entities.Task],
    choose: ChooseVictims,
) -> NodeRoom | None:
    """The room that a node's candidates can make for a task, with as few of them as will do.

    None if plugins leave too few. The session is as before when this returns.

    Plugins that spare part of the candidates, such as ``gang`` a job's minimum, choose without
    regard to what the task lacks. If their choice is not enough they are asked again, about the
    candidates that hold what is short alone, those that hold most of it first.
    """
    allowed = ssn.evictable(ssn.job_of(task), candidates)
    room = _room_of(ssn, task, node, allowed, choose)
    if room is not None or len({each.task_class.shape for each in allowed}) < 2:
        return room  # Which of equal candidates is chosen makes no difference.
    row = ssn.nodes.rows[node]
    short = task.request - ssn.nodes.future_idle_of(row)
    useful = _most_useful_first(allowed, np.where(task.request > 0, np.maximum(short, 0), 0))
    if not useful or useful == list(allowed):
        return None
    return _room_of(ssn, task, node, useful, choose)


def _room_of(
    ssn: session.Session,
    task: entities.Task,
    node: str,
    candidates: Sequence[entities.Task],
    choose: ChooseVictims,
) -> NodeRoom | None:
    chosen = choose(task, candidates)
    future = ssn.nodes.future_idle_of(ssn.nodes.rows[node])
    freed = sum((victim.request for victim in chosen), np.zeros_like(future))
    if not _covers(task, future + freed):
        return None
    evicted = _sufficient_victims(ssn, task, node, ssn.ordered_victims(chosen, task))
    return None if evicted is None else NodeRoom(node, _minimal_victims(ssn, task, node, evicted))


def _most_useful_first(
    candidates: Iterable[entities.Task], short: resource_vectors.Vector
) -> list[entities.Task]:
    """Candidates that hold something of what is short; those that cover the most of it first, as
    parts of each resource. Of equals the order stays."""
    lacking = np.flatnonzero(short > 0)
    if not lacking.size:
        return []
    held = [
        (float((np.minimum(each.request, short)[lacking] / short[lacking]).sum()), each)
        for each in candidates
    ]
    return [each for part, each in sorted(held, key=lambda pair: -pair[0]) if part > 0]


def _leaves_idle(ssn: session.Session, stmt: statement.Statement, rules: SearchRules) -> bool:
    """The action leaves idle room to ``allocate``."""
    order = ssn.configuration.actions
    if ALLOCATE in order[order.index(rules.action) :]:
        return True
    return not all(rules.nominates_idle(node) for each in stmt.operations for node in each.nodes)


def reprieve_victims(
    ssn: session.Session,
    stmt: statement.Statement,
    inseparable: Iterable[Sequence[entities.Task]],
) -> None:
    """Take back evictions that all promises of the statement turn out not to need.

    What is evicted for a later task may make room for an earlier one too. The last evicted, the
    most valuable, are spared first; tasks of one ``inseparable`` group all or none.
    """
    saved = stmt.save()
    evicted = [task for each in saved if each.kind == "evict" for task in each.tasks]
    ending = [list(group) for group in inseparable]
    grouped = {task.uid for group in ending for task in group}
    singles = [[task] for task in reversed(evicted) if task.uid not in grouped]
    spareable = _reprievable(ssn, [*ending, *singles])
    # What is left of a job that ends would hold its place in vain.
    ended = {group[0].job for group in ending if group not in spareable}
    spareable = [group for group in spareable if group[0].job not in ended]
    if not spareable or _replay_without(ssn, stmt, saved, spareable):
        return
    # Rules beyond resources forbid to spare them all: those that can be, one by one.
    spared: list[Sequence[entities.Task]] = []
    for group in spareable:
        if group[0].job in ended:
            continue
        if _replay_without(ssn, stmt, saved, [*spared, group]):
            spared.append(group)
        elif group in ending:
            ended.add(group[0].job)
    _replay_without(ssn, stmt, saved, spared)


def _replay_without(
    ssn: session.Session,
    stmt: statement.Statement,
    saved: Sequence[statement.Operation],
    spared: Iterable[Sequence[entities.Task]],
) -> bool:
    """Do again what was saved, without evicting these; all of it, and False, if some promise could
    not be kept then."""
    stay = {task.uid for group in spared for task in group}
    stmt.discard()
    for each in saved:
        for task in each.tasks:
            if each.kind == "evict" and task.uid not in stay:
                stmt.evict(task, each.reason)
    for each in saved:
        for task, node in zip(each.tasks, each.nodes, strict=True):
            if each.kind == "pipeline":
                if not _fits(ssn, task, node):
                    stmt.discard()
                    stmt.recover(saved)
                    return False
                stmt.pipeline(task, node, each.eviction_occurred)
    return True


def _reprievable(
    ssn: session.Session, groups: Iterable[Sequence[entities.Task]]
) -> list[Sequence[entities.Task]]:
    """Groups for which their nodes have room after all that was promised."""
    left: dict[str, resource_vectors.Vector] = {}
    found = []
    for group in groups:
        trial = dict(left)
        for task in group:
            row = ssn.nodes.rows[task.node]
            room = trial.get(task.node, ssn.nodes.future_idle_of(row))
            trial[task.node] = room - task.request
        if all(np.all(trial[task.node] >= 0) for task in group):
            left = trial
            found.append(group)
    return found


def nodes_with_free_room(ssn: session.Session, task: entities.Task) -> extension_points.Mask:
    """Nodes that hold the task without any eviction, if its queue may have it at all."""
    if not ssn.allocatable(ssn.queue_of(ssn.jobs[task.job]), task):
        return np.zeros(len(ssn.nodes), np.bool_)
    mask: extension_points.Mask = ssn.finder.filter_result(
        task
    ).passed_in_future & ssn.finder.fits_future(task)
    return mask


def _sufficient_victims(
    ssn: session.Session, task: entities.Task, node: str, victims: Iterable[entities.Task]
) -> list[entities.Task] | None:
    """The first victims, as many as it takes; None if all of them are not enough."""
    trial = ssn.statement()
    evicted: list[entities.Task] = []
    waiting = iter(victims)
    try:
        while not _fits(ssn, task, node):
            victim = next(waiting, None)
            if victim is None:
                return None
            trial.evict(victim, "")
            evicted.append(victim)
    finally:
        trial.discard()
    return evicted


def _minimal_victims(
    ssn: session.Session, task: entities.Task, node: str, evicted: list[entities.Task]
) -> list[entities.Task]:
    """The victims without those that need not go. The last one always must."""
    needed = list(evicted)
    for victim in reversed(evicted[:-1]):
        others = [other for other in needed if other is not victim]
        trial = ssn.statement()
        for other in others:
            trial.evict(other, "")
        if _fits(ssn, task, node):
            needed = others
        trial.discard()
    return needed


def _fits(ssn: session.Session, task: entities.Task, node: str) -> bool:
    row = ssn.nodes.rows[node]
    return (
        _covers(task, ssn.nodes.future_idle_of(row))
        and ssn.allocatable(ssn.queue_of(ssn.jobs[task.job]), task)
        and bool(ssn.finder.filter_result(task).passed_in_future[row])
    )


def _covers(task: entities.Task, amount: resource_vectors.Vector) -> bool:
    return bool(np.all((task.request <= amount) | (task.request == 0)))
