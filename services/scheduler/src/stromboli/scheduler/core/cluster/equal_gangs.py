"""Lines of equal gangs that wait for room on nodes: sessions try the first one, then the next.

With ten thousand waiting gangs and one pod that ends every second, each session has room for a few
gangs. Equal gangs differ only in their position in job order. If a session tries one of them and it
does not start, because room or quota is short, the equal gangs after it would not start either: a
session that evicts nothing only fills nodes. And while the nodes lack room for the minimum of one,
none need be tried.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stromboli.scheduler.core.model import entities, resource_vectors

SortKey: TypeAlias = tuple[Any, ...]
"""The position of a gang in job order; it ends with the PodGroup's uid, so no two are equal."""


class EqualGangs(msgspec.Struct, frozen=True):
    """What equal gangs have in common. None of them has a placed task, and all tasks of each are of
    one class, role and time limit.

    ``task_class``: its number. ``time_limit``: None if there is none, or if it does not matter.
    ``minimums``: the minimum of each role.
    """

    queue: str
    task_class: int
    role: str
    time_limit: timedelta | None
    tasks: int
    min_available: int
    minimums: tuple[tuple[str, int], ...]

    @property
    def needed(self) -> int:
        """Number of tasks that must fit the nodes before one of these gangs can start."""
        return max(1, self.min_available)


def of_job(
    job: entities.Job, time_limit: Callable[[entities.Task], timedelta | None]
) -> EqualGangs | None:
    """What the gang has in common with others; None if it may differ from all of them.

    Only for gangs that wait for room on nodes. ``time_limit``: of a task, None if it does not
    matter. O(tasks).
    """
    waiting = job.unplaced
    if len(waiting) != len(job.tasks) or job.gated:
        return None
    # Tasks of several classes may share a role, such as those that name none.
    kinds = {(task.task_class.number, task.role, time_limit(task)) for task in waiting}
    if len(kinds) != 1:
        return None
    minimums = tuple(sorted(job.task_min_available.items()))
    return EqualGangs(job.queue, *kinds.pop(), len(waiting), job.min_available, minimums)


def count_room(request: resource_vectors.Vector, future_idle: resource_vectors.Table) -> int:
    """How many tasks with the request the nodes can hold together. O(resources x nodes)."""
    requested = request.nonzero()[0]
    if not requested.size or not future_idle.shape[1]:
        return 0
    room = (future_idle[requested] // request[requested, np.newaxis]).min(axis=0)
    return int(np.maximum(room, 0).sum())


class Lines:
    """Gangs that the next session may try, by what they have in common, in job order."""

    def __init__(self, gangs: Iterable[tuple[EqualGangs, SortKey, str]] = ()) -> None:
        """``gangs``: what each has in common, its position and its key. O(gangs x log gangs)."""
        lines: dict[EqualGangs, list[tuple[SortKey, str]]] = {}
        for common, position, key in gangs:
            lines.setdefault(common, []).append((position, key))
        self._lines = {
            common: [key for _, key in sorted(members)] for common, members in lines.items()
        }
        self._places = {
            key: (line, at) for line in self._lines.values() for at, key in enumerate(line)
        }

    def first(self) -> Iterator[str]:
        """The first gang of each line."""
        return (line[0] for line in self._lines.values())

    def after(self, key: str) -> str | None:
        """The gang behind this one; None if it is the last or in no line."""
        line, at = self._places.get(key, ((), 0))
        return line[at + 1] if at + 1 < len(line) else None

    def items(self) -> Iterator[tuple[EqualGangs, list[str]]]:
        """What the gangs of each line have in common, and their keys."""
        return iter(self._lines.items())
