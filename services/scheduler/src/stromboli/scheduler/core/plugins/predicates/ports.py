"""Host ports: two pods of a node never listen on one (Kubernetes' NodePorts)."""

import numpy as np

from stromboli.scheduler.core.cluster import row_counts
from stromboli.scheduler.core.model import entities, node_views, task_classes
from stromboli.scheduler.core.placement import extension_points

TAKEN = "node(s) didn't have free ports for the requested pod ports"


class Ports:
    """Pods per node that hold each port: those known when the session opened, and its changes."""

    def __init__(self, known: row_counts.CountsBy[entities.Port], size: int) -> None:
        self._size = size
        self._held = row_counts.SessionCountsBy(known, size)
        self._by_number: dict[tuple[str, int], set[entities.Port]] = {}
        """(protocol, number) -> ports that pods hold, which differ in the address."""
        self._indexed = 0

    def count(self, task_class: entities.TaskClass, row: int, change: int) -> None:
        """A pod of the class comes to the node, or goes."""
        for port in task_class.ports:
            self._held.add(port, row, change)

    def has_any(self, task_class: entities.TaskClass) -> bool:
        """Whether pods of the class hold ports."""
        return bool(task_class.ports)

    def checks(
        self, task_class: entities.TaskClass, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """Nodes where all the ports that a pod of the class wants are free."""
        wanted = task_class.ports
        if not wanted:
            return []
        free = np.ones(self._size, np.bool_)
        for port in wanted:
            for held in self._with_number(port):
                if _collide(port, held):
                    rows, counts = self._held[held].rows()
                    free[rows[counts > 0]] = False
        passed = free[view.rows]
        if view.added is not None:
            passed = passed & (view.added == 0)  # An equal pod wants the same ports.
        return [extension_points.Check(TAKEN, extension_points.Code.UNSCHEDULABLE, passed)]

    def _with_number(self, port: entities.Port) -> set[entities.Port]:
        if self._indexed != len(self._held):
            self._indexed = len(self._held)
            self._by_number = {}
            for held in self._held:
                self._by_number.setdefault(held[:2], set()).add(held)
        return self._by_number.get(port[:2], set())


def _collide(left: entities.Port, right: entities.Port) -> bool:
    return left[:2] == right[:2] and (
        left[2] == right[2] or task_classes.ANY_ADDRESS in (left[2], right[2])
    )
