"""Gangs that failed before and that no later change can have helped: unschedulable or unadmitted.

Sessions skip them. Without this, a full cluster would try all waiting gangs for every new pod.

*Unadmitted* gangs were refused by their queue. In the phase Pending and without pods, only the
action ``enqueue`` handles them. It finds the first one of each class that has room
(``unadmitted_jobs``), so the others are skipped until they change. This applies to configurations
of ``NODE_ONLY_PLUGINS``, with any actions, if all votes on admission depend on queue and minimum
request alone (``Registry.add_job_enqueueable``).

*Unschedulable* gangs found no node. Skipping changes no decision: a gang is skipped only if another
attempt would fail and no decision or explanation of other gangs depends on the attempt. Rules 1 and
2 must hold, and rule 3 or rule 4:

1. It was tried and got nothing, because nodes rejected it (its queue may have, too), and every
   rejection depends on one node alone: no pod affinity, spread, volume or claim is involved.
2. Its waiting tasks are of one class, so that their order does not matter. If they are of several,
   only the classes that fit on no node count, and only if the gang cannot start without them.
3. Since the gang failed, no node got room for one of these classes. Only nodes whose idle or future
   room grew, and nodes whose object changed, are checked. New, removed or renamed nodes, and
   changes of queues, priorities and namespaces, bring back all gangs.
4. A node got such room, but the nodes have no room for the gang's minimum, or an equal gang before
   it in job order is tried instead. If that gang starts, the action tries the next one
   (``equal_gangs``).

This applies only to configurations of ``NODE_ONLY_PLUGINS`` and ``NODE_ONLY_ACTIONS``.

Changes of queues, priorities and resource columns bring back all gangs of both kinds, and so does a
change of the AdvanceReservations or the end of one, after which nodes take tasks again that they
rejected. Gangs that name a reservation are never skipped.

To keep the numbers in explanations fresh, skipped gangs are tried again in turn once anything has
changed since their attempt, the oldest attempt first: ``RETRIED_TOGETHER`` in one session, often
enough that each gang is retried within ``RETRY_INTERVAL`` (see ``SHORTEST_PAUSE``). To try all of
them in one session would take a second for a thousand gangs.
"""

import heapq
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.cluster import (
    cluster_model,
    device_claims,
    equal_gangs,
    unadmitted_jobs,
)
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, session
from stromboli.scheduler.core.model import entities, nodes, resource_vectors
from stromboli.shared.api import reservation
from stromboli.shared.jobspec import reservations

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
"""Plugins whose answers change only if the data that rule 3 compares change."""
NODE_ONLY_ACTIONS = frozenset({"enqueue", "allocate", "backfill"})
RETRY_INTERVAL = timedelta(seconds=10)
"""Age at which the numbers in the explanation of a skipped gang are renewed."""
RETRIED_TOGETHER = 16
"""Skipped gangs that one session retries: about 20 ms of CPU time with 10,000 nodes."""
SHORTEST_PAUSE = timedelta(seconds=0.1)
"""Minimum time between two sessions that retry skipped gangs. With more than 1,600 skipped gangs, a
full pass takes longer than ``RETRY_INTERVAL``."""


class _NodeRoom(msgspec.Struct, frozen=True, eq=False):
    """Room on nodes at one time."""

    names: list[str]
    idle: resource_vectors.Table
    future_idle: resource_vectors.Table

    @classmethod
    def of(cls, table: nodes.Nodes) -> "_NodeRoom":
        """A copy of the present room."""
        return cls(table.names, table.idle.copy(), table.future_idle)

    def is_equal(self, other: "_NodeRoom") -> bool:
        """Whether the same nodes have the same room."""
        return np.array_equal(self.idle, other.idle) and np.array_equal(
            self.future_idle, other.future_idle
        )


class Blocking(msgspec.Struct, frozen=True):
    """Why an unschedulable gang cannot start.

    ``classes``: the classes of tasks that have no room and that the gang cannot start without.
    ``common``: what the gang has in common with equal gangs; None if no gang can equal it.
    ``position``: in job order.
    """

    classes: tuple[entities.TaskClass, ...]
    common: equal_gangs.EqualGangs | None = None
    position: equal_gangs.SortKey = ()


class _Blocked(msgspec.Struct, frozen=True):
    """Why a gang is skipped, and the number of the session that tried it."""

    by: Blocking
    tried_in: int


BlockingByJob: TypeAlias = Mapping[str, Blocking]


class SkippableGangs(msgspec.Struct, frozen=True):
    """Gangs that later sessions may skip; None if they may skip none of that kind.

    ``unadmitted``: job -> its position in the order of its queue.
    """

    blocking: BlockingByJob | None
    unadmitted: Mapping[str, unadmitted_jobs.SortKey] | None


