"""Host ports: two pods of a node never listen on one (Kubernetes' NodePorts)."""

from collections.abc import Mapping

import numpy as np

from stromboli.scheduler.core.framework import census, classes, model, points, views

TAKEN = "node(s) didn't have free ports for the requested pod ports"


class Ports:
    """Pods per node that hold each port.

    ``known``: as it was when the session opened; it stays as it is.
    """

    def __init__(self, known: Mapping[model.Port, census.Counts], size: int) -> None:
        self._size = size
        self._known = known
        self._held: dict[model.Port, census.Counts] = {}

    def count(self, task_class: model.TaskClass, row: int, change: int) -> None:
        """A pod of the class comes to the node, or goes."""
        for port in task_class.ports:
            if port not in self._held:
                known = self._known.get(port)
                self._held[port] = np.zeros(self._size, np.int64) if known is None else known.copy()
            self._held[port][row] += change

    def has_any(self, task_class: model.TaskClass) -> bool:
        """Whether pods of the class hold ports."""
        return bool(task_class.ports)

    def checks(self, task_class: model.TaskClass, view: views.View) -> list[points.Check]:
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
        return [points.Check(TAKEN, points.Code.UNSCHEDULABLE, passed)]


def _collide(left: model.Port, right: model.Port) -> bool:
    return left[:2] == right[:2] and (
        left[2] == right[2] or classes.ANY_ADDRESS in (left[2], right[2])
    )
