"""Finds room for a whole gang: the victim search of the four evicting actions.

Rules, for one gang:

1. A task is nominated to a node that has room without a further eviction: idle room first, then
   room that terminating pods free, which includes what this statement evicted for an earlier task
   of the gang.
2. Only a task without such a node evicts, on one node, as few victims as possible.
3. The statement is committed only if the gang can start with it: its whole minimum has room.
4. Victims that the finished statement does not need are spared, the most valuable first.
5. A gang that needs idle room only is left to ``allocate`` if that comes later in the session. A
   nomination would keep the gang from being bound, in this session and in later ones.
6. If only some tasks of a gang find room, the search is repeated with the tasks that its minimum
   needs, the largest first, and with other choices of nodes (``SearchRules.alternatives``). The
   first attempt follows Volcano; the others cover bad choices of the first.
7. No pod is evicted that would take the room back once it is pending again (``take_back``). The
   actions search again without the jobs of such pods.

So idle, terminating and reclaimed room count together, and a node without victims never hides a
node that has some. The search depends on the session alone and is deterministic.
"""

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from stromboli.scheduler.core.actions import (
    eviction_rules,
    gang_packing,
    take_back,
    topology_placement,
)
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, resource_vectors

ALLOCATE = "allocate"
"""The action that binds to idle room."""
MOST_FOR_QUOTA = 256
"""Maximum number of victims for a task that exceeds its queue's quota; trials with more would take
seconds."""

ChooseVictims = Callable[[entities.Task, Sequence[entities.Task]], list[entities.Task]]
"""Returns the candidates on a node that plugins allow: ``Session.preemptable`` or
``Session.reclaimable``."""


class NodeRoom(msgspec.Struct, frozen=True, eq=False):
    """A node on which a task fits once the victims are evicted. The evictions are not applied.

    Victims on other nodes reduce what the task's queue holds, if its quota refuses the task.
    """

    node: str
    victims: Sequence[entities.Task]


MakeRoom = Callable[[entities.Task], NodeRoom | None]
"""Finds room for a task by evictions; None if no eviction helps."""


class SearchRules(msgspec.Struct, frozen=True, eq=False):
    """The rules of an action for the search.

    ``action``: its name, which is the eviction reason. ``may_place``: whether a task may get room
    now. ``make_room``: finds room by evictions. ``nominates_idle``: whether a gang that needs no
    eviction is nominated to idle room on this node, as in Volcano. ``alternatives``: like
    ``make_room``, with other choices of the node, in the order in which they are tried.
    """

    action: str
    may_place: Callable[[entities.Task], bool]
    make_room: MakeRoom
    nominates_idle: Callable[[str], bool]
    alternatives: tuple[MakeRoom, ...] = ()


def evict_for_gang(
    ssn: session.Session,
    job: entities.Job,
    tasks: Sequence[entities.Task],
    rules: SearchRules,
) -> frozenset[str]:
    """Evict for the gang and nominate its tasks, or change nothing. ``tasks``: in task order.
    Returns what ``commit_if_ready`` returns."""
    stmt = ssn.statement()
    place(ssn, job, tasks, rules, stmt)
    is_partial = stmt.operations and not ssn.job_pipelined(job)
    is_equal = len({ssn.finder.kind(task) for task in tasks}) == 1
    if is_partial and (rules.alternatives or not is_equal):
        for make_room in rules.alternatives or (rules.make_room,):
            stmt.discard()
            needed = gang_packing.smallest_needed(ssn, topology_placement.PlacementUnit(job), tasks)
            other = msgspec.structs.replace(rules, make_room=make_room)
            place(ssn, job, gang_packing.largest_first(ssn, needed), other, stmt)
            if ssn.job_pipelined(job):
                break
    return commit_if_ready(ssn, job, stmt, rules)


def place(
    ssn: session.Session,
    job: entities.Job,
    tasks: Iterable[entities.Task],
    rules: SearchRules,
    stmt: statement.Statement,
    *,
    with_surplus: bool = False,
) -> bool:
    """Add room for tasks to the statement until the gang can start and no longer starves.

    ``with_surplus``: add room for all tasks. Returns whether the gang, or every task, got its
    room.
    """
    has_all = True
    failed: dict[Hashable, int] = {}
    for task in job.most_needed_first(tasks):
        if not with_surplus and ssn.job_pipelined(job) and not ssn.job_starving(job):
            return True
        kind = _kind(ssn, task)
        if failed.get(kind) == len(ssn.nodes.touched):
            has_all = False  # Nothing has changed since an equal task found no room.
        elif not nominate(ssn, task, rules, stmt):
            failed[kind], has_all = len(ssn.nodes.touched), False
    return has_all