def find_skippable(closed: session.Session) -> SkippableGangs:
    """Find the gangs of a closed session that are unschedulable by rules 1 and 2, or unadmitted.

    O(jobs of the session), and a few passes over the nodes for each class.
    """
    return SkippableGangs(_unschedulable(closed), _unadmitted(closed))


def _unadmitted(closed: session.Session) -> Mapping[str, unadmitted_jobs.SortKey] | None:
    configured = closed.configuration
    is_known = _plugins(configured) <= NODE_ONLY_PLUGINS and "enqueue" in configured.actions
    if (
        not (is_known and closed.admits_by_request)
        or closed.sort_keys(interfaces.JOB_ORDER) is None
    ):
        return None
    order = closed.job_key()
    return {job.key: order(job) for job in closed.waiting_jobs() if _was_refused(closed, job)}


def _was_refused(closed: session.Session, job: entities.Job) -> bool:
    """Whether the job waits for room in its queue, and for nothing else."""
    is_plain = not (job.tasks or job.problems or closed.reservations.use(job).name)
    is_plain = is_plain and job.min_request is not None
    return job.is_pending and job.is_decidable and is_plain and closed.queue_of(job).is_open


def _unschedulable(closed: session.Session) -> BlockingByJob | None:
    if closed.cooldowns or not depends_on_nodes_only(closed.configuration):
        return None
    decided = {*closed.decisions.admitted, *closed.untried}
    has_order = closed.sort_keys(interfaces.JOB_ORDER) is not None
    position = closed.job_key() if has_order and _start_whole(closed) else None
    blocking: dict[str, Blocking] = {}
    for job in closed.waiting_jobs():
        if job.key in decided or not (classes := _blocking_classes(closed, job)):
            continue
        common = equal_gangs.of_job(job, closed.reservations.time_limit) if position else None
        if position is None or common is None:
            blocking[job.key] = Blocking(classes)
        else:
            blocking[job.key] = Blocking(classes, common, position(job))
    return blocking


def _start_whole(closed: session.Session) -> bool:
    """Whether plugins let a gang start only with its full minimum; without such plugins each task
    starts on its own."""
    return bool(closed.flat(interfaces.JOB_READY) and closed.flat(interfaces.JOB_PIPELINED))


