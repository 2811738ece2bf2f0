"""Places a gang of unequal tasks by packing, where placement in task order failed.

Task order and node scores ignore what later tasks of the gang need: a small task can take the only
room of a large one. The second attempt chooses the tasks that the gang lacks, the smallest within
one priority, and packs all of them together (``placement.vector_packing``). Plugins then check each
placement as in the first attempt. Scores are not used: the gang starts or waits.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np

from stromboli.scheduler.core.actions import topology_placement
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import vector_packing


def place(
    ssn: session.Session,
    queue: entities.Queue,
    unit: topology_placement.PlacementUnit,
    tasks: Sequence[entities.Task],
    trial: statement.Statement,
) -> list[entities.Task]:
    """Place the tasks that the gang or subgroup still needs on idle nodes; return them.

    Returns an empty list and places nothing if the tasks are equal or if no placement makes the
    gang ready. ``tasks``: the candidates; ``trial``: empty.
    """
    if len({ssn.finder.kind(task) for task in tasks}) < 2:
        return []
    kinds: dict[Hashable, list[entities.Task]] = {}
    for task in smallest_needed(ssn, unit, tasks):
        kinds.setdefault(ssn.finder.kind(task), []).append(task)
    groups = list(kinds.values())
    if any(ssn.finder.pre_predicate(group[0]) for group in groups):
        return []
    # Room nominated to other tasks counts as idle until they are bound.
    room = np.minimum(ssn.nodes.idle, ssn.nodes.future_idle)
    demands = [
        vector_packing.Demand(
            group[0].request, len(group), ssn.finder.filter_result(group[0]).passed
        )
        for group in groups
    ]
    packing = vector_packing.pack(room, demands)
    if packing is None:
        return []
    for group, counts in zip(groups, packing, strict=True):
        rows = [row for row, count in counts.items() for _ in range(count)]
        for task, row in zip(group, rows, strict=True):
            if not _is_feasible(ssn, queue, task, row):
                trial.discard()
                return []
            trial.allocate(task, ssn.nodes.names[row])
    if not unit.is_ready(ssn):
        trial.discard()
        return []
    return [task for group in groups for task in group]


def smallest_needed(
    ssn: session.Session,
    unit: topology_placement.PlacementUnit,
    tasks: Iterable[entities.Task],
) -> list[entities.Task]:
    """Return as many tasks as the gang lacks: those of roles below their minimum first, then those
    of higher priority, then the smallest."""
    size = _size_on(ssn)
    ordered = sorted(tasks, key=lambda task: (-task.priority, size(task)))
    if unit.subjob is None:
        ordered = unit.job.most_needed_first(ordered)
    return ordered[: unit.missing_count]


def largest_first(ssn: session.Session, tasks: Iterable[entities.Task]) -> list[entities.Task]:
    """Sort tasks by the largest fraction of a node that they request; equal ones keep their
    order."""
    size = _size_on(ssn)
    return sorted(tasks, key=lambda task: -size(task))


def _size_on(ssn: session.Session) -> Callable[[entities.Task], float]:
    """Return a function from a task to its largest request, as a fraction of the largest node."""
    largest = np.maximum(ssn.nodes.allocatable.max(axis=1, initial=0), 1)
    return lambda task: float((task.request / largest).max())


def _is_feasible(
    ssn: session.Session, queue: entities.Queue, task: entities.Task, row: int
) -> bool:
    """Whether the queue's quota and all predicates allow the task on the node as it is now."""
    finder = ssn.finder
    fits = finder.fits_idle(task)[row] and finder.fits_future(task)[row]
    return bool(fits and finder.filter_result(task).passed[row]) and ssn.allocatable(queue, task)
