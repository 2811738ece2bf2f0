"""The number of volumes that nodes can attach, per driver (Kubernetes plugin NodeVolumeLimits).

A volume that several pods of a node share is attached once. Without a CSINode there is no limit.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.cluster import device_claims
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.api import storage

EXCEEDED = "node(s) exceed max volume count"
_UNLIMITED = 2**31

Attached = tuple[str, str]
"""Driver, volume."""


class VolumeLimits:
    """Attached volumes by node, including changes of the session."""

    def __init__(self, ssn: session.Session) -> None:
        around = ssn.model.auxiliary
        self._table = ssn.nodes
        self._claims = around.claims
        self._volumes = around.volumes
        self._classes = around.storage_classes
        self._limits: dict[str, npt.NDArray[np.int64]] = {}
        for node in around.csi_nodes.values():
            for driver in node.spec.drivers or ():
                row = ssn.nodes.rows.get(node.metadata.name)
                if row is not None and driver.allocatable.count is not None:
                    self._of_driver(driver.name)[row] = driver.allocatable.count
        unreadable = [
            ssn.nodes.rows[each]
            for each in around.unreadable["csi_nodes"]
            if each in ssn.nodes.rows
        ]
        for limits in self._limits.values():
            limits[unreadable] = 0  # The limit is unknown: attach no volumes.
        self._users: dict[Attached, Counter[int]] = {}
        self._counts: dict[str, npt.NDArray[np.int64]] = {}
        self.on_allocate(tuple(ssn.model.pod_index.claimants.values()) if self._limits else ())

    def checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """Return the nodes that can attach the task's volumes in addition."""
        wanted = self._wanted(task)
        if not wanted:
            return []
        passed = np.ones(len(self._table), np.bool_)
        for driver in sorted({driver for driver, _ in wanted}):
            new = np.zeros(len(self._table), np.int64)
            for each in wanted:
                if each[0] == driver:
                    new += 1
                    new[[row for row, users in self._users.get(each, {}).items() if users]] -= 1
            counts = self._counts.get(driver, 0)
            passed &= (new == 0) | (counts + new <= self._limits[driver])
        return [
            extension_points.Check(EXCEEDED, extension_points.Code.UNSCHEDULABLE, passed[view.rows])
        ]

    def on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        """Count the volumes of placed tasks."""
        for task in tasks:
            self._count(task, 1)

    def on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        """Remove the volumes of tasks."""
        for task in tasks:
            self._count(task, -1)

    def _of_driver(self, driver: str) -> npt.NDArray[np.int64]:
        if driver not in self._limits:
            self._limits[driver] = np.full(len(self._table), _UNLIMITED, np.int64)
        return self._limits[driver]

    def _count(self, task: entities.Task, change: int) -> None:
        row = self._table.rows.get(task.node)
        if row is None:
            return
        for each in self._wanted(task):
            users = self._users.setdefault(each, Counter())
            before = users[row] > 0
            users[row] += change
            counts = self._counts.setdefault(each[0], np.zeros(len(self._table), np.int64))
            counts[row] += (users[row] > 0) - before

    def _wanted(self, task: entities.Task) -> set[Attached]:
        """Return the task's volumes of drivers with a limit on any node."""
        attachments = set()
        for key in device_claims.volume_keys(task.pod) if self._limits else ():
            claim = self._claims.get(key)
            attached = None if claim is None else self._attached(key, claim)
            if attached is not None and attached[0] in self._limits:
                attachments.add(attached)
        return attachments

    def _attached(self, key: str, claim: storage.PersistentVolumeClaim) -> Attached | None:
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is not None:
            return (
                None
                if volume.spec.csi is None
                else (volume.spec.csi.driver, volume.spec.csi.volume_handle)
            )
        of = self._classes.get(claim.spec.storage_class_name or "")
        return None if of is None else (of.provisioner, key)
