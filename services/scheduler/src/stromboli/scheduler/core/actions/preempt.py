"""The action ``preempt``: a starving job evicts lower-priority tasks of its own queue.

First, jobs evict tasks of other jobs: all that they need or nothing. Then tasks evict
lower-priority tasks of their own job. Differences from Volcano: nothing is evicted on a node while
another node has room; nominations within a job require that the gang can start; if the number of
nodes to search is limited, they are taken by name, not from a random start. Gangs with a topology
constraint are left to ``gangpreempt``, since room that is made node by node may be in any domain.
"""

import functools
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec
import numpy as np

from stromboli.scheduler.core.actions import eviction_rules, victim_search
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points

NAME = "preempt"


class Arguments(msgspec.Struct, frozen=True):
    """How victims are searched. Percentage and numbers limit the nodes that are compared."""

    is_topology_aware: bool
    min_nodes_percent: int
    min_nodes: int
    max_nodes: int

    @classmethod
    def read(cls, arguments: configuration.Arguments) -> "Arguments":
        """Read the action's configuration."""
        return cls(
            arguments.boolean("enableTopologyAwarePreemption", default=False),
            arguments.integer("minCandidateNodesPercentage", 10),
            arguments.integer("minCandidateNodesAbsolute", 1),
            arguments.integer("maxCandidateNodesAbsolute", 100),
        )

    def max_compared(self, nodes: int) -> int:
        """Return how many nodes with victims are compared in a cluster of this many nodes."""
        wanted = max(nodes * self.min_nodes_percent // 100, self.min_nodes)
        return max(1, min(wanted, self.max_nodes, nodes))


def run(ssn: session.Session) -> None:
    """Evict tasks for every starving job that can then start."""
    arguments = configuration_of(ssn)
    starving = eviction_rules.starving_jobs(ssn)
    if not starving:
        return
    attempt = _Attempt(ssn, arguments)
    for queue in eviction_rules.ordered_queues(ssn, starving):
        jobs = [job for job in starving[queue.name] if not ssn.topology.is_constrained(job)]
        for job in jobs:
            _preempt_other_jobs(ssn, job, attempt)
        for job in jobs:
            _preempt_within_job(ssn, job, attempt)


def configuration_of(ssn: session.Session) -> Arguments:
    """Return the action's arguments; invalid ones are added to the session's complaints."""
    raw_arguments = ssn.configuration.action(NAME)
    arguments = Arguments.read(raw_arguments)
    ssn.complaints.extend(raw_arguments.complaints)
    return arguments


def _preempt_other_jobs(ssn: session.Session, job: entities.Job, attempt: "_Attempt") -> None:
    others = attempt.other_jobs(job)

    def search(spared: frozenset[str]) -> frozenset[str]:
        rules = attempt.rules(job, lambda: others() - spared)
        tasks = eviction_rules.pending_tasks(ssn, job)
        return victim_search.evict_for_gang(ssn, job, tasks, rules)

    eviction_rules.spare_jobs(search)


def _preempt_within_job(ssn: session.Session, job: entities.Job, attempt: "_Attempt") -> None:
    rules = attempt.rules(job, lambda: frozenset({job.key}))
    stmt = ssn.statement()
    for task in eviction_rules.pending_tasks(ssn, job):
        if not victim_search.nominate(ssn, task, rules, stmt):
            break
    victim_search.commit_if_ready(ssn, job, stmt, rules)


VictimJobs = Callable[[], frozenset[str]]
"""Returns the jobs whose tasks are candidates."""


class _Attempt:
    """Searches for room for one task after another, and caches failures until the session
    changes."""

    def __init__(self, ssn: session.Session, arguments: Arguments) -> None:
        self._session = ssn
        self._arguments = arguments
        self._victims = eviction_rules.VictimIndex(ssn, entities.PREEMPTABLE, ssn.may_preempt)
        self._failed: dict[tuple[entities.TaskClass, str, int, bool, int], int] = {}

    def other_jobs(self, job: entities.Job) -> VictimJobs:
        """Return a function that returns the other jobs of the queue that may have victims; it
        finds them at its first call. Evictions for this gang only remove jobs from the set."""
        return functools.cache(
            lambda: self._victims.jobs_for(job, lambda other: other.queue == job.queue)
        )

    def rules(self, job: entities.Job, jobs: VictimJobs) -> victim_search.SearchRules:
        """Return the search rules for victims of these jobs."""
        finder = self._session.finder
        return victim_search.SearchRules(
            NAME,
            lambda task: finder.pre_predicate(task) is None,
            lambda task: self._make_room(task, jobs()),
            lambda node: not self._arguments.is_topology_aware,
        )

    def _make_room(
        self, task: entities.Task, jobs: frozenset[str]
    ) -> victim_search.NodeRoom | None:
        ssn = self._session
        if not jobs or not eviction_rules.may_evict(ssn, task):
            return None
        is_own = task.job in jobs
        requested = (task.task_class, task.job, task.priority, is_own, len(jobs))
        if self._failed.get(requested) == len(ssn.nodes.touched):
            return None
        room = self._room(task, jobs)
        if room is None:
            self._failed[requested] = len(ssn.nodes.touched)
        return room

    def _room(self, task: entities.Task, jobs: frozenset[str]) -> victim_search.NodeRoom | None:
        finder = self._session.finder
        helps = self._victims.helpful_nodes(task, jobs) & finder.filter_result(task).resolvable
        if self._arguments.is_topology_aware:
            helps &= self._unresolvable_nodes(task)
            return self._cheapest(task, jobs, helps) or self._within_quota(task, jobs, helps)
        if not helps.any():
            return None
        # The best node nearly always succeeds: the others are ranked only if it fails.
        best = finder.best(task, helps)
        room = self._room_on(task, best, jobs)
        if room is not None:
            return room
        helps[self._session.nodes.rows[best]] = False
        choices = (self._room_on(task, node, jobs) for node in finder.ranked(task, helps))
        return next((room for room in choices if room is not None), None)

    def _within_quota(
        self, task: entities.Task, jobs: frozenset[str], helps: extension_points.Mask
    ) -> victim_search.NodeRoom | None:
        """Return the room on a node for a task that exceeds its queue's quota as long as victims on
        other nodes run. As in Volcano, only dry runs count the victims of several nodes."""
        ssn = self._session
        if not helps.any() or ssn.allocatable(ssn.queue_of(ssn.jobs[task.job]), task):
            return None
        # Victims of the job that is served last come first. Pods that request nothing free no
        # quota.
        ordered = sorted((ssn.jobs[key] for key in jobs), key=ssn.job_key(), reverse=True)

        def groups() -> Iterator[list[entities.Task]]:
            for job in ordered:
                yield [each for each in self._victims.of_job(job) if not each.is_best_effort]

        choices = victim_search.room_within_quota(
            ssn,
            task,
            ssn.finder.ranked(task, helps),
            lambda node: self._candidates(task, node, jobs),
            groups,
            ssn.preemptable,
        )
        return next(choices, None)

    def _unresolvable_nodes(self, task: entities.Task) -> extension_points.Mask:
        """Return the nodes that pass the global filters of plugins that ignore eviction trials.

        These filters, such as pod affinity, judge the nodes as if nothing were evicted.
        """
        ssn = self._session
        mask = np.ones(len(ssn.nodes), np.bool_)
        moved = {
            test
            for flag in ("enablePreemptable", "enabledAllocatable")
            for test in ssn.flat(interfaces.PREDICATE, flag)
        }
        for test in ssn.flat(interfaces.PREDICATE):
            if test not in moved and ssn.scopes[test] is extension_points.Scope.GLOBAL:
                for check in test(task, node_views.NodeView(ssn.nodes, task)):
                    mask &= check.passed
        return mask

    def _cheapest(
        self, task: entities.Task, jobs: frozenset[str], helps: extension_points.Mask
    ) -> victim_search.NodeRoom | None:
        """Return the room with the least important victims among the first nodes with room."""
        wanted = self._arguments.max_compared(len(self._session.nodes))
        free_by_node: list[victim_search.NodeRoom] = []
        for row in np.flatnonzero(helps):
            room = self._room_on(task, self._session.nodes.names[row], jobs)
            if room is not None:
                free_by_node.append(room)
                if len(free_by_node) == wanted:
                    break
        return min(free_by_node, key=_cost, default=None)

    def _room_on(
        self, task: entities.Task, node: str, jobs: frozenset[str]
    ) -> victim_search.NodeRoom | None:
        ssn = self._session
        candidates = self._candidates(task, node, jobs)
        if not candidates:
            return None
        return victim_search.room_on(ssn, task, node, candidates, ssn.preemptable)

    def _candidates(
        self, task: entities.Task, node: str, jobs: frozenset[str]
    ) -> list[entities.Task]:
        return [
            other
            for other in self._victims.on(self._session.nodes.rows[node], jobs)
            if other.is_best_effort or not task.is_best_effort
        ]


def _cost(room: victim_search.NodeRoom) -> tuple[int, int, int, float]:
    """Return the cost of victims: their highest priority, sum of priorities, number, and start
    time."""
    priorities = [victim.priority for victim in room.victims]
    highest = max(priorities)
    # As in Kubernetes: the constant keeps fewer victims cheaper if priorities are negative.
    total = sum(priority + 2**31 for priority in priorities)
    earliest = min(_start_time(victim) for victim in room.victims if victim.priority == highest)
    return (highest, total, len(priorities), -earliest.timestamp())


def _start_time(task: entities.Task) -> datetime:
    return task.pod.status.start_time or task.created
