"""Host ports: two pods of a node never listen on one (Kubernetes' NodePorts)."""

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.framework import model, points, views

TAKEN = "node(s) didn't have free ports for the requested pod ports"
ANY = "0.0.0.0"
"""The address that stands for all of a node's, as pods write it."""

Port = tuple[str, int, str]
"""Protocol, number, address."""


class Ports:
    """Pods per node that hold each port."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: dict[Port, npt.NDArray[np.int64]] = {}
        self._of: dict[int, tuple[Port, ...]] = {}

    def count(self, task_class: model.TaskClass, row: int, change: int) -> None:
        """A pod of the class comes to the node, or goes."""
        for port in self._ports(task_class):
            if port not in self._held:
                self._held[port] = np.zeros(self._size, np.int64)
            self._held[port][row] += change

    def checks(self, task_class: model.TaskClass, view: views.View) -> list[points.Check]:
        """Nodes where all the ports that a pod of the class wants are free."""
        wanted = self._ports(task_class)
        if not wanted:
            return []
        free = np.ones(self._size, np.bool_)
        for port in wanted:
            for held, counts in self._held.items():
                if _collide(port, held):
                    free &= counts <= 0
        passed = free[view.rows]
        if view.added is not None:
            passed = passed & (view.added == 0)  # An equal pod wants the same ports.
        return [points.Check(TAKEN, points.Code.UNSCHEDULABLE, passed)]

    def _ports(self, task_class: model.TaskClass) -> tuple[Port, ...]:
        found = self._of.get(task_class.number)
        if found is None:
            found = self._of[task_class.number] = tuple(
                (port.protocol or "TCP", port.host_port, port.host_ip or ANY)
                for container in task_class.spec.containers
                for port in container.ports
                if port.host_port > 0
            )
        return found


def _collide(left: Port, right: Port) -> bool:
    return left[:2] == right[:2] and (left[2] == right[2] or ANY in (left[2], right[2]))
