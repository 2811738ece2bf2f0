"""Finds admitted gangs that cannot start even if other gangs end: they wait for something else.

A node is *eligible* for a task if all of these hold:

1. It passes each check whose result stays when the tasks of other gangs end (``Check.is_lasting``):
   labels, taints, volumes, host ports of pods without a gang, AdvanceReservations.
2. If no gang has pods on it, it passes all other checks as well. A check that depends on tasks of
   other nodes counts only if no gang has pods anywhere.
3. The request fits the allocatable resources of the node minus the requests of pods that belong to
   no gang, such as those of a DaemonSet.

A gang is *obstructed* if its pods exist and

- the eligible nodes, or each topology domain that it may use, have room for fewer of them than it
  needs, even if they were empty; or
- it was tried without effect while no other gang had a pod on any node: nothing is left to wait
  for.

Room is an upper bound: classes of tasks are counted as if they did not compete. A gang that waits
only for room is therefore never obstructed; an obstructed gang may be missed while others run.
Nothing is obstructed while a node is unreadable, because its state is unknown.
"""

import functools
from collections import Counter
from collections.abc import Collection, Hashable, Iterable

import numpy as np

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views, queue_usage
from stromboli.scheduler.core.placement import affinity, extension_points

PLACED = (entities.Status.ALLOCATED, entities.Status.PIPELINED)
MOST = 2**20
"""Largest room of one node: tasks that request nothing would have no limit."""


def find_obstructed(closed: session.Session) -> dict[str, bool]:
    """Whether each admitted gang that the session tried is obstructed. Call it before the rollback.

    O(pending tasks of these gangs), and O(resources x nodes) once for each class of tasks.
    """
    if "enqueue" not in closed.configuration.actions:
        return {}
    room = EventualRoom(closed)
    return {
        job.key: room.is_obstructed(job)
        for job in closed.waiting_jobs()
        if job.phase == "Inqueue" and job.key not in closed.untried and _is_judged(job)
    }


def _is_judged(job: entities.Job) -> bool:
    """Whether room is kept for the job, the session could decide about it, and all pods that it
    needs exist."""
    is_known = job.is_decidable and job.min_request is not None and not job.problems
    return is_known and len(job.tasks) >= job.min_available and job.roles_valid


