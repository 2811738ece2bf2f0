"""Host ports: two pods of a node never listen on one (Kubernetes' NodePorts)."""

from collections.abc import Mapping

import numpy as np

from stromboli.scheduler.core.cluster import pod_index
from stromboli.scheduler.core.model import entities, node_views, task_classes
from stromboli.scheduler.core.placement import extension_points

TAKEN = "node(s) didn't have free ports for the requested pod ports"


class Ports:
    """Pods per node that hold each port.

    ``known``: as it was when the session opened; it stays as it is.
    """

    def __init__(self, known: Mapping[entities.Port, pod_index.Counts], size: int) -> None:
        self._size = size
        self._known = known
        self._held: dict[entities.Port, pod_index.Counts] = {}

    def count(self, task_class: entities.TaskClass, row: int, change: int) -> None:
        """A pod of the class comes to the node, or goes."""
        for port in task_class.ports:
            if port not in self._held:
                known = self._known.get(port)
                self._held[port] = np.zeros(self._size, np.int64) if known is None else known.copy()
            self._held[port][row] += change

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
            for held, counts in {**self._known, **self._held}.items():
                if _collide(port, held):
                    free &= counts <= 0
        passed = free[view.rows]
        if view.added is not None:
            passed = passed & (view.added == 0)  # An equal pod wants the same ports.
        return [extension_points.Check(TAKEN, extension_points.Code.UNSCHEDULABLE, passed)]


def _collide(left: entities.Port, right: entities.Port) -> bool:
    return left[:2] == right[:2] and (
        left[2] == right[2] or task_classes.ANY_ADDRESS in (left[2], right[2])
    )