class UnschedulableGangs:
    """The unschedulable and the unadmitted gangs, and the classes of tasks that have no room."""

    def __init__(self) -> None:
        self._blocked: dict[str, _Blocked] = {}
        """Job -> why it is skipped, the oldest attempt first."""
        self._unadmitted: dict[str, int] = {}
        """Unadmitted job -> number of the session that tried it, the oldest attempt first."""
        self._requests: dict[int, resource_vectors.Vector] = {}
        self._names: list[str] | None = None
        """The nodes of the last session."""
        self._baseline: _NodeRoom | None = None
        """Room on nodes when the unschedulable gangs were last known to fail; None without any."""
        self._opened: _NodeRoom | None = None
        """Room on nodes when the last session began; None if it left no gang to skip."""
        self._configured: configuration.Configuration | None = None
        self._substituted: frozenset[str] = frozenset()
        """The plugins that did not answer in the last session, because they had failed."""
        self._epoch = -1
        self._reserved: tuple[reservation.AdvanceReservation, ...] = ()
        """The reservations that were not over in the last session."""
        self._session = self._changed_in = 0
        self._retried_at: datetime | None = None

    @property
    def jobs(self) -> frozenset[str]:
        """Keys of the unschedulable and unadmitted gangs, as of the last session."""
        return frozenset([*self._blocked, *self._unadmitted])

    def position(self, key: str) -> equal_gangs.SortKey:
        """The position in job order of a gang that the session skips; empty if it is not known.
        It stays the same until the gang changes; a gang that changed is not skipped."""
        blocked = self._blocked.get(key)
        return () if blocked is None else blocked.by.position

    def skip_unschedulable(
        self, of: cluster_model.ClusterModel, configured: configuration.Configuration, now: datetime
    ) -> None:
        """Set the jobs that the next session skips (rule 3).

        O(classes x nodes with more room), and a few passes over the nodes.
        """
        changed = set(of.changed)
        of.settle()
        renewed, of.updated_nodes = of.updated_nodes, set()
        self._session += 1
        is_same = self._epoch == of.epoch and self._configured is configured
        reserved, self._reserved = self._reserved, _not_over(of, now)
        is_same = is_same and reserved == self._reserved
        if self._names is not of.nodes.names or not is_same:
            self._reset(of, configured, now)
            return
        # If no gang is skipped, the room need not be compared.
        if changed or renewed or (self._has_skipped and not self._has_same_room(of)):
            self._changed_in = self._session
        for key in changed:
            self._try_again(of, key)
        # Before the lines are built: they must not contain gangs that are retried anyway.
        self._retry_oldest(of, now)
        of.equal_gangs = equal_gangs.Lines()
        if self._blocked and self._baseline is not None:
            rows = _rows_with_more_room(of, self._baseline, renewed)
            if rows.size:
                self._try_fitting(of, rows)
        of.skipped = self.jobs

    def follow_plugins(self, of: cluster_model.ClusterModel, substituted: Iterable[str]) -> None:
        """Skip no gang if the set of substituted plugins has changed since the previous session:
        the job order may differ, and the positions of skipped gangs are then out of date. Call it
        before the session opens."""
        plugins = frozenset(substituted)
        if plugins != self._substituted:
            self._substituted = plugins
            self._forget(of)

    @property
    def _has_skipped(self) -> bool:
        return bool(self._blocked or self._unadmitted)

    def _has_same_room(self, of: cluster_model.ClusterModel) -> bool:
        return self._opened is not None and self._opened.is_equal(_NodeRoom.of(of.nodes))

    def _try_fitting(self, of: cluster_model.ClusterModel, rows: npt.NDArray[np.intp]) -> None:
        """Stop skipping gangs with a blocking class that fits one of these nodes now; of equal
        gangs, only the first one.

        O(skipped gangs x log of them, classes x resources x nodes).
        """
        everywhere = of.nodes.future_idle
        future = everywhere[:, rows]
        room = {
            number: equal_gangs.count_room(request, everywhere)
            for number, request in self._requests.items()
            if resource_vectors.fits(request, future).any()
        }
        helped = {
            key: blocked.by
            for key, blocked in self._blocked.items()
            if any(each.number in room for each in blocked.by.classes)
        }
        of.equal_gangs = equal_gangs.Lines(
            (by.common, by.position, key)
            for key, by in helped.items()
            if by.common is not None and by.common.needed <= room[by.common.task_class]
        )
        alone = (key for key, by in helped.items() if by.common is None)
        for key in (*alone, *of.equal_gangs.first()):
            del self._blocked[key]

    def note(self, closed: session.Session, skippable_gangs: SkippableGangs) -> None:
        """Note the unschedulable and unadmitted gangs of a session. Call it before the rollback.

        Costs a few passes over the nodes if there are unschedulable ones.
        """
        self._names = closed.nodes.names
        self._note_unadmitted(closed, skippable_gangs.unadmitted)
        if skippable_gangs.blocking is None:
            self._blocked.clear()
        for key in closed.resumed:
            self._blocked.pop(key, None)
        if self._release_untried(closed):
            closed.request_session_at(closed.now + RETRY_INTERVAL)
        # The baseline includes the room that evictions will free, although no skipped gang was
        # tried on it.
        evicted = (closed.model.tasks[each.task] for each in closed.decisions.evictions)
        closed.model.updated_nodes.update(task.node for task in evicted)
        for key, blocking in (skippable_gangs.blocking or {}).items():
            self._blocked.pop(key, None)  # its attempt is the newest now
            self._blocked[key] = _Blocked(blocking, self._session)
        self._baseline = _NodeRoom.of(closed.nodes) if self._blocked else None
        kinds = {kind for blocked in self._blocked.values() for kind in blocked.by.classes}
        self._requests = {
            each.number: resource_vectors.vector(closed.resources, each.shape.request)
            for each in kinds
        }
        if self._retried_at is not None and any(self._outdated()):
            closed.request_session_at(self._retried_at + self._pause())

    def _release_untried(self, closed: session.Session) -> bool:
        """Stop skipping the rest of a line of equal gangs if one of them has room now. This happens
        if the gang before them was refused by its queue or was not tried, for example because the
        session had reached its limit. Returns whether there are any.

        O(skipped gangs, lines x resources x nodes).
        """
        before = len(self._blocked)
        for common, line in closed.model.equal_gangs.items():
            behind = [key for key in line if key in self._blocked]
            job = closed.jobs.get(behind[0]) if behind else None
            task = next(iter(job.unplaced), None) if job is not None else None
            if task is None or _room_left(closed, task) >= common.needed:
                for key in behind:
                    del self._blocked[key]
        return len(self._blocked) < before

    def note_opening(self, of: cluster_model.ClusterModel) -> None:
        """Note the room on nodes at the opening of the session. Call it after the rollback."""
        self._opened = _NodeRoom.of(of.nodes) if self._has_skipped else None

    def _note_unadmitted(
        self, closed: session.Session, sort_keys: Mapping[str, unadmitted_jobs.SortKey] | None
    ) -> None:
        line = closed.model.unadmitted
        if sort_keys is None:
            self._unadmitted.clear()
            line.clear()
            return
        for key, order in sort_keys.items():
            self._unadmitted.pop(key, None)
            self._unadmitted[key] = self._session
            job = closed.jobs[key]
            assert job.min_request is not None, f"{key} has no minimum request"
            request = tuple(job.min_request.tolist())
            line.put(key, unadmitted_jobs.AdmissionClass(job.queue, request), order)

    def _try_again(self, of: cluster_model.ClusterModel, key: str) -> None:
        self._blocked.pop(key, None)
        if self._unadmitted.pop(key, None) is not None:
            of.unadmitted.discard(key)

    def _retry_oldest(self, of: cluster_model.ClusterModel, now: datetime) -> None:
        """Stop skipping the gangs whose attempt is oldest, if their turn has come."""
        last = self._retried_at
        if last is not None and last <= now < last + self._pause():
            return
        self._retried_at = now
        for key in list(itertools.islice(self._outdated(), RETRIED_TOGETHER)):
            self._try_again(of, key)

    def _outdated(self) -> Iterator[str]:
        """The gangs that were tried before the last change, the oldest attempt first."""
        if not self._has_skipped:
            return iter(())
        tried = heapq.merge(
            ((blocked.tried_in, key) for key, blocked in self._blocked.items()),
            ((tried_in, key) for key, tried_in in self._unadmitted.items()),
            key=operator.itemgetter(0),
        )
        return (key for _, key in itertools.takewhile(lambda at: at[0] < self._changed_in, tried))

    def _pause(self) -> timedelta:
        """The time from one retry to the next one."""
        turns = max((len(self._blocked) + len(self._unadmitted)) / RETRIED_TOGETHER, 1.0)
        return max(RETRY_INTERVAL / turns, SHORTEST_PAUSE)

    def _reset(
        self, of: cluster_model.ClusterModel, configured: configuration.Configuration, now: datetime
    ) -> None:
        self._forget(of)
        self._epoch, self._configured, self._retried_at = of.epoch, configured, now

    def _forget(self, of: cluster_model.ClusterModel) -> None:
        self._blocked.clear()
        self._unadmitted.clear()
        of.unadmitted.clear()
        of.equal_gangs = equal_gangs.Lines()
        of.skipped = frozenset()


