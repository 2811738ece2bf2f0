"""The nodes of a session as columns: what is idle, used, going away and promised.

Arrays are ``resources x nodes``. Rows are in the order of names, so that the first of equals is
the one with the lowest name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from stromboli.scheduler.core import columns, shapes
from stromboli.scheduler.core.framework import amounts, model
from stromboli.shared.api import core


class Nodes:
    """Rows of nodes; placing or removing a run of equal tasks costs O(resources x rows).

    ``idle`` = allocatable less ``used`` (may be negative where a node shrank). ``releasing``: of
    ``used``, what tasks hold that go away. ``pipelined``: what is promised of it. ``touched`` lists
    every row that changed, in order, so that who keeps answers refreshes only those.
    """

    def __init__(self, resources: shapes.Resources, nodes: Mapping[str, core.Node]) -> None:
        self.resources = resources
        self.names = sorted(nodes)
        self.rows = {name: row for row, name in enumerate(self.names)}
        self.objects = [nodes[name] for name in self.names]
        self.labelled = columns.Nodes(resources)
        """Labels, taints and readability, for ``core.constraints``."""
        for node in self.objects:
            self.labelled.put(node)
        self.labelled.fit_resources()
        shape = (len(resources.names), len(self.names))
        self.allocatable = self.labelled.allocatable[: shape[0], : shape[1]].copy()
        self.idle = self.allocatable.copy()
        self.used = np.zeros(shape, np.int64)
        self.releasing = np.zeros(shape, np.int64)
        self.pipelined = np.zeros(shape, np.int64)
        self.assumed_used = np.zeros((2, shape[1]), np.int64)
        """Cpu and memory of tasks on the nodes as scoring sees them, promises included."""
        self.tasks: list[dict[str, model.Task]] = [{} for _ in self.names]
        """Row -> task key -> task."""
        self.touched: list[int] = []

    def __len__(self) -> int:
        return len(self.names)

    @property
    def future_idle(self) -> amounts.Table:
        """What will be idle once what goes away is gone and promises are kept."""
        future: amounts.Table = self.idle + self.releasing - self.pipelined
        return future

    def future_idle_of(self, row: int) -> amounts.Vector:
        """The same of one node."""
        future: amounts.Vector = self.idle[:, row] + self.releasing[:, row] - self.pipelined[:, row]
        return future

    def add(self, tasks: Sequence[model.Task], rows: Sequence[int]) -> None:
        """The tasks, of one class and status, are on their nodes with the status they have."""
        self._charge(tasks[0], rows, 1)
        for task, row in zip(tasks, rows, strict=True):
            self.tasks[row][task.key] = task

    def remove(self, tasks: Sequence[model.Task], rows: Sequence[int]) -> None:
        """They are not any more. Call before their status changes."""
        self._charge(tasks[0], rows, -1)
        for task, row in zip(tasks, rows, strict=True):
            del self.tasks[row][task.key]

    def _charge(self, like: model.Task, rows: Sequence[int], sign: int) -> None:
        counts = Counter(rows)
        at = np.fromiter(counts, np.intp, len(counts))
        times = np.fromiter(counts.values(), np.int64, len(counts)) * sign
        request = like.request[:, np.newaxis] * times
        if like.status is model.Status.PIPELINED:
            self.pipelined[:, at] += request
        else:
            self.idle[:, at] -= request
            self.used[:, at] += request
            if like.status is model.Status.RELEASING:
                self.releasing[:, at] += request
        shape = like.task_class.shape
        self.assumed_used[0, at] += shape.assumed_cpu * times
        self.assumed_used[1, at] += shape.assumed_memory * times
        self.touched.extend(counts)
