"""The plugin ``predicates``: filters nodes by all constraints except resources.

The results of selectors, node affinity and taints never change in a session. Those of pod count and
host ports change with tasks of the same node, those of pod affinity and topology spread with tasks
of any node. Each filter declares its scope, and is evaluated again only when the scope requires it.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from stromboli.scheduler.core.cluster import device_claims
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_constraints, node_views, requirements
from stromboli.scheduler.core.placement import affinity, extension_points, spread
from stromboli.scheduler.core.plugins.predicates import devices, ports, volume_limits, volumes

TOO_MANY_PODS = "node(s) pod number exceeded"
_SWITCHED = {
    node_constraints.AFFINITY: "predicate.NodeAffinityEnable",
    node_constraints.TAINTED: "predicate.TaintTolerationEnable",
}
"""Reason -> the argument that disables its check. Other checks are always on."""


class Plugin:
    """Arguments: one switch per check, ``predicate.<check>Enable``, all on by default."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()

    def open(self, ssn: session.Session) -> None:
        """Register the enabled checks."""
        static = _Static(ssn, self._is_on)
        ssn.add_predicate(static.checks, extension_points.Scope.STATIC)
        local = _Local(ssn, self._is_on("predicate.NodePortsEnable"))
        ssn.add_predicate(local.checks, extension_points.Scope.LOCAL)
        ssn.add_event_handler(local.on_allocate, local.on_deallocate)
        if self._is_on("predicate.PodAffinityEnable"):
            near = affinity.Affinity(ssn.affinity_index)
            ssn.add_predicate(near.checks, extension_points.Scope.GLOBAL)
        if self._is_on("predicate.PodTopologySpreadEnable"):
            even = spread.Spread(ssn.affinity_index, static.selected, static.tolerated)
            ssn.add_predicate(even.checks, extension_points.Scope.GLOBAL)
        if self._is_on("predicate.VolumeBindingEnable"):
            self._open_volumes(ssn)
        if self._is_on("predicate.NodeVolumeLimitsEnable") and ssn.cluster.csi_nodes:
            limits = volume_limits.VolumeLimits(ssn)
            ssn.add_predicate(limits.checks, extension_points.Scope.GLOBAL)
            ssn.add_event_handler(limits.on_allocate, limits.on_deallocate)
        if ssn.cluster.resource_claims or ssn.model.auxiliary.unreadable["resource_claims"]:
            self._open_devices(ssn)
        else:
            known = device_claims.ClaimIndex(ssn.cluster)
            ssn.add_pre_predicate(lambda task: known.of(task).problem or None)

    def _open_volumes(self, ssn: session.Session) -> None:
        owned = volumes.Claims(ssn, with_zones=self._is_on("predicate.VolumeZoneEnable"))
        ssn.add_pre_predicate(owned.missing)
        if ssn.cluster.claims:
            ssn.add_class_key(owned.class_key)
            ssn.add_predicate(owned.reachable, extension_points.Scope.STATIC)
            ssn.add_predicate(owned.obtainable, extension_points.Scope.GLOBAL)
            ssn.add_event_handler(owned.on_allocate, owned.on_deallocate)
            ssn.add_preparation(lambda task: list(owned.preparations(task)))

    def _open_devices(self, ssn: session.Session) -> None:
        """Register the devices check. It has no switch: Volcano declares one and never reads it."""
        owned = devices.Devices(ssn)
        ssn.add_class_key(owned.class_key)
        ssn.add_pre_predicate(owned.missing)
        ssn.add_predicate(owned.checks, owned.scope)
        ssn.add_event_handler(owned.on_allocate, owned.on_deallocate)
        ssn.add_preparation(lambda task: list(owned.preparations(task)))

    def close(self, ssn: session.Session) -> None:
        """Report invalid arguments."""
        ssn.complaints.extend(self._arguments.complaints)

    def _is_on(self, name: str) -> bool:
        return self._arguments.boolean(name, default=True)


class _Static:
    """Unschedulable nodes, selectors, node affinity, taints."""

    def __init__(self, ssn: session.Session, is_on: Callable[[str], bool]) -> None:
        self._checks = ssn.nodes.checks
        self._off = {reason for reason, name in _SWITCHED.items() if not is_on(name)}

    def checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        return [
            extension_points.Check(
                reason, extension_points.Code.UNRESOLVABLE, passed[view.rows], is_lasting=True
            )
            for reason, passed in self._checks.of(task.task_class.shape).checks
            if reason not in self._off
        ]

    def selected(self, task: entities.Task) -> extension_points.Mask:
        """Return the nodes that the task's selector and required affinity match."""
        return self._mask(task, node_constraints.AFFINITY)

    def tolerated(self, task: entities.Task) -> extension_points.Mask:
        """Return the nodes whose taints the task tolerates."""
        return self._mask(task, node_constraints.TAINTED)

    def _mask(self, task: entities.Task, reason: str) -> extension_points.Mask:
        return dict(self._checks.of(task.task_class.shape).checks)[reason]


class _Local:
    """Pod count and host ports. A task that the session evicts counts as gone."""

    def __init__(self, ssn: session.Session, with_ports: bool) -> None:
        self._nodes = ssn.nodes
        self._pods = ssn.nodes.pods.copy()
        self._ports = ports.Ports(ssn.model.pod_index, len(ssn.nodes)) if with_ports else None

    def checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        return list(self._checks(task, view))

    def _checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> Iterator[extension_points.Check]:
        pods = self._pods[view.rows]
        if view.added is not None:
            pods = pods + view.added
        room = pods < view.allocatable[requirements.PODS]
        yield extension_points.Check(
            TOO_MANY_PODS, extension_points.Code.UNSCHEDULABLE, room, is_resource=True
        )
        if self._ports is not None:
            yield from self._ports.checks(task.task_class, view)

    def on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        self._count(tasks, 1)

    def on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        self._count(tasks, -1)

    def _count(self, tasks: Sequence[entities.Task], change: int) -> None:
        rows = self._nodes.rows_of([task.node for task in tasks])
        if -1 in rows:
            rows = [row for row in rows if row >= 0]
        np.add.at(self._pods, rows, change)
        if self._ports is not None and self._ports.has_any(tasks[0].task_class):
            for row in rows:
                self._ports.count(tasks[0].task_class, row, change)