class EventualRoom:
    """The room of nodes once the pods of all gangs have ended, by class of tasks."""

    def __init__(self, closed: session.Session) -> None:
        self._session = closed
        self._room: dict[Hashable, node_views.Counts] = {}
        self._sums: dict[tuple[Hashable, int], int] = {}
        """Class of tasks and domain -> the room of the domain."""

    @functools.cached_property
    def _is_known(self) -> bool:
        """Whether there are nodes, and all of them can be read."""
        return not self._session.nodes.excluded and len(self._session.nodes) > 0

    @functools.cached_property
    def _gang_pods_by_node(self) -> node_views.Counts:
        nodes = self._session.nodes
        gang_pods: node_views.Counts = nodes.pods - nodes.pods_without_gang
        return gang_pods

    @functools.cached_property
    def _gang_pods(self) -> int:
        return int(self._gang_pods_by_node.sum())

    def is_obstructed(self, job: entities.Job) -> bool:
        """Whether a job that is not ready cannot start even if all other gangs end."""
        if job.is_ready or job.count_in(PLACED) or not self._is_known:
            return False
        if self._session.topology.problem(job):
            return True
        return self._failed_alone(job) or not self._has_room(job)

    def _failed_alone(self, job: entities.Job) -> bool:
        was_tried = bool(job.fit_errors or job.topology_error)
        own = job.count_in(entities.ON_NODE)
        return was_tried and not self._session.cooldowns and self._gang_pods == own

    def _has_room(self, job: entities.Job) -> bool:
        waiting = [
            task
            for task in job.unplaced
            if not task.is_gated or queue_usage.is_gated_by_queue_only(task)
        ]
        topology = self._session.topology
        for domain in topology.largest_domains(job):
            if self._reaches_minimum(job, waiting, domain):
                return True
        return False

    def _reaches_minimum(
        self, job: entities.Job, waiting: Collection[entities.Task], domain: int
    ) -> bool:
        if job.ready + self._most_placed(waiting, domain) < job.min_available:
            return False
        for role, least in job.role_minimums:
            of_role = [task for task in waiting if task.role == role]
            has = job.role_count(role, entities.READY)
            if has + self._most_placed(of_role, domain) < least:
                return False
        whole = Counter(
            subjob.policy for subjob in job.subjobs.values() if self._can_be_whole(job, subjob)
        )
        return all(whole[policy] >= least for policy, least in job.sub_group_minimums.items())

    def _can_be_whole(self, job: entities.Job, subjob: entities.SubJob) -> bool:
        """Whether the subgroup reaches its minimum in one of the domains that it may use."""
        if not job.sub_group_minimums:
            return True
        topology = self._session.topology
        waiting = [
            task
            for task in subjob.tasks.values()
            if task.status is entities.Status.PENDING and not task.is_gated
        ]
        has = sum(task.status in entities.READY for task in subjob.tasks.values())
        ways = (each for group in topology.candidate_domains(job, subjob, 0) for each in group)
        return any(
            has + self._most_placed(waiting, domain) >= subjob.min_available for domain in ways
        )

    def _most_placed(self, tasks: Iterable[entities.Task], domain: int) -> int:
        """An upper bound of how many of the tasks the nodes of a domain can hold together."""
        first: dict[Hashable, entities.Task] = {}
        counts: Counter[Hashable] = Counter()
        for task in tasks:
            kind = self._session.finder.kind(task)
            first.setdefault(kind, task)
            counts[kind] += 1
        return sum(
            min(count, self._room_for(kind, first[kind], domain)) for kind, count in counts.items()
        )

    def _room_for(self, kind: Hashable, task: entities.Task, domain: int) -> int:
        """How many tasks like this one the domain could hold."""
        total = self._sums.get((kind, domain))
        if total is None:
            room = self._room.get(kind)
            if room is None:
                room = self._room[kind] = self._count(task)
            inside = self._session.topology.tree.mask(domain)
            total = self._sums[kind, domain] = int(room[inside].sum())
        return total

    def _count(self, task: entities.Task) -> node_views.Counts:
        nodes = self._session.nodes
        if self._session.finder.pre_predicate(task) is not None:
            return np.zeros(len(nodes), np.int64)
        checks = list(self._session.finder.plugin_checks(task))
        reserved = self._session.reservations.checks(task, self._session.job_of(task))
        checks += [(extension_points.Scope.STATIC, check) for check in reserved]
        requested = np.flatnonzero(task.request > 0)
        room = np.full(len(nodes), MOST, np.int64)
        if requested.size:
            free = nodes.allocatable[requested] - nodes.used_without_gang[requested]
            room = np.minimum(room, (free // task.request[requested, np.newaxis]).min(axis=0))
        if task.task_class.ports:
            room = np.minimum(room, 1)
        room = np.where(self._eligible(checks), np.maximum(room, 0), 0)
        if any(check.reason == affinity.ANTI_AFFINITY_NOT_MET for _, check in checks):
            room = self._apart(task.task_class, room)
        return room

    def _eligible(
        self, checks: Iterable[tuple[extension_points.Scope, extension_points.Check]]
    ) -> extension_points.Mask:
        """Rules 1 and 2."""
        mask: extension_points.Mask = np.ones(len(self._session.nodes), np.bool_)
        for scope, check in checks:
            if check.is_lasting:
                mask &= check.passed
            elif scope is not extension_points.Scope.GLOBAL or not self._gang_pods:
                mask &= check.passed | (self._gang_pods_by_node > 0)
        return mask

    def _apart(self, task_class: entities.TaskClass, room: node_views.Counts) -> node_views.Counts:
        """The room for tasks that repel each other: one task in each domain of the term."""
        index = self._session.affinity_index
        for term in index.affinity_terms(task_class).required_anti_affinity:
            if not index.matches_pod(term.pods, task_class):
                continue
            places = index.places(term.topology_key)[0]
            rows = np.flatnonzero((places >= 0) & (room > 0))
            _, first = np.unique(places[rows], return_index=True)
            kept = np.where(places < 0, room, 0)
            kept[rows[first]] = 1
            room = kept
        return room
