"""Host ports: two pods of a node never listen on one (Kubernetes' NodePorts)."""

from collections.abc import Mapping

import numpy as np

from stromboli.scheduler.core.framework import census, model, points, views

TAKEN = "node(s) didn't have free ports for the requested pod ports"


class Ports:
    """Pods per node that hold each port.

    ``known``: as it was when the session opened; it stays as it is.
    """

    def __init__(self, known: Mapping[census.Port, census.Counts], size: int) -> None:
        self._size = size
        self._known = known
        self._held: dict[census.Port, census.Counts] = {}
        self._of: dict[int, tuple[census.Port, ...]] = {}

    def count(self, task_class: model.TaskClass, row: int, change: int) -> None:
        """A pod of the class comes to the node, or goes."""
        for port in self._ports(task_class):
            if port not in self._held:
                known = self._known.get(port)
                self._held[port] = np.zeros(self._size, np.int64) if known is None else known.copy()
            self._held[port][row] += change

    def has_any(self, task_class: model.TaskClass) -> bool:
        """Whether pods of the class hold ports."""
        return bool(self._ports(task_class))

    def checks(self, task_class: model.TaskClass, view: views.View) -> list[points.Check]:
        """Nodes where all the ports that a pod of the class wants are free."""
        wanted = self._ports(task_class)
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

    def _ports(self, task_class: model.TaskClass) -> tuple[census.Port, ...]:
        found = self._of.get(task_class.number)
        if found is None:
            found = self._of[task_class.number] = census.host_ports(task_class)
        return found


def _collide(left: census.Port, right: census.Port) -> bool:
    return left[:2] == right[:2] and (
        left[2] == right[2] or census.ANY_ADDRESS in (left[2], right[2])
    )
