"""Predicates: on which nodes a task may lie, resources aside (spec/plugins 7).

Selector, affinity and taints never change in a session; pod count and host ports change with the
node's own tasks; affinity between pods and spread with any node's. Each is asked as often as that.
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
"""Reason -> the argument that turns its check off; others are always on."""


class Plugin:
    """Arguments: one switch per check, ``predicate.<check>Enable``, all on by default."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()

    def open(self, within: session.Session) -> None:
        """Register the checks that are on."""
        static = _Static(within, self._is_on)
        within.add_predicate(static.checks, extension_points.Scope.STATIC)
        local = _Local(within, self._is_on("predicate.NodePortsEnable"))
        within.add_predicate(local.checks, extension_points.Scope.LOCAL)
        within.add_event_handler(local.put, local.take)
        if self._is_on("predicate.PodAffinityEnable"):
            near = affinity.Affinity(within.board)
            within.add_predicate(near.checks, extension_points.Scope.GLOBAL)
        if self._is_on("predicate.PodTopologySpreadEnable"):
            even = spread.Spread(within.board, static.selected, static.tolerated)
            within.add_predicate(even.checks, extension_points.Scope.GLOBAL)
        if self._is_on("predicate.VolumeBindingEnable"):
            self._open_volumes(within)
        if self._is_on("predicate.NodeVolumeLimitsEnable") and within.cluster.csi_nodes:
            limits = volume_limits.Limits(within)
            within.add_predicate(limits.checks, extension_points.Scope.GLOBAL)
            within.add_event_handler(limits.put_all, limits.take_all)
        if within.cluster.resource_claims or within.world.surroundings.unread["resource_claims"]:
            self._open_devices(within)
        else:
            known = device_claims.Claims(within.cluster)
            within.add_pre_predicate(lambda task: known.of(task).problem or None)

    def _open_volumes(self, within: session.Session) -> None:
        owned = volumes.Claims(within, with_zones=self._is_on("predicate.VolumeZoneEnable"))
        within.add_pre_predicate(owned.missing)
        if within.cluster.claims:
            within.add_distinction(owned.tell)
            within.add_predicate(owned.reachable, extension_points.Scope.STATIC)
            within.add_predicate(owned.obtainable, extension_points.Scope.GLOBAL)
            within.add_event_handler(owned.put_all, owned.take_all)
            within.add_preparation(lambda task: list(owned.preparations(task)))

    def _open_devices(self, within: session.Session) -> None:
        """No argument turns it off: Volcano declares one and never reads it."""
        owned = devices.Devices(within)
        within.add_distinction(owned.tell)
        within.add_pre_predicate(owned.missing)
        within.add_predicate(owned.checks, owned.scope)
        within.add_event_handler(owned.put_all, owned.take_all)
        within.add_preparation(lambda task: list(owned.preparations(task)))

    def close(self, within: session.Session) -> None:
        """Pass on what was wrong with the arguments."""
        within.complaints.extend(self._arguments.complaints)

    def _is_on(self, name: str) -> bool:
        return self._arguments.boolean(name, default=True)


class _Static:
    """Unschedulable, selector and affinity, taints."""

    def __init__(self, within: session.Session, is_on: Callable[[str], bool]) -> None:
        self._checks = within.nodes.checks
        self._off = {reason for reason, name in _SWITCHED.items() if not is_on(name)}

    def checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        return [
            extension_points.Check(reason, extension_points.Code.UNRESOLVABLE, passed[view.rows])
            for reason, passed in self._checks.of(task.task_class.shape).checks
            if reason not in self._off
        ]

    def selected(self, task: entities.Task) -> extension_points.Mask:
        """Nodes that the task's selector and required affinity allow."""
        return self._mask(task, node_constraints.AFFINITY)

    def tolerated(self, task: entities.Task) -> extension_points.Mask:
        """Nodes whose taints it tolerates."""
        return self._mask(task, node_constraints.TAINTED)

    def _mask(self, task: entities.Task, reason: str) -> extension_points.Mask:
        return dict(self._checks.of(task.task_class.shape).checks)[reason]


class _Local:
    """Pod count and host ports. A task that the session evicts leaves at once."""

    def __init__(self, within: session.Session, with_ports: bool) -> None:
        self._nodes = within.nodes
        self._pods = within.nodes.pods.copy()
        known = within.world.census.ports
        self._ports = ports.Ports(known, len(within.nodes)) if with_ports else None

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

    def put(self, tasks: Sequence[entities.Task]) -> None:
        self._count(tasks, 1)

    def take(self, tasks: Sequence[entities.Task]) -> None:
        self._count(tasks, -1)

    def _count(self, tasks: Sequence[entities.Task], change: int) -> None:
        rows = [row for task in tasks if (row := self._nodes.rows.get(task.node)) is not None]
        np.add.at(self._pods, rows, change)
        if self._ports is not None and self._ports.has_any(tasks[0].task_class):
            for row in rows:
                self._ports.count(tasks[0].task_class, row, change)
