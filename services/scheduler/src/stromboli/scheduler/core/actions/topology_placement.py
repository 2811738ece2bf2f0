"""Finds a topology domain that can hold a gang, or one of its subgroups.

Tiers are tried from the lowest up. In a tier, candidates are the domains that could hold what the
gang lacks, the one with the best plugin score first. The upper bound of what a domain can hold is
computed for all domains at once, by kind of task, so that a domain without room costs nothing. If
all tasks are equal, the bound is exact and the first candidate succeeds.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from stromboli.scheduler.core.actions import subgroups
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, node_views, subjobs, topology_domains

PlaceTasks = Callable[[entities.SubJob | None, list[entities.Task], statement.Statement], None]
"""Places tasks of the job, or of a subgroup, until it is ready. The next task is the last of the
list; tried tasks are removed from it."""
Attempt = Callable[[int, list[entities.Task], statement.Statement], None]
"""Places tasks inside a topology domain."""


class PlacementUnit(NamedTuple):
    """The unit of placement in a domain: a job, or a subgroup of it."""

    job: entities.Job
    subjob: entities.SubJob | None = None

    def is_ready(self, ssn: session.Session) -> bool:
        """Return whether it may be bound."""
        if self.subjob is None:
            return ssn.job_ready(self.job)
        return ssn.subjob_ready(self.job, self.subjob)

    def is_pipelined(self, ssn: session.Session) -> bool:
        """Return whether its nominations are worth keeping."""
        if self.subjob is None:
            return ssn.job_pipelined(self.job)
        return ssn.subjob_pipelined(self.job, self.subjob)

    @property
    def missing_count(self) -> int:
        """The least number of tasks that must be placed before it can be ready or pipelined."""
        if self.subjob is None:
            job = self.job
            return max(1, job.min_available - job.ready - job.waiting - job.pending_best_effort)
        return max(
            1, self.subjob.min_available - subjobs.count(self.subjob, subjobs.NOMINATED_STATUSES)
        )


def place(
    ssn: session.Session,
    job: entities.Job,
    tasks: list[entities.Task],
    trial: statement.Statement,
    place_tasks: PlaceTasks,
) -> None:
    """Place the job's tasks where its topology constraints allow, until it is ready.

    ``tasks``: the next one is the last; tried tasks are removed from the list.
    """

    def attempt(domain: int, left: list[entities.Task], part: statement.Statement) -> None:
        if not job.sub_group_minimums:
            place_tasks(None, left, part)
            return

        def place_group(
            subjob: entities.SubJob, members: list[entities.Task], piece: statement.Statement
        ) -> None:
            _search_domains(
                ssn,
                PlacementUnit(job, subjob),
                members,
                piece,
                domain,
                lambda _, some, bit: place_tasks(subjob, some, bit),
            )

        subgroups.place(ssn, job, left, part, place_group)

    job.topology_error = ""
    _search_domains(ssn, PlacementUnit(job), tasks, trial, topology_domains.ROOT_INDEX, attempt)
    if trial.operations:
        job.topology_error = ""


def _search_domains(
    ssn: session.Session,
    unit: PlacementUnit,
    tasks: list[entities.Task],
    trial: statement.Statement,
    inside: int,
    attempt: Attempt,
) -> None:
    job = unit.job
    for group in ssn.topology.candidate_domains(job, unit.subjob, inside):
        promised: tuple[list[statement.Operation], list[entities.Task]] | None = None
        for domain in _candidate_domains(ssn, unit, tasks, group):
            left, part = list(tasks), ssn.statement()
            job.fit_errors = {}
            with ssn.topology.confined(domain):
                attempt(domain, left, part)
            if part.operations and unit.is_ready(ssn):
                trial.merge(part)
                tasks[:] = left
                return
            if promised is None and part.operations and unit.is_pipelined(ssn):
                promised = (part.save(), left)
            part.discard()
        if promised is not None:
            trial.recover(promised[0])
            tasks[:] = promised[1]
            return
    tasks.clear()


def _candidate_domains(
    ssn: session.Session, unit: PlacementUnit, tasks: Sequence[entities.Task], group: Sequence[int]
) -> list[int]:
    """Return the domains that could hold what is missing, the best first."""
    requested = np.array(group, np.intp)
    most = domain_capacity(ssn, tasks)[requested]
    feasible = requested[most >= unit.missing_count]
    if not len(feasible):
        _report_shortage(ssn, unit, requested, most)
    if len(feasible) < 2:
        return [int(each) for each in feasible]
    numbers: list[int] = feasible.tolist()
    scores = dict(zip(numbers, ssn.domain_scores(tasks, feasible).tolist(), strict=True))
    there = {each: ssn.topology.placed_in(unit.job, each) for each in numbers}
    return sorted(numbers, key=lambda each: (-scores[each], -there[each], each))


def domain_capacity(ssn: session.Session, tasks: Sequence[entities.Task]) -> node_views.Counts:
    """Return an upper bound of how many of the tasks each domain can hold.

    Kinds of tasks are counted independently, as if they did not compete for room.
    """
    tree = ssn.topology.tree
    first: dict[Hashable, entities.Task] = {}
    counts: Counter[Hashable] = Counter()
    for task in tasks:
        kind = ssn.finder.kind(task)
        first.setdefault(kind, task)
        counts[kind] += 1
    total = np.zeros(len(tree), np.int64)
    for kind, task in first.items():
        on_nodes = ssn.finder.room(task, counts[kind])
        if on_nodes is None:
            total += counts[kind]
        else:
            total += np.minimum(tree.sums(on_nodes[np.newaxis, :])[0], counts[kind])
    return total


def _report_shortage(
    ssn: session.Session,
    unit: PlacementUnit,
    requested: topology_domains.Indices,
    room: node_views.Counts,
) -> None:
    tree = ssn.topology.tree
    best = int(np.argmax(room))
    domain = int(requested[best])
    what = "the gang" if unit.subjob is None else f"its group {unit.subjob.key}"
    where = f"{tree.names[domain]} of tier {tree.tiers[domain]}"
    if domain == topology_domains.ROOT_INDEX:
        where = "the whole cluster"
    unit.job.topology_error = (
        f"no topology domain of an allowed tier has room for {what}: "
        f"{unit.missing_count} of its "
        f"tasks need one domain, and {where}, which has the most room, can hold {room[best]}"
    )
