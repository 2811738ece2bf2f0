"""Gangs that were tried in vain and that nothing since can have helped: sessions leave them aside.

A full cluster with a long line would else try the whole line for every pod that comes. What is left
aside decides nothing: a gang is parked only if trying it again is bound to fail, and nothing that
others are told hangs on its being tried.

- It was tried and got nothing; nodes refused it, be it that its queue did too; what refused hangs
  on each node alone (no pod affinity, spread, volume or claim).
- Its tasks that wait are all alike, so that they find room or not whatever the order. If they
  differ, those are looked at that fit nowhere at all, if the gang cannot begin without them.
- Since then no node has room for one of these that had not when the gang failed. Rows whose idle or
  future room grew, and nodes that were written anew, are compared; new, lost or renamed nodes,
  queues, priorities and namespaces call all back.

It works where configured plugins keep to that (``STEADY``) and no action evicts.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.cluster import cluster_model, device_claims
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, resource_vectors

NODE_ONLY_PLUGINS = frozenset(
    {
        "priority",
        "gang",
        "conformance",
        "overcommit",
        "drf",
        "predicates",
        "proportion",
        "capacity",
        "nodeorder",
        "binpack",
    }
)
"""Plugins whose answers change only with what is compared here."""
NODE_ONLY_ACTIONS = frozenset({"enqueue", "allocate", "backfill"})
FULL_RETRY_INTERVAL = timedelta(seconds=10)
"""So old may the numbers in an explanation be while others come and go."""


class _Baseline(msgspec.Struct, frozen=True, eq=False):
    """What nodes had when those who are parked were last known to fail."""

    names: list[str]
    idle: resource_vectors.Table
    future_idle: resource_vectors.Table


BlockingClasses: TypeAlias = Mapping[str, tuple[entities.TaskClass, ...]]
"""Job -> the classes of its tasks for which there is no room, and without which it cannot begin."""


def find_unschedulable(closed: session.Session) -> BlockingClasses:
    """Whom a session tried in vain, as its plugins say. O(jobs that it looked at), and a few passes
    over the nodes for each class."""
    if not _depends_on_nodes_only(closed.configuration):
        return {}
    decided = {*closed.decisions.admitted, *closed.untried}
    found = {
        job.key: _blocking_classes(closed, job)
        for job in closed.waiting_jobs()
        if job.key not in decided
    }
    return {key: blocking for key, blocking in found.items() if blocking}


class UnschedulableGangs:
    """Who is parked, and by which classes of tasks."""

    def __init__(self) -> None:
        self._blocking_by_job: dict[str, tuple[entities.TaskClass, ...]] = {}
        self._requests: dict[int, resource_vectors.Vector] = {}
        self._baseline: _Baseline | None = None
        self._configured: configuration.Configuration | None = None
        self._epoch = -1
        self._full_retry_at: datetime | None = None

    @property
    def jobs(self) -> frozenset[str]:
        """Who is parked, as of the last session."""
        return frozenset(self._blocking_by_job)

    def skip_unschedulable(
        self, of: cluster_model.ClusterModel, configured: configuration.Configuration, now: datetime
    ) -> None:
        """Tell the world which jobs the next session need not look at. O(parked classes x rows
        that grew), and a few passes over the nodes."""
        changed = set(of.changed)
        of.settle()
        renewed, of.renewed = of.renewed, set()
        is_old = (
            self._full_retry_at is None
            or not now - FULL_RETRY_INTERVAL < self._full_retry_at <= now
        )
        is_same = self._epoch == of.epoch and self._configured is configured
        baseline = self._baseline
        if baseline is None or baseline.names is not of.nodes.names or is_old or not is_same:
            self._reset(of, configured, now)
            return
        for key in changed & self._blocking_by_job.keys():
            del self._blocking_by_job[key]
        rows = _rows_with_more_room(of, baseline, renewed)
        if rows.size:
            future = of.nodes.future_idle[:, rows]
            fits = {
                number: bool(resource_vectors.fits(request, future).any())
                for number, request in self._requests.items()
            }
            self._blocking_by_job = {
                key: classes
                for key, classes in self._blocking_by_job.items()
                if not any(fits[each.number] for each in classes)
            }
        of.aside = frozenset(self._blocking_by_job.keys() & of.jobs.keys())

    def note(self, closed: session.Session, blocking_classes: BlockingClasses) -> None:
        """A session has ended, and its changes are not taken back yet: park whom it tried in vain.
        A few passes over the nodes."""
        nodes = closed.nodes
        self._baseline = _Baseline(nodes.names, nodes.idle.copy(), nodes.future_idle)
        if not _depends_on_nodes_only(closed.configuration):
            self._blocking_by_job.clear()
            return
        self._blocking_by_job |= blocking_classes
        self._requests = {
            each.number: resource_vectors.vector(closed.resources, each.shape.request)
            for each in {kind for classes in self._blocking_by_job.values() for kind in classes}
        }
        if closed.world.aside and self._full_retry_at is not None:
            closed.request_session_at(self._full_retry_at + FULL_RETRY_INTERVAL)

    def _reset(
        self, of: cluster_model.ClusterModel, configured: configuration.Configuration, now: datetime
    ) -> None:
        self._blocking_by_job.clear()
        of.aside = frozenset()
        self._epoch, self._configured, self._full_retry_at = of.epoch, configured, now


def _depends_on_nodes_only(configured: configuration.Configuration) -> bool:
    names = {options.name for tier in configured.tiers for options in tier}
    return names <= NODE_ONLY_PLUGINS and NODE_ONLY_ACTIONS.issuperset(configured.actions)


def _rows_with_more_room(
    of: cluster_model.ClusterModel, before: _Baseline, renewed: Iterable[str]
) -> npt.NDArray[np.intp]:
    nodes = of.nodes
    grown = np.any(nodes.idle > before.idle, axis=0)
    grown |= np.any(nodes.future_idle > before.future_idle, axis=0)
    for name in renewed:
        row = nodes.rows.get(name)
        if row is not None:
            grown[row] = True
    return np.flatnonzero(grown)


def _blocking_classes(closed: session.Session, job: entities.Job) -> tuple[entities.TaskClass, ...]:
    """The classes without which the job cannot begin and for which there is no room; none if it may
    begin for another reason than that some node has more."""
    errors = job.fit_errors.values()
    was_tried = bool(errors) and not any(each.is_share or not each.refusals for each in errors)
    is_plain = not (
        job.sub_group_minimums
        or job.is_pending
        or job.problems
        or job.frozen
        or job.topology_error
        or job.pod_group.spec.network_topology is not None
    )
    if not (was_tried and is_plain):
        return ()
    if job.count(entities.Status.PIPELINED, entities.Status.ALLOCATED):
        return ()
    like: dict[entities.TaskClass, list[entities.Task]] = {}
    for task in job.unplaced:
        if not task.is_gated:
            like.setdefault(task.task_class, []).append(task)
    if not all(_are_decided_by_nodes(closed, same) for same in like.values()):
        return ()
    if len(like) == 1:
        return tuple(like)
    nowhere = {kind for kind, same in like.items() if not _fits_somewhere(closed, same[0])}
    others = sum(len(same) for kind, same in like.items() if kind not in nowhere)
    return tuple(nowhere) if nowhere and job.ready + others < job.min_available else ()


def _are_decided_by_nodes(closed: session.Session, same: Sequence[entities.Task]) -> bool:
    return not (
        any(_needs_more_than_nodes(task) for task in same)
        or closed.finder.filter_result(same[0]).is_alone
    )


def _needs_more_than_nodes(task: entities.Task) -> bool:
    return bool(
        task.is_best_effort
        or task.pod.status.nominated_node_name
        or device_claims.has_claims(task.pod)
    )


def _fits_somewhere(closed: session.Session, task: entities.Task) -> bool:
    filter_result = closed.finder.filter_result(task)
    return bool((filter_result.passed & closed.finder.fits_future(task)).any())