def _kind(ssn: session.Session, task: entities.Task) -> Hashable:
    """Tasks of a job with an equal kind find the same room."""
    pod = task.pod
    return (
        ssn.finder.kind(task),
        task.priority,
        pod.spec.preemption_policy,
        pod.status.nominated_node_name,
    )


def nominate(
    ssn: session.Session,
    task: entities.Task,
    rules: SearchRules,
    stmt: statement.Statement,
) -> bool:
    """Add room for one task to the statement, without evictions if possible. Returns whether there
    is room."""
    if not rules.may_place(task):
        return False
    free = eviction_rules.nodes_with_free_room(ssn, task)
    if free.any():
        idle = free & ssn.finder.fits_idle(task)
        node_room: NodeRoom | None = NodeRoom(
            ssn.finder.best(task, idle if idle.any() else free), ()
        )
    else:
        node_room = rules.make_room(task)
    if node_room is None:
        return False
    for victim in node_room.victims:
        stmt.evict(victim, rules.action)
    occurred = any(not victim.is_best_effort for victim in node_room.victims)
    stmt.pipeline(task, node_room.node, eviction_occurred=occurred)
    return True


def commit_if_ready(
    ssn: session.Session,
    job: entities.Job,
    stmt: statement.Statement,
    rules: SearchRules,
    inseparable: Iterable[Sequence[entities.Task]] = (),
) -> frozenset[str]:
    """Commit the part of the statement that the gang needs, if the gang can then start; otherwise
    discard the statement.

    ``inseparable``: groups of victims that are spared together or not at all. Returns the jobs that
    would take the room back (``take_back``), for which the statement was discarded.
    """
    if not ssn.job_pipelined(job):
        stmt.discard()
        return eviction_rules.NO_JOBS
    reprieve_victims(ssn, stmt, inseparable)
    if _is_idle_alone(ssn, stmt) and _leaves_idle(ssn, stmt, rules):
        stmt.discard()
        return eviction_rules.NO_JOBS
    taking_back = take_back.jobs_taking_back(ssn, job, stmt)
    if taking_back:
        stmt.discard()
    else:
        stmt.commit()
    return taking_back


def _is_idle_alone(ssn: session.Session, stmt: statement.Statement) -> bool:
    """Return whether the statement uses only idle room: no evictions and no terminating pods."""
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
    """Return the room that a node's candidates can make for a task, with as few victims as
    possible.

    Returns None if plugins allow too few victims. The session is unchanged afterwards.

    Plugins that spare some candidates (``gang`` spares a job's minimum) ignore which resources the
    task lacks. If their choice is not enough, they are called again with only the candidates that
    hold a missing resource, those with the most of it first.
    """
    allowed = ssn.evictable(ssn.job_of(task), candidates)
    room = _room_of(ssn, task, node, allowed, choose)
    if room is not None or len({each.task_class.shape for each in allowed}) < 2:
        return room  # All candidates are equal: another choice has the same result.
    row = ssn.nodes.rows[node]
    short = task.request - ssn.nodes.future_idle_of(row)
    useful = _most_useful_first(allowed, np.where(task.request > 0, np.maximum(short, 0), 0))
    if not useful or useful == list(allowed):
        return None
    return _room_of(ssn, task, node, useful, choose)


def room_within_quota(
    ssn: session.Session,
    task: entities.Task,
    nodes: Iterable[str],
    candidates_on: Callable[[str], Sequence[entities.Task]],
    groups: Callable[[], Iterable[Sequence[entities.Task]]],
    choose: ChooseVictims,
) -> Iterator[NodeRoom]:
    """Yield the room on nodes for a task that the quota of its queue refuses. Victims on other
    nodes make no room on a node, but reduce what the queue holds.

    ``groups``: candidates on all nodes, the first to evict at the beginning. Yields nothing if the
    quota needs more than ``MOST_FOR_QUOTA`` victims.
    """
    queue, trial = ssn.queue_of(ssn.jobs[task.job]), ssn.statement()

    def is_within() -> bool:
        return ssn.allocatable(queue, task)

    def evict(candidates: Sequence[entities.Task], is_enough: Callable[[], bool]) -> None:
        allowed = ssn.evictable(ssn.job_of(task), candidates)
        for victim in ssn.ordered_victims(choose(task, allowed), task):
            if is_enough() or len(trial.operations) == MOST_FOR_QUOTA:
                return
            trial.evict(victim, "")

    def evict_groups(without: str) -> None:
        for group in groups():
            if is_within() or len(trial.operations) == MOST_FOR_QUOTA:
                return
            evict([each for each in group if each.node != without], is_within)

    evict_groups(without="")
    is_possible = is_within()
    trial.discard()
    for node in nodes if is_possible else ():
        evict(candidates_on(node), functools.partial(_fits, ssn, task, node))
        evict_groups(without=node)
        is_enough = _fits(ssn, task, node)
        evicted = [victim for each in trial.operations for victim in each.tasks]
        trial.discard()
        if is_enough:
            yield NodeRoom(node, _minimal_victims(ssn, task, node, evicted))


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
    """Return the candidates that hold a missing resource, those that cover the largest part first.
    Equal ones keep their order."""
    lacking = np.flatnonzero(short > 0)
    if not lacking.size:
        return []
    useful_tasks = [
        (float((np.minimum(each.request, short)[lacking] / short[lacking]).sum()), each)
        for each in candidates
    ]
    return [each for part, each in sorted(useful_tasks, key=lambda pair: -pair[0]) if part > 0]