def _not_over(
    of: cluster_model.ClusterModel, now: datetime
) -> tuple[reservation.AdvanceReservation, ...]:
    """The reservations that may still keep tasks off nodes, those that are invalid included."""
    listed_reservations: tuple[reservation.AdvanceReservation, ...] = of.auxiliary.listed(
        "advance_reservations"
    )
    return tuple(each for each in listed_reservations if not reservations.is_over(each.spec, now))


def depends_on_nodes_only(configured: configuration.Configuration) -> bool:
    """Whether only ``NODE_ONLY_PLUGINS`` and ``NODE_ONLY_ACTIONS`` are configured, so that the
    passage of time changes no decision, except through AdvanceReservations."""
    is_known = _plugins(configured) <= NODE_ONLY_PLUGINS
    return is_known and NODE_ONLY_ACTIONS.issuperset(configured.actions)


def _plugins(configured: configuration.Configuration) -> set[str]:
    return {options.name for tier in configured.tiers for options in tier}


def _rows_with_more_room(
    of: cluster_model.ClusterModel, before: _NodeRoom, renewed: Iterable[str]
) -> npt.NDArray[np.intp]:
    now = of.nodes
    grown = np.any(now.idle > before.idle, axis=0)
    grown |= np.any(now.future_idle > before.future_idle, axis=0)
    for name in renewed:
        row = now.rows.get(name)
        if row is not None:
            grown[row] = True
    return np.flatnonzero(grown)


def _blocking_classes(closed: session.Session, job: entities.Job) -> tuple[entities.TaskClass, ...]:
    """The classes that have no room and without which the job cannot start.

    Empty if anything other than more room on a node could let the job start.
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
        or closed.reservations.use(job).name
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
    if not _start_whole(closed):
        return ()
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


def _room_left(closed: session.Session, task: entities.Task) -> int:
    """How many tasks like this one the nodes can hold after the session. O(resources x nodes)."""
    passed = closed.finder.filter_result(task).passed & closed.finder.fits_future(task)
    return equal_gangs.count_room(task.request, closed.nodes.future_idle[:, passed])
