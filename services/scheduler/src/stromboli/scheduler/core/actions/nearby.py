"""Looking for a part of the network that takes a gang, or a group of it (spec/topology 4).

Tiers are tried from the lowest up, and in a tier the domains that could hold what the gang lacks,
the one that plugins like best first. What a domain could hold at most is counted for all domains at
once, by kind of task, so that domains without the room cost nothing; where all tasks are equal the
first domain that is tried is the one.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from stromboli.scheduler.core.actions import subgroups
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, node_views, subjobs, topology_domains

Place = Callable[[entities.SubJob | None, list[entities.Task], statement.Statement], None]
"""Places tasks of the job, or of a group of it, until it is ready; the next one is the last of the
list, and what was tried is taken from it."""
Attempt = Callable[[int, list[entities.Task], statement.Statement], None]
"""The same inside a domain."""


class Sought(NamedTuple):
    """A job, or a group of it."""

    job: entities.Job
    subjob: entities.SubJob | None = None

    def is_ready(self, within: session.Session) -> bool:
        """It may be bound."""
        if self.subjob is None:
            return within.job_ready(self.job)
        return within.subjob_ready(self.job, self.subjob)

    def is_pipelined(self, within: session.Session) -> bool:
        """Its promises are worth keeping."""
        if self.subjob is None:
            return within.job_pipelined(self.job)
        return within.subjob_pipelined(self.job, self.subjob)

    @property
    def lacks(self) -> int:
        """How many tasks must at least be placed before it can be ready or wait."""
        if self.subjob is None:
            job = self.job
            return max(1, job.min_available - job.ready - job.waiting - job.pending_best_effort)
        return max(1, self.subjob.min_available - subjobs.count(self.subjob, subjobs.PROMISED))


def place(
    within: session.Session,
    job: entities.Job,
    tasks: list[entities.Task],
    trial: statement.Statement,
    place_tasks: Place,
) -> None:
    """Place the job's tasks where its wishes allow, until it is ready. ``tasks``: those to be
    tried, the next one last; what was tried is taken from them."""

    def attempt(domain: int, left: list[entities.Task], part: statement.Statement) -> None:
        if not job.sub_group_minimums:
            place_tasks(None, left, part)
            return

        def place_group(
            subjob: entities.SubJob, members: list[entities.Task], piece: statement.Statement
        ) -> None:
            _seek(
                within,
                Sought(job, subjob),
                members,
                piece,
                domain,
                lambda _, some, bit: place_tasks(subjob, some, bit),
            )

        subgroups.place(within, job, left, part, place_group)

    job.domain_error = ""
    _seek(within, Sought(job), tasks, trial, topology_domains.ROOT_INDEX, attempt)
    if trial.operations:
        job.domain_error = ""


def _seek(
    within: session.Session,
    sought: Sought,
    tasks: list[entities.Task],
    trial: statement.Statement,
    inside: int,
    attempt: Attempt,
) -> None:
    job = sought.job
    for group in within.nearness.ways(job, sought.subjob, inside):
        promised: tuple[list[statement.Operation], list[entities.Task]] | None = None
        for domain in _promising(within, sought, tasks, group):
            left, part = list(tasks), within.statement()
            job.fit_errors.clear()
            with within.nearness.confined(domain):
                attempt(domain, left, part)
            if part.operations and sought.is_ready(within):
                trial.merge(part)
                tasks[:] = left
                return
            if promised is None and part.operations and sought.is_pipelined(within):
                promised = (part.save(), left)
            part.discard()
        if promised is not None:
            trial.recover(promised[0])
            tasks[:] = promised[1]
            return
    tasks.clear()


def _promising(
    within: session.Session, sought: Sought, tasks: Sequence[entities.Task], group: Sequence[int]
) -> list[int]:
    """The domains that could hold what is lacking, the best first."""
    asked = np.array(group, np.intp)
    most = room(within, tasks)[asked]
    found = asked[most >= sought.lacks]
    if not len(found):
        _say_what_is_short(within, sought, asked, most)
    if len(found) < 2:
        return [int(each) for each in found]
    numbers: list[int] = found.tolist()
    scores = dict(zip(numbers, within.domain_scores(tasks, found).tolist(), strict=True))
    there = {each: within.nearness.there(sought.job, each) for each in numbers}
    return sorted(numbers, key=lambda each: (-scores[each], -there[each], each))


def room(within: session.Session, tasks: Sequence[entities.Task]) -> node_views.Counts:
    """How many of the tasks each domain could hold at most, kinds that get into each other's way
    counted as if they did not."""
    tree = within.nearness.tree
    first: dict[Hashable, entities.Task] = {}
    counts: Counter[Hashable] = Counter()
    for task in tasks:
        kind = within.finder.kind(task)
        first.setdefault(kind, task)
        counts[kind] += 1
    total = np.zeros(len(tree), np.int64)
    for kind, task in first.items():
        on_nodes = within.finder.room(task, counts[kind])
        if on_nodes is None:
            total += counts[kind]
        else:
            total += np.minimum(tree.sums(on_nodes[np.newaxis, :])[0], counts[kind])
    return total


def _say_what_is_short(
    within: session.Session,
    sought: Sought,
    asked: topology_domains.Indices,
    room: node_views.Counts,
) -> None:
    tree = within.nearness.tree
    best = int(np.argmax(room))
    domain = int(asked[best])
    what = "the gang" if sought.subjob is None else f"its group {sought.subjob.key}"
    where = f"{tree.names[domain]} of tier {tree.tiers[domain]}"
    if domain == topology_domains.ROOT_INDEX:
        where = "the whole cluster"
    sought.job.domain_error = (
        f"no part of the network that is near enough has room for {what}: {sought.lacks} of its "
        f"tasks must lie in one, and {where}, the roomiest, could hold {room[best]}"
    )