def _leaves_idle(ssn: session.Session, stmt: statement.Statement, rules: SearchRules) -> bool:
    """Return whether the action leaves idle room to ``allocate``."""
    order = ssn.configuration.actions
    if ALLOCATE in order[order.index(rules.action) :]:
        return True
    return not all(rules.nominates_idle(node) for each in stmt.operations for node in each.nodes)


def reprieve_victims(
    ssn: session.Session,
    stmt: statement.Statement,
    inseparable: Iterable[Sequence[entities.Task]],
) -> None:
    """Undo the evictions that no nomination of the statement needs.

    A later eviction can make room for an earlier task too. The last evicted, which are the most
    valuable, are spared first. Tasks of one ``inseparable`` group are spared together.
    """
    saved = stmt.save()
    evicted = [task for each in saved if each.kind == "evict" for task in each.tasks]
    ending = [list(group) for group in inseparable]
    grouped = {task.uid for group in ending for task in group}
    singles = [[task] for task in reversed(evicted) if task.uid not in grouped]
    spareable = _reprievable(ssn, [*ending, *singles])
    # The rest of an ended job would hold its nodes for nothing.
    ended = {group[0].job for group in ending if group not in spareable}
    spareable = [group for group in spareable if group[0].job not in ended]
    if not spareable or _replay_without(ssn, stmt, saved, spareable):
        return
    # Filters or quotas forbid sparing all of them: try one by one. Without a nomination on their
    # nodes, victims of one class and job are interchangeable.
    used = {node for each in saved if each.kind == "pipeline" for node in each.nodes}
    needed: set[tuple[str, entities.TaskClass]] = set()
    spared: list[Sequence[entities.Task]] = []
    for group in spareable:
        first = group[0]
        like = (first.job, first.task_class)
        if first.job in ended or (first.node not in used and like in needed):
            continue
        if _replay_without(ssn, stmt, saved, [*spared, group]):
            spared.append(group)
        elif group in ending:
            ended.add(first.job)
        elif first.node not in used:
            needed.add(like)
    _replay_without(ssn, stmt, saved, spared)


def _replay_without(
    ssn: session.Session,
    stmt: statement.Statement,
    saved: Sequence[statement.Operation],
    spared: Iterable[Sequence[entities.Task]],
) -> bool:
    """Redo the saved operations without evicting these tasks.

    If a nomination no longer fits, redo all of them instead and return False.
    """
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
    """Return the groups whose nodes have room for them in addition to all nominations."""
    left: dict[str, resource_vectors.Vector] = {}
    tasks = []
    for group in groups:
        trial = dict(left)
        for task in group:
            row = ssn.nodes.rows[task.node]
            room = trial.get(task.node, ssn.nodes.future_idle_of(row))
            trial[task.node] = room - task.request
        if all(np.all(trial[task.node] >= 0) for task in group):
            left = trial
            tasks.append(group)
    return tasks


def _sufficient_victims(
    ssn: session.Session, task: entities.Task, node: str, victims: Iterable[entities.Task]
) -> list[entities.Task] | None:
    """Return the first victims that make enough room; None if even all of them do not."""
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
    """Return only the victims that are needed. The last one always is."""
    needed = list(evicted)
    # Victims of one class and job on other nodes are interchangeable.
    kept: set[tuple[str, entities.TaskClass]] = set()
    for victim in reversed(evicted[:-1]):
        like = (victim.job, victim.task_class)
        if victim.node != node and like in kept:
            continue
        others = [other for other in needed if other is not victim]
        trial = ssn.statement()
        for other in others:
            trial.evict(other, "")
        if _fits(ssn, task, node):
            needed = others
        elif victim.node != node:
            kept.add(like)
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
