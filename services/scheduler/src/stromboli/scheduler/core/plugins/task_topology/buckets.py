"""Buckets of ``task-topology``: tasks of a job that share a node.

Annotations name groups of a job's tasks with affinity or anti-affinity to each other; a group with
one name applies to the replicas of that task. Tasks are assigned to buckets, the most constrained
first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from stromboli.scheduler.core.model import entities, resource_vectors

AFFINITY = "volcano.sh/task-topology-affinity"
ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
ORDER = "volcano.sh/task-topology-task-order"
_SELF_ANTI, _AFFINE, _SELF_AFFINE, _ANTI = 4, 3, 2, 1
"""Degrees of constraint; the highest degree of a task counts."""


class AffinityError(ValueError):
    """The affinity annotations of a job are inconsistent; the message names the conflict."""


class TaskAffinity(msgspec.Struct, frozen=True):
    """The affinities of a job's tasks. ``affine`` and ``anti_affine``: task -> tasks, itself
    included for its own replicas. ``priority``: task -> degree of constraint. ``rank``: task ->
    position, higher is earlier."""

    affine: Mapping[str, frozenset[str]]
    anti_affine: Mapping[str, frozenset[str]]
    priority: Mapping[str, int]
    rank: Mapping[str, int]

    def affinity(self, task: str, others: Mapping[str, int], *, only_away: bool = False) -> int:
        """Return the number of the other tasks to which the task has affinity, less the number to
        which it has anti-affinity. ``others``: task -> count. ``only_away``: ignore affinity."""
        affine = () if only_away else self.affine.get(task, ())
        anti_affine = self.anti_affine.get(task, ())
        return sum(others.get(name, 0) for name in affine) - sum(
            others.get(name, 0) for name in anti_affine
        )


def task_affinity(annotations: Mapping[str, str], known: Iterable[str]) -> TaskAffinity | None:
    """Return the affinities in a PodGroup's annotations, None without any. ``known``: the names of
    its tasks.

    Raises AffinityError for an unknown name, or one that is listed twice.
    """
    names = frozenset(known)
    affine = _groups(annotations, AFFINITY, names)
    anti_affine = _groups(annotations, ANTI_AFFINITY, names)
    order = _names(annotations.get(ORDER, ""), ORDER, names)
    if not (affine or anti_affine or order):
        return None
    priority: dict[str, int] = {}
    for groups, alone, together in (
        (affine, _SELF_AFFINE, _AFFINE),
        (anti_affine, _SELF_ANTI, _ANTI),
    ):
        for group in groups:
            for name in group:
                most = alone if len(group) == 1 else together
                priority[name] = max(priority.get(name, 0), most)
    rank = {name: len(order) - at for at, name in enumerate(order)}
    return TaskAffinity(_related(affine), _related(anti_affine), priority, rank)


def _groups(annotations: Mapping[str, str], key: str, known: frozenset[str]) -> list[list[str]]:
    groups = [_names(part, key, known) for part in annotations.get(key, "").split(";")]
    return [group for group in groups if group]


def _names(text: str, key: str, known: frozenset[str]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name, count in Counter(names).items():
        if name not in known:
            known_names = ", ".join(sorted(known))
            raise AffinityError(f"{key}: the job has no task {name!r}; its tasks are {known_names}")
        if count > 1:
            raise AffinityError(f"{key}: {name!r} is listed twice")
    return names


def _related(groups: Iterable[Sequence[str]]) -> dict[str, frozenset[str]]:
    neighbours: dict[str, set[str]] = {}
    for group in groups:
        for one, other in combinations(group, 2) if len(group) > 1 else ((group[0], group[0]),):
            neighbours.setdefault(one, set()).add(other)
            neighbours.setdefault(other, set()).add(one)
    return {name: frozenset(others) for name, others in neighbours.items()}


class Bucket(msgspec.Struct, eq=False):
    """Tasks that share a node. ``waiting``: pending tasks by uid, in order. ``bound``: node ->
    number of the bucket's tasks there. ``names``: task name -> number of such tasks in the
    bucket."""

    index: int
    request: resource_vectors.Sum
    waiting: dict[str, entities.Task] = {}
    bound: Counter[str] = msgspec.field(default_factory=Counter)
    names: Counter[str] = msgspec.field(default_factory=Counter)

    def place(self, task: entities.Task, node: str) -> None:
        """Count the task on its node."""
        del self.waiting[task.uid]
        self.request = self.request - task.request
        self.bound[node] += 1

    def unplace(self, task: entities.Task, node: str) -> None:
        """Remove the task from its node."""
        self.waiting[task.uid] = task
        self.request = self.request + task.request
        self.bound[node] -= 1


class JobBuckets:
    """The buckets of a job. ``of``: task uid -> bucket. ``largest``: tasks in the largest bucket.
    ``on``: node -> names of the job's tasks there."""

    def __init__(
        self,
        job: entities.Job,
        wanted: TaskAffinity,
        size_of: Callable[[resource_vectors.Sum], int],
    ) -> None:
        self.preferences = wanted
        self.of: dict[str, Bucket] = {}
        self.buckets: list[Bucket] = []
        self.on: dict[str, Counter[str]] = {}
        self._size_of = size_of
        self._nothing: resource_vectors.Sum = np.zeros_like(job.total_request)
        by_node: dict[str, Bucket] = {}
        for task in job.with_status(*_PLACED):
            self.on.setdefault(task.node, Counter())[task.role] += 1
        for task in sorted(job.tasks.values(), key=self._order):
            if task.role not in wanted.affine and task.role not in wanted.anti_affine:
                continue
            if task.status in _PLACED:
                bucket = by_node.get(task.node) or by_node.setdefault(task.node, self._new())
                bucket.bound[task.node] += 1
            elif task.status is entities.Status.PENDING:
                bucket = self._best_bucket(task)
                bucket.waiting[task.uid] = task
                bucket.request = bucket.request + task.request
            else:
                continue
            bucket.names[task.role] += 1
            self.of[task.uid] = bucket
        sizes = [bucket.names.total() for bucket in self.buckets]
        self.largest = max(sizes, default=1)

    def rank(self, task: entities.Task) -> tuple[int, int, int, int, int]:
        """Return the sort key of tasks: tasks in buckets first, the largest remaining bucket
        first."""
        bucket = self.of.get(task.uid)
        order, priority = self._sort_key(task)
        if bucket is None:
            return (1, 0, 0, -order, -priority)
        return (0, -len(bucket.waiting), bucket.index, -order, -priority)

    def _order(self, task: entities.Task) -> tuple[bool, str, int, int, str]:
        is_placed = task.status in _PLACED
        order, priority = self._sort_key(task)
        return (not is_placed, task.node if is_placed else "", -order, -priority, task.name)

    def _sort_key(self, task: entities.Task) -> tuple[int, int]:
        return self.preferences.rank.get(task.role, 0), self.preferences.priority.get(task.role, 0)

    def _best_bucket(self, task: entities.Task) -> Bucket:
        """Return the bucket with the highest affinity, of equal ones the one with the smallest
        request; a new bucket if all have anti-affinity."""
        liked = [(self.preferences.affinity(task.role, each.names), each) for each in self.buckets]
        best = max((affinity for affinity, _ in liked), default=-1)
        if best < 0:
            return self._new()
        among = [each for affinity, each in liked if affinity == best]
        return min(among, key=lambda each: (self._size_of(each.request), each.index))

    def _new(self) -> Bucket:
        self.buckets.append(Bucket(len(self.buckets), self._nothing))
        return self.buckets[-1]


_PLACED = (*sorted(entities.ALLOCATED), entities.Status.PIPELINED)
