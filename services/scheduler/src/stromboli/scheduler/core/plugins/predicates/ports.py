"""Host ports: no two pods of a node use the same one (Kubernetes plugin NodePorts)."""

import numpy as np

from stromboli.scheduler.core.cluster import pod_index, row_counts
from stromboli.scheduler.core.model import entities, node_views, task_classes
from stromboli.scheduler.core.placement import extension_points

TAKEN = "node(s) didn't have free ports for the requested pod ports"


class Ports:
    """Number of pods per node that use each port, including changes of the session."""

    def __init__(self, known: pod_index.PodIndex, size: int) -> None:
        self._size = size
        self._held = row_counts.SessionCountsBy(known.ports, size)
        self._without_gang = known.ports_without_gang
        self._by_number: dict[tuple[str, int], set[entities.Port]] = {}
        """(protocol, number) -> ports in use, which differ in the address."""
        self._indexed = 0

    def count(self, task_class: entities.TaskClass, row: int, change: int) -> None:
        """Count a pod of the class on the node; ``change`` is 1 or -1."""
        for port in task_class.ports:
            self._held.add(port, row, change)

    def has_any(self, task_class: entities.TaskClass) -> bool:
        """Return whether pods of the class use host ports."""
        return bool(task_class.ports)

    def checks(
        self, task_class: entities.TaskClass, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """Return the nodes where all ports of the class are free."""
        wanted = task_class.ports
        if not wanted:
            return []
        free, lasting = np.ones((2, self._size), np.bool_)
        for port in wanted:
            for used_port in self._with_number(port):
                if _collide(port, used_port):
                    rows, counts = self._held[used_port].rows()
                    free[rows[counts > 0]] = False
                    lasting_users = self._without_gang.get(used_port)
                    if lasting_users is not None:
                        lasting[lasting_users.rows()[0]] = False
        passed, stays = free[view.rows], lasting[view.rows]
        if view.added is not None:
            passed = passed & (view.added == 0)  # An equal pod uses the same ports.
        code = extension_points.Code.UNSCHEDULABLE
        node_checks = [extension_points.Check(TAKEN, code, passed | ~stays)]
        if not lasting.all():  # of all nodes, so that each view has the same checks
            # Each node is counted once: the other check passes where this one refuses.
            node_checks.append(extension_points.Check(TAKEN, code, stays, is_lasting=True))
        return node_checks

    def _with_number(self, port: entities.Port) -> set[entities.Port]:
        if self._indexed != len(self._held):
            self._indexed = len(self._held)
            self._by_number = {}
            for used_port in self._held:
                self._by_number.setdefault(used_port[:2], set()).add(used_port)
        return self._by_number.get(port[:2], set())


def _collide(left: entities.Port, right: entities.Port) -> bool:
    return left[:2] == right[:2] and (
        left[2] == right[2] or task_classes.ANY_ADDRESS in (left[2], right[2])
    )
