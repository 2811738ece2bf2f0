"""The view of nodes for predicates and scores: as they are, or with further equal tasks on them.

To place a run of equal tasks at once, the scheduler evaluates a node with 1, 2, 3, ... more tasks
on it. A function that reads resources from the view supports this without extra code.
"""

from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import entities, nodes, resource_vectors

Rows: TypeAlias = "slice | npt.NDArray[np.intp]"
"""Selected nodes: an index for the second axis of ``Nodes`` tables, ``ALL`` or row numbers."""
Counts: TypeAlias = npt.NDArray[np.int64]

ALL = slice(None)


class NodeView:
    """The nodes of ``rows``, each with ``added`` further tasks equal to the one that is being
    placed.

    An answer has ``size`` entries, one per node. If ``added`` is None, no tasks are assumed and
    rows ascend; otherwise a row may occur several times with different numbers of tasks. Tables are
    ``resources x size``, read-only, and computed on access.
    """

    def __init__(
        self, table: nodes.Nodes, task: entities.Task, rows: Rows = ALL, added: Counts | None = None
    ) -> None:
        self.rows = rows
        self.added = added
        self._table = table
        self._task = task

    @cached_property
    def size(self) -> int:
        """Number of nodes in the view."""
        return len(self._table) if isinstance(self.rows, slice) else len(self.rows)

    @cached_property
    def allocatable(self) -> resource_vectors.Table:
        """Allocatable resources."""
        return self._table.allocatable[:, self.rows]

    @cached_property
    def used(self) -> resource_vectors.Table:
        """Resources that tasks hold, terminating ones included, nominated ones not."""
        return self._with_added(self._table.used[:, self.rows], 1)

    @cached_property
    def idle(self) -> resource_vectors.Table:
        """Allocatable minus used."""
        return self._with_added(self._table.idle[:, self.rows], -1)

    @cached_property
    def future_idle(self) -> resource_vectors.Table:
        """Idle resources once terminating tasks are gone and nominated ones placed."""
        table, rows = self._table, self.rows
        future: resource_vectors.Table = (
            self.idle + table.releasing[:, rows] - table.pipelined[:, rows]
        )
        return future

    @cached_property
    def pipelined(self) -> resource_vectors.Table:
        """Resources of nominated tasks."""
        return self._table.pipelined[:, self.rows]

    @cached_property
    def assumed_used(self) -> resource_vectors.Table:
        """Cpu and memory in use as scoring counts them, nominated tasks included: ``2 x size``."""
        assumed = self._table.assumed_used[:, self.rows]
        if self.added is None:
            return assumed
        shape = self._task.task_class.shape
        each = np.array([[shape.assumed_cpu], [shape.assumed_memory]], np.int64)
        supposed: resource_vectors.Table = assumed + each * self.added
        return supposed

    def _with_added(self, table: resource_vectors.Table, sign: int) -> resource_vectors.Table:
        if self.added is None:
            return table
        supposed: resource_vectors.Table = (
            table + sign * self._task.request[:, np.newaxis] * self.added
        )
        return supposed
