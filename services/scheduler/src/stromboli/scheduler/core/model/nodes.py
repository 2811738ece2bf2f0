"""The nodes of a session as columns: what is idle, used, going away and promised.

Arrays are ``resources x nodes``. Rows are in the order of names, so that the first of equals is
the one with the lowest name. Nodes that come or go change rows only when ``settle`` is called;
until then tasks on a node that is not there yet are parked.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
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
"""From this weight of its tasks on (see ``shapes.Shape``) a node is crowded: that is four times
what any node has, and a few times as much does not fit 64 bits."""


class RowOrder(NamedTuple):
    """Rows took another order: where each was before, and which nodes are new."""

    sources: node_attributes.Sources
    coming: tuple[str, ...]


class Nodes:
    """Rows of nodes; placing or removing a run of equal tasks costs O(resources x rows).

    ``idle`` = allocatable less ``used`` (may be negative where a node shrank). ``releasing``: of
    ``used``, what tasks hold that go away. ``pipelined``: what is promised of it. ``touched`` lists
    every row that changed, in order, so that who keeps answers refreshes only those.

    A *crowded* node, which somebody gave many times what any node has, counts as just full, and
    nothing is placed there, whatever goes away, until it is not crowded any more.
    """

    def __init__(self, resources: resource_columns.Resources) -> None:
        self.resources = resources
        self.names: list[str] = []
        self.labelled = node_attributes.NodeAttributes()
        """Labels, taints and readability, for ``core.constraints``."""
        self.checks = node_constraints.ConstraintCache(self.labelled)
        self.rows = self.labelled.rows
        self.objects: list[core.Node] = []
        self.problems: dict[str, str] = {}
        """Node -> why it cannot be read."""
        width = len(resources.names)
        self.allocatable = np.zeros((width, 0), np.int64)
        self.idle = np.zeros((width, 0), np.int64)
        self.used = np.zeros((width, 0), np.int64)
        self.releasing = np.zeros((width, 0), np.int64)
        self.pipelined = np.zeros((width, 0), np.int64)
        self.assumed_used = np.zeros((2, 0), np.int64)
        """Cpu and memory of tasks on the nodes as scoring sees them, promises included."""
        self.pods: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        """Tasks on each node."""
        self.tasks: list[dict[str, entities.Task]] = []
        """Row -> task key -> task."""
        self.touched: list[int] = []
        self._weights: dict[str, int] = {}
        """Node -> weight of its tasks, if any."""
        self._crowded: set[str] = set()
        self._coming: dict[str, core.Node] = {}
        self._has_gone = False
        self._images: dict[str, dict[str, int]] = {}
        self._image_sizes: dict[str, npt.NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def future_idle(self) -> resource_vectors.Table:
        """What will be idle once what goes away is gone and promises are kept."""
        future: resource_vectors.Table = self.idle + self.releasing - self.pipelined
        return future

    def future_idle_of(self, row: int) -> resource_vectors.Vector:
        """The same of one node."""
        future: resource_vectors.Vector = (
            self.idle[:, row] + self.releasing[:, row] - self.pipelined[:, row]
        )
        return future

    @property
    def excluded(self) -> dict[str, str]:
        """Node -> why nothing is placed on it: it, or a pod on it, cannot be read."""
        blocked = {self.names[row]: "pods on it cannot be read" for row in self.labelled.blocked()}
        crowded = dict.fromkeys(self._crowded, "pods on it ask for more than can be counted")
        return blocked | crowded | self.problems

    def image_sizes(self, image: str) -> npt.NDArray[np.int64] | None:
        """Bytes of an image by node, 0 where it is not; None if no node has it."""
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
        """The tasks, of one class and status, are on their nodes with the status they have."""
        self._add_usage(tasks[0], rows, 1)
        for task, row in zip(tasks, rows, strict=True):
            self.tasks[row][task.key] = task
        if tasks[0].task_class.shape.weight or self._crowded:
            self._add_weight(tasks[0].task_class.shape.weight, rows)

    def remove(self, tasks: Sequence[entities.Task], rows: Sequence[int]) -> None:
        """They are not any more. Call before their status changes."""
        self._add_usage(tasks[0], rows, -1)
        for task, row in zip(tasks, rows, strict=True):
            del self.tasks[row][task.key]
        if tasks[0].task_class.shape.weight or self._crowded:
            self._add_weight(-tasks[0].task_class.shape.weight, rows)

    def _add_usage(self, like: entities.Task, rows: Sequence[int], sign: int) -> None:
        shape = like.task_class.shape
        if len(rows) == 1:  # What comes and goes outside sessions does so one by one.
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
            if like.status is entities.Status.RELEASING:
                self.releasing[:, at] += request
        self.assumed_used[0, at] += shape.assumed_cpu * times
        self.assumed_used[1, at] += shape.assumed_memory * times
        self.pods[at] += times

    def _add_weight(self, weight: int, rows: Sequence[int]) -> None:
        """Each of the rows has so much more. O(1) each, O(its tasks) where a crowd has gone."""
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
        """The row as that of a node that is just full."""
        self.used[:, row] = self.allocatable[:, row]
        self.assumed_used[:, row] = self.allocatable[[requirements.CPU, requirements.MEMORY], row]
        for table in (self.idle, self.releasing, self.pipelined):
            table[:, row] = 0

    def _recount(self, row: int) -> None:
        """The row as its tasks say."""
        self.idle[:, row] = self.allocatable[:, row]
        for table in (self.used, self.releasing, self.pipelined, self.assumed_used):
            table[:, row] = 0
        self.pods[row] = 0
        for task in self.tasks[row].values():
            self._add_usage(task, (row,), 1)

    def _mark(self, row: int) -> None:
        name = self.names[row]
        is_known = name not in self.problems and name not in self._crowded
        self.labelled.put(row, self.objects[row], is_known=is_known)

    # Nodes ----------------------------------------------------------------------------------

    def put(self, node: core.Node) -> None:
        """A node as it is now; a new one has a row from the next ``settle`` on."""
        name = node.metadata.name
        self.problems.pop(name, None)
        row = self.rows.get(name)
        if row is None:
            self._coming[name] = node
        else:
            self._put(row, node)

    def unknown(self, name: str, reason: str) -> None:
        """The node is there but cannot be read."""
        self.put(core.Node(metadata=meta.ObjectMeta(name=name)))
        self.problems[name] = reason
        row = self.rows.get(name)
        if row is not None:
            self.labelled.put(row, self.objects[row], is_known=False)

    def remove_node(self, name: str) -> dict[str, entities.Task]:
        """The node is gone; the tasks that lay there."""
        self.problems.pop(name, None)
        self._coming.pop(name, None)
        row = self.rows.get(name)
        if row is None:
            return {}
        tasks = dict(self.tasks[row])
        for task in tasks.values():
            self.remove((task,), (row,))
        self._forget_images(self.objects[row])
        del self.rows[name]
        self._has_gone = True
        return tasks

    def settle(self) -> RowOrder | None:
        """Put rows in the order of names, if nodes came or went. O(nodes log nodes) then."""
        if not self._coming and not self._has_gone:
            return None
        names = sorted([*self.rows, *self._coming])
        sources = np.array([self.rows.get(name, -1) for name in names], np.intp)
        for table in ("allocatable", "idle", "used", "releasing", "pipelined", "assumed_used"):
            setattr(self, table, node_attributes.reordered(getattr(self, table), sources))
        self.pods = node_attributes.reordered(self.pods, sources)
        self.tasks = [{} if at < 0 else self.tasks[at] for at in sources.tolist()]
        nothing = core.Node()
        self.objects = [nothing if at < 0 else self.objects[at] for at in sources.tolist()]
        self.names = names
        self.labelled.reorder_rows(names, sources)
        self._image_sizes.clear()
        coming, self._coming, self._has_gone = self._coming, {}, False
        for name, node in coming.items():
            self._put(self.rows[name], node)
        return RowOrder(sources, tuple(coming))

    def move_columns(self, sources: resource_columns.Sources) -> None:
        """Follow a change of the resources' columns. O(nodes x resources)."""
        for table in ("allocatable", "idle", "used", "releasing", "pipelined"):
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
