"""Unschedulable gangs: gangs that failed before and that no change since can have helped.

Sessions skip them. Without this, a full cluster would try all waiting gangs for every new pod.
Skipping changes no decision: a gang is skipped only if another attempt is bound to fail and no
decision or explanation of other gangs depends on the attempt. All of these must hold:

1. It was tried and got nothing, because nodes rejected it (its queue may have, too), and every
   rejection depends on one node alone: no pod affinity, spread, volume or claim is involved.
2. Its waiting tasks are of one class, so that their order does not matter. If they are of several,
   only the classes that fit on no node count, and only if the gang cannot start without them.
3. Since the gang failed, no node got room for one of these classes. Nodes whose idle or future room
   grew, and nodes that were written again, are compared. New, removed or renamed nodes, and changes
   of queues, priorities and namespaces, bring back all gangs.

This applies only to configurations of ``NODE_ONLY_PLUGINS`` and ``NODE_ONLY_ACTIONS``. Every
``FULL_RETRY_INTERVAL`` all gangs are tried again, so that numbers in explanations stay fresh.
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
"""Plugins whose answers change only with what rule 3 compares."""
NODE_ONLY_ACTIONS = frozenset({"enqueue", "allocate", "backfill"})
FULL_RETRY_INTERVAL = timedelta(seconds=10)
"""Largest age of the numbers in the explanation of a skipped gang."""


class _Baseline(msgspec.Struct, frozen=True, eq=False):
    """Room on nodes when the unschedulable gangs were last known to fail."""

    names: list[str]
    idle: resource_vectors.Table
    future_idle: resource_vectors.Table


BlockingClasses: TypeAlias = Mapping[str, tuple[entities.TaskClass, ...]]
"""Job -> classes of its tasks that have no room and without which it cannot start."""


def find_unschedulable(closed: session.Session) -> BlockingClasses:
    """Find the gangs of a closed session that are unschedulable by rules 1 and 2.

    O(jobs of the session), and a few passes over the nodes for each class.
    """
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
    """The unschedulable gangs, and the classes of tasks that have no room."""

    def __init__(self) -> None:
        self._blocking_by_job: dict[str, tuple[entities.TaskClass, ...]] = {}
        self._requests: dict[int, resource_vectors.Vector] = {}
        self._baseline: _Baseline | None = None
        self._configured: configuration.Configuration | None = None
        self._epoch = -1
        self._full_retry_at: datetime | None = None

    @property
    def jobs(self) -> frozenset[str]:
        """Keys of the unschedulable gangs, as of the last session."""
        return frozenset(self._blocking_by_job)

    def skip_unschedulable(
        self, of: cluster_model.ClusterModel, configured: configuration.Configuration, now: datetime
    ) -> None:
        """Set the jobs that the next session skips (rule 3).

        O(classes x nodes with more room), and a few passes over the nodes.
        """
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
        """Note the unschedulable gangs of a session. Call it before the rollback.

        Costs a few passes over the nodes.
        """
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
    """The classes that have no room and without which the job cannot start.

    Empty if something else than more room on a node could let the job start.
    """
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
