"""The nodes of a session as columns: idle, used, terminating and nominated resources.

Tables are ``resources x nodes``. Rows are ordered by node name, so that the first of equal nodes is
the one with the lowest name. Nodes that are added or removed change rows only in ``settle``; until
then the caller stores the tasks of a node that has no row.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import (
    entities,
    node_attributes,
    node_constraints,
    requirements,
    resource_columns,
    resource_vectors,
)
from stromboli.shared.api import core, meta

OVERFLOW_WEIGHT = 2**18
"""A node is *crowded* if the total weight of its tasks (``PodRequirements.weight``) reaches this:
four times what a node can have. A few times this weight would overflow 64 bits.
"""

_TABLES = ("allocatable", "idle", "used", "releasing", "pipelined", "used_without_gang")
"""Tables by resource and row."""

_MOVING = frozenset({entities.Status.PIPELINED, entities.Status.RELEASING})


class RowOrder(NamedTuple):
    """A change of rows: the old row of each new one, and the names of new nodes."""

    sources: node_attributes.Sources
    added: tuple[str, ...]


class Nodes:
    """Nodes by row. Adding or removing a run of equal tasks costs O(resources x rows).

    ``idle`` = allocatable minus ``used``; negative where a node shrank. ``releasing``: the part of
    ``used`` that terminating tasks hold. ``pipelined``: what nominated tasks will take.
    ``touched``: every changed row in order, so that caches refresh only those.

    A *crowded* node has tasks that request many times what any node has. It counts as exactly full,
    and takes no task while it is crowded.
    """

    def __init__(self, resources: resource_columns.Resources) -> None:
        self.resources = resources
        self.names: list[str] = []
        self.labelled = node_attributes.NodeAttributes()
        """Labels, taints and readability by row."""
        self.checks = node_constraints.ConstraintCache(self.labelled)
        self.rows = self.labelled.rows
        self.objects: list[core.Node] = []
        self.problems: dict[str, str] = {}
        """Node -> why it cannot be decoded."""
        width = len(resources.names)
        self.allocatable = np.zeros((width, 0), np.int64)
        self.idle = np.zeros((width, 0), np.int64)
        self.used = np.zeros((width, 0), np.int64)
        self.releasing = np.zeros((width, 0), np.int64)
        self.pipelined = np.zeros((width, 0), np.int64)
        self.assumed_used = np.zeros((2, 0), np.int64)
        """Cpu and memory of tasks on the nodes as scoring counts them, nominated tasks included."""
        self.pods: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        """Number of tasks on each node."""
        self.used_without_gang = np.zeros((width, 0), np.int64)
        """The part of ``used`` that belongs to pods without a PodGroup, such as a DaemonSet's."""
        self.pods_without_gang: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.tasks: list[dict[str, entities.Task]] = []
        """Row -> task key -> task."""
        self.touched: list[int] = []
        self._allocatable_total: resource_vectors.Sum | None = None
        self._used_total: resource_vectors.Sum | None = None
        self._moving = 0
        """Number of tasks that terminate or are nominated."""
        self._weights: dict[str, int] = {}
        """Node -> weight of its tasks, if not zero."""
        self._crowded: set[str] = set()
        self._added: dict[str, core.Node] = {}
        self._has_removed = False
        self._images: dict[str, dict[str, int]] = {}
        self._image_sizes: dict[str, npt.NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def allocatable_total(self) -> resource_vectors.Sum:
        """The sum of ``allocatable`` over all nodes; read-only. The same object until a node
        changes."""
        if self._allocatable_total is None:
            self._allocatable_total = resource_vectors.total(self.allocatable)
        return self._allocatable_total

    @property
    def used_total(self) -> resource_vectors.Sum:
        """The sum of ``used`` over all nodes; read-only. O(1) unless nodes changed."""
        if self._used_total is None:
            self._used_total = resource_vectors.total(self.used)
        return self._used_total

    @property
    def has_moving_tasks(self) -> bool:
        """Whether a task terminates or is nominated; if not, ``future_idle`` equals ``idle``."""
        return self._moving > 0

    @property
    def future_idle(self) -> resource_vectors.Table:
        """Idle resources once terminating tasks are gone and nominated ones placed."""
        future: resource_vectors.Table = self.idle + self.releasing - self.pipelined
        return future

    def future_idle_of(self, row: int) -> resource_vectors.Vector:
        """The future idle resources of one row."""
        future: resource_vectors.Vector = (
            self.idle[:, row] + self.releasing[:, row] - self.pipelined[:, row]
        )
        return future

    @property
    def excluded(self) -> dict[str, str]:
        """Node -> why it takes no tasks: it, or a pod on it, cannot be decoded or counted."""
        blocked = {self.names[row]: "pods on it cannot be read" for row in self.labelled.blocked()}
        crowded = dict.fromkeys(self._crowded, "pods on it request many times what any node has")
        return blocked | crowded | self.problems

    def rows_of(self, names: Sequence[str]) -> list[int]:
        """The row of each node, -1 for one that has none."""
        try:
            return list(map(self.rows.__getitem__, names))
        except KeyError:
            return [self.rows.get(name, -1) for name in names]

    def image_sizes(self, image: str) -> npt.NDArray[np.int64] | None:
        """Bytes of an image by node, 0 where it is absent; None if no node has it."""
        if image not in self._images:
            return None
        sizes = self._image_sizes.get(image)
        if sizes is None:
            sizes = self._image_sizes[image] = np.zeros(len(self), np.int64)
            for name, size in self._images[image].items():
                row = self.rows.get(name)
                if row is not None:
                    sizes[row] = size
        return sizes

    # Tasks ----------------------------------------------------------------------------------

    def add(self, tasks: Sequence[entities.Task], rows: Sequence[int]) -> None:
        """Add tasks of one class and status to their nodes."""
        self._add_usage(tasks[0], rows, 1)
        if tasks[0].status in _MOVING:
            self._moving += len(tasks)
        for task, row in zip(tasks, rows, strict=True):
            self.tasks[row][task.key] = task
        if tasks[0].task_class.shape.weight or self._crowded:
            self._add_weight(tasks[0].task_class.shape.weight, rows)

    def add_all(self, tasks: Iterable[entities.Task], row: int) -> None:
        """Add any tasks to a node."""
        runs: dict[tuple[entities.TaskClass, entities.Status], list[entities.Task]] = {}
        for task in tasks:
            runs.setdefault((task.task_class, task.status), []).append(task)
        for run in runs.values():
            self.add(run, [row] * len(run))

    def remove(self, tasks: Sequence[entities.Task], rows: Sequence[int]) -> None:
        """Remove tasks from their nodes. Call it before their status changes."""
        self._add_usage(tasks[0], rows, -1)
        if tasks[0].status in _MOVING:
            self._moving -= len(tasks)
        for task, row in zip(tasks, rows, strict=True):
            del self.tasks[row][task.key]
        if tasks[0].task_class.shape.weight or self._crowded:
            self._add_weight(-tasks[0].task_class.shape.weight, rows)

    def _add_usage(self, like: entities.Task, rows: Sequence[int], sign: int) -> None:
        shape = like.task_class.shape
        if len(rows) == 1:  # Outside sessions, tasks change one by one.
            at: npt.NDArray[np.intp] | int = rows[0]
            times: npt.NDArray[np.int64] | int = sign
            request = like.request if sign > 0 else -like.request
            self.touched.append(rows[0])
        else:
            counts = Counter(rows)
            at = np.fromiter(counts, np.intp, len(counts))
            times = np.fromiter(counts.values(), np.int64, len(counts)) * sign
            request = like.request[:, np.newaxis] * times
            self.touched.extend(counts)
        if like.status is entities.Status.PIPELINED:
            self.pipelined[:, at] += request
        else:
            self.idle[:, at] -= request
            self.used[:, at] += request
            if self._used_total is not None:
                self._used_total = self._used_total + like.request_sum * (sign * len(rows))
            if like.status is entities.Status.RELEASING:
                self.releasing[:, at] += request
        self.assumed_used[0, at] += shape.assumed_cpu * times
        self.assumed_used[1, at] += shape.assumed_memory * times
        self.pods[at] += times
        if not like.job:
            self.pods_without_gang[at] += times
            self.used_without_gang[:, at] += request

    def _add_weight(self, weight: int, rows: Sequence[int]) -> None:
        """Add weight to each of the rows. O(1) each; O(its tasks) when a node stops being
        crowded.
        """
        for row in rows:
            name = self.names[row]
            self._weights[name] = self._weights.get(name, 0) + weight
        for row in dict.fromkeys(rows):
            name = self.names[row]
            was_crowded, is_crowded = name in self._crowded, self._weights[name] >= OVERFLOW_WEIGHT
            if is_crowded:
                self._crowded.add(name)
                self._fill(row)
            elif was_crowded:
                self._crowded.discard(name)
                self._recount(row)
            if is_crowded is not was_crowded:
                self._mark(row)
            if not self._weights[name]:
                del self._weights[name]

    def _fill(self, row: int) -> None:
        """Make a crowded row count as exactly full."""
        self._used_total = None
        self.used[:, row] = self.allocatable[:, row]
        self.assumed_used[:, row] = self.allocatable[[requirements.CPU, requirements.MEMORY], row]
        for table in (self.idle, self.releasing, self.pipelined):
            table[:, row] = 0

    def _recount(self, row: int) -> None:
        """Compute a row from its tasks again."""
        self._used_total = None
        self.idle[:, row] = self.allocatable[:, row]
        tables = (self.used, self.releasing, self.pipelined, self.assumed_used)
        for table in (*tables, self.used_without_gang):
            table[:, row] = 0
        self.pods[row] = self.pods_without_gang[row] = 0
        for task in self.tasks[row].values():
            self._add_usage(task, (row,), 1)

    def _mark(self, row: int) -> None:
        name = self.names[row]
        is_known = name not in self.problems and name not in self._crowded
        self.labelled.put(row, self.objects[row], is_known=is_known)

    # Nodes ----------------------------------------------------------------------------------

    def put(self, node: core.Node) -> None:
        """Add or update a node; a new one has a row after the next ``settle``."""
        name = node.metadata.name
        self.problems.pop(name, None)
        row = self.rows.get(name)
        if row is None:
            self._added[name] = node
        else:
            self._put(row, node)

    def unknown(self, name: str, reason: str) -> None:
        """Add a node that exists but cannot be decoded; it takes no tasks."""
        self.put(core.Node(metadata=meta.ObjectMeta(name=name)))
        self.problems[name] = reason
        row = self.rows.get(name)
        if row is not None:
            self.labelled.put(row, self.objects[row], is_known=False)

    def remove_node(self, name: str) -> dict[str, entities.Task]:
        """Remove a node. Returns the tasks on it."""
        self.problems.pop(name, None)
        self._added.pop(name, None)
        row = self.rows.get(name)
        if row is None:
            return {}
        tasks = dict(self.tasks[row])
        for task in tasks.values():
            self.remove((task,), (row,))
        self._forget_images(self.objects[row])
        del self.rows[name]
        self._has_removed = True
        return tasks

    def settle(self) -> RowOrder | None:
        """Reorder rows by name if nodes were added or removed; None if not. O(nodes log nodes)."""
        if not self._added and not self._has_removed:
            return None
        names = sorted([*self.rows, *self._added])
        sources = np.array([self.rows.get(name, -1) for name in names], np.intp)
        self._allocatable_total = self._used_total = None
        for table in (*_TABLES, "assumed_used", "pods", "pods_without_gang"):
            setattr(self, table, node_attributes.reordered(getattr(self, table), sources))
        self.tasks = [{} if at < 0 else self.tasks[at] for at in sources.tolist()]
        nothing = core.Node()
        self.objects = [nothing if at < 0 else self.objects[at] for at in sources.tolist()]
        self.names = names
        self.labelled.reorder_rows(names, sources)
        self._image_sizes.clear()
        added, self._added, self._has_removed = self._added, {}, False
        for name, node in added.items():
            self._put(self.rows[name], node)
        return RowOrder(sources, tuple(added))

    def move_columns(self, sources: resource_columns.Sources) -> None:
        """Rearrange the tables after a change of the resource columns. O(nodes x resources)."""
        self._allocatable_total = self._used_total = None
        for table in _TABLES:
            moved = resource_vectors.moved(getattr(self, table), sources, axis=0)
            setattr(self, table, moved)

    def _put(self, row: int, node: core.Node) -> None:
        name = node.metadata.name
        has: Mapping[str, int] = {}
        try:
            has = requirements.node_allocatable(node)
        except ValueError as error:
            self.problems[name] = str(error)
        allocatable = resource_vectors.vector(self.resources, has)
        self.idle[:, row] += allocatable - self.allocatable[:, row]
        self.allocatable[:, row] = allocatable
        self._allocatable_total = None
        if self.objects[row].status.images != node.status.images:
            self._forget_images(self.objects[row])
            for image in node.status.images:
                for tag in image.names:
                    self._images.setdefault(tag, {})[name] = image.size_bytes
                    self._image_sizes.pop(tag, None)
        self.objects[row] = node
        if name in self._crowded:
            self._fill(row)
        self._mark(row)
        self.touched.append(row)

    def _forget_images(self, node: core.Node) -> None:
        for image in node.status.images:
            for tag in image.names:
                self._image_sizes.pop(tag, None)
                there = self._images.get(tag, {})
                there.pop(node.metadata.name, None)
                if not there:
                    self._images.pop(tag, None)
