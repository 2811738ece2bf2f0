"""Preempt: a starving job takes the places of others in its own queue (spec/scheduling 8.4).

First jobs take from other jobs, all they need or nothing; then tasks from lower tasks of their own
job. Unlike Volcano, it evicts nothing on a node while another has room, nominates inside a job only
if the gang then stands, and looks for limited candidates in the order of names instead of from a
random start. Gangs that care how near their tasks lie are served by ``gangpreempt``: room that is
made node by node may lie anywhere.
"""

from collections.abc import Callable
from datetime import datetime

import msgspec
import numpy as np

from stromboli.scheduler.core.actions import evicting, victim_search
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points

NAME = "preempt"


class Arguments(msgspec.Struct, frozen=True):
    """How to look for victims. Percentage and numbers limit the nodes that are compared."""

    is_topology_aware: bool
    min_nodes_percent: int
    min_nodes: int
    max_nodes: int

    @classmethod
    def read(cls, given: configuration.Arguments) -> "Arguments":
        """From the action's configuration."""
        return cls(
            given.boolean("enableTopologyAwarePreemption", default=False),
            given.integer("minCandidateNodesPercentage", 10),
            given.integer("minCandidateNodesAbsolute", 1),
            given.integer("maxCandidateNodesAbsolute", 100),
        )

    def most_compared(self, nodes: int) -> int:
        """How many nodes with victims are compared, of so many."""
        wanted = max(nodes * self.min_nodes_percent // 100, self.min_nodes)
        return max(1, min(wanted, self.max_nodes, nodes))


def run(within: session.Session) -> None:
    """Evict for every starving job that then stands."""
    arguments = configuration_of(within)
    starving = evicting.starving(within)
    attempt = _Attempt(within, arguments)
    for queue in evicting.ordered_queues(within, starving):
        jobs = [job for job in starving[queue.name] if not within.nearness.wants(job)]
        for job in jobs:
            _from_others(within, job, attempt)
        for job in jobs:
            _from_itself(within, job, attempt)


def configuration_of(within: session.Session) -> Arguments:
    """The action's arguments; what is wrong with them is complained of."""
    given = within.configuration.action(NAME)
    arguments = Arguments.read(given)
    within.complaints.extend(given.complaints)
    return arguments


def _from_others(within: session.Session, job: entities.Job, attempt: "_Attempt") -> None:
    rules = attempt.rules(lambda victim: victim.job != job.key)
    victim_search.serve(within, job, evicting.wanting(within, job), rules)


def _from_itself(within: session.Session, job: entities.Job, attempt: "_Attempt") -> None:
    rules = attempt.rules(lambda victim: victim.job == job.key)
    whole = within.statement()
    for task in evicting.wanting(within, job):
        if not victim_search.nominate(within, task, rules, whole):
            break
    victim_search.conclude(within, job, whole, rules)


class _Attempt:
    """Looks for room for one task after another; remembers what failed and why it still does."""

    def __init__(self, within: session.Session, arguments: Arguments) -> None:
        self._session = within
        self._arguments = arguments
        self._victims = evicting.Victims(within, entities.PREEMPTABLE)
        self._failed: dict[tuple[entities.TaskClass, str, int, bool], int] = {}

    def rules(self, may_go: Callable[[entities.Task], bool]) -> victim_search.Rules:
        """What the search may do where these victims may go."""

        def may_place(task: entities.Task) -> bool:
            return self._session.finder.pre_predicate(task) is None

        return victim_search.Rules(
            NAME,
            may_place,
            lambda task: self._make_room(task, may_go),
            lambda node: not self._arguments.is_topology_aware,
        )

    def _make_room(
        self, task: entities.Task, may_go: Callable[[entities.Task], bool]
    ) -> victim_search.Room | None:
        within = self._session
        if not evicting.may_evict(within, task):
            return None
        is_own = may_go(task)
        asked = (task.task_class, task.job, task.priority, is_own)
        if self._failed.get(asked) == len(within.nodes.touched):
            return None
        room = self._room(task, may_go)
        if room is None:
            self._failed[asked] = len(within.nodes.touched)
        return room

    def _room(
        self, task: entities.Task, may_go: Callable[[entities.Task], bool]
    ) -> victim_search.Room | None:
        finder = self._session.finder
        queue = self._session.jobs[task.job].queue
        helps = self._victims.may_help(task, [queue]) & finder.verdict(task).resolvable
        if self._arguments.is_topology_aware:
            return self._cheapest(task, may_go, helps & self._unmoved(task))
        if not helps.any():
            return None
        # Nearly always the best node will do: the others are put in order only if it does not.
        best = finder.best(task, helps)
        room = self._room_on(task, best, may_go)
        if room is not None:
            return room
        helps[self._session.nodes.rows[best]] = False
        rooms = (self._room_on(task, node, may_go) for node in finder.ranked(task, helps))
        return next((room for room in rooms if room is not None), None)

    def _unmoved(self, task: entities.Task) -> extension_points.Mask:
        """Nodes that pass plugins whose flags keep them out of trying evictions: what these say of
        pods near pods, they say as if nobody went."""
        within = self._session
        mask = np.ones(len(within.nodes), np.bool_)
        moved = {
            test
            for flag in ("enablePreemptable", "enabledAllocatable")
            for test in within.flat("predicate", flag)
        }
        for test in within.flat("predicate", "enablePredicate"):
            if test not in moved and within.scopes[test] is extension_points.Scope.GLOBAL:
                for check in test(task, node_views.NodeView(within.nodes, task)):
                    mask &= check.passed
        return mask

    def _cheapest(
        self,
        task: entities.Task,
        may_go: Callable[[entities.Task], bool],
        helps: extension_points.Mask,
    ) -> victim_search.Room | None:
        """Of the first nodes with room, the one whose victims matter least."""
        wanted = self._arguments.most_compared(len(self._session.nodes))
        found: list[victim_search.Room] = []
        for row in np.flatnonzero(helps):
            room = self._room_on(task, self._session.nodes.names[row], may_go)
            if room is not None:
                found.append(room)
                if len(found) == wanted:
                    break
        return min(found, key=_cost, default=None)

    def _room_on(
        self, task: entities.Task, node: str, may_go: Callable[[entities.Task], bool]
    ) -> victim_search.Room | None:
        within = self._session
        queue = within.jobs[task.job].queue
        candidates = [
            other
            for other in self._victims.on(within.nodes.rows[node], [queue])
            if may_go(other) and (other.is_best_effort or not task.is_best_effort)
        ]
        if not candidates:
            return None
        room = victim_search.room_on(within, task, node, candidates, within.preemptable)
        return None if room is None or self._goes_back(task, room) else room

    def _goes_back(self, task: entities.Task, room: victim_search.Room) -> bool:
        """With its victims gone, one of their jobs would be served before the task's own: it would
        take the room back, be robbed again, and so for ever."""
        within = self._session
        if not any(within.flat("job_order", "enableJobOrder")):
            return False
        trial = within.statement()
        for victim in room.victims:
            trial.evict(victim, "")
        own = within.jobs[task.job]
        jobs = {victim.job: within.jobs[victim.job] for victim in room.victims}
        goes_back = any(
            job is not own and within.compare_jobs(job, own) < 0 for job in jobs.values()
        )
        trial.discard()
        return goes_back


def _cost(room: victim_search.Room) -> tuple[int, int, int, float]:
    """Least first: the highest priority lost, the sum, how many, how long they have run."""
    priorities = [victim.priority for victim in room.victims]
    highest = max(priorities)
    # A constant on each keeps fewer victims cheaper where priorities are negative, as the field's.
    total = sum(priority + 2**31 for priority in priorities)
    earliest = min(_started(victim) for victim in room.victims if victim.priority == highest)
    return (highest, total, len(priorities), -earliest.timestamp())


def _started(task: entities.Task) -> datetime:
    return task.pod.status.start_time or task.created
