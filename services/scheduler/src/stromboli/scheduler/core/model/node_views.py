"""Nodes as a plugin's function is asked about them: as they are, or as they would be.

Placing a run asks ahead: what would you say of this node with one, two, three tasks of this kind
on it already? A function that reads its tables from the view answers that without knowing.
"""

from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import entities, nodes, resource_vectors

Rows: TypeAlias = "slice | npt.NDArray[np.intp]"
"""Which nodes: an index for the second axis of ``Nodes`` tables, ``ALL`` or rows."""
Counts: TypeAlias = npt.NDArray[np.int64]

ALL = slice(None)


class NodeView:
    """The nodes of ``rows``, each with ``added`` further tasks like the one that is asked for.

    An answer has one entry per node asked for, ``size`` in all. ``added`` is None where nothing is
    supposed; only then rows ascend, else a row may come again with other numbers of tasks. Tables
    are ``resources x size`` and not to be changed; they are made when read.
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
        """How many nodes are asked about."""
        return len(self._table) if isinstance(self.rows, slice) else len(self.rows)

    @cached_property
    def allocatable(self) -> resource_vectors.Table:
        """What the nodes have."""
        return self._table.allocatable[:, self.rows]

    @cached_property
    def used(self) -> resource_vectors.Table:
        """What tasks hold, those on their way out included, promises not."""
        return self._with_added(self._table.used[:, self.rows], 1)

    @cached_property
    def idle(self) -> resource_vectors.Table:
        """Allocatable less used."""
        return self._with_added(self._table.idle[:, self.rows], -1)

    @cached_property
    def future_idle(self) -> resource_vectors.Table:
        """What is idle once what goes away is gone and promises are kept."""
        table, rows = self._table, self.rows
        future: resource_vectors.Table = (
            self.idle + table.releasing[:, rows] - table.pipelined[:, rows]
        )
        return future

    @cached_property
    def pipelined(self) -> resource_vectors.Table:
        """What is promised."""
        return self._table.pipelined[:, self.rows]

    @cached_property
    def assumed_used(self) -> resource_vectors.Table:
        """Cpu and memory as scoring sees them, promises included: ``2 x size``."""
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
