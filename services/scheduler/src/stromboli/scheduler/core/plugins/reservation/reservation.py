"""The plugin ``reservation``: keeps room for blocked heads of queues, so that they start
eventually.

A job that was tried and cannot start owns a reservation if it is the first such job of its queue,
or past its ``sla-waiting-time``: a start time and room on nodes (see ``start_estimate``). Other
tasks may use that room only if they end before the start time, so a task without a run time may
not. If run times are accurate, the job starts no later than the start time of its first
reservation.

A reservation is kept between sessions, so that other queues respect it from the start of the next
one. It ends when its job starts, stops waiting, is overtaken in the order of its queue, or turns
out to wait for something other than nodes (the limits of its queue). Jobs ordered before the owner
in its queue may use the room.

Arguments: ``most`` (16), the number of reservations; ``hold-without-start`` (false): whether a
queue's first job whose start time is unknown reserves nodes. A job past its waiting time always
does.
"""

import math
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import run_times, session
from stromboli.scheduler.core.model import entities, node_views, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.reservation import start_estimate
from stromboli.scheduler.core.queue_quota import deadlines
from stromboli.shared import decoding

NAME = "reservation"
MAX_RESERVATIONS = 16
RESERVE_AFTER = timedelta(minutes=1)
"""Time for which room is kept for a job that may start but whose pods are still being created."""


class ReservationRecord(msgspec.Struct):
    """A reservation as stored for the next session. ``rows``: node -> amounts by name.

    ``uid``: of the PodGroup, so that another one of the same name does not inherit it.
    """

    job: str
    uid: str
    start: datetime | None
    rows: dict[str, dict[str, int]]


class Plugin:
    """Reserves room for blocked heads of queues, and reports their expected start times."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._most = self._arguments.integer("most", MAX_RESERVATIONS)
        self._holds = self._arguments.boolean("hold-without-start", default=False)

    def open(self, ssn: session.Session) -> None:
        """Register. Reservations are computed on demand."""
        self._session = ssn
        ssn.complaints.extend(self._arguments.complaints)
        self._deadlines = deadlines.Deadlines.configured(ssn)
        self._run_times = run_times.RunTimes(ssn)
        self._remembered = _decode_state(ssn.cluster.memory.get(NAME, ""))
        self._plans: dict[str, start_estimate.Reservation] = {}
        self._heads: dict[str, entities.Job] = {}
        self._is_open = False
        self._timetable: start_estimate.EndTimes | None = None
        self._ended: dict[str, resource_vectors.Table] = {}
        self._changes = 0
        self._asked: dict[Hashable, tuple[Any, ...]] = {}
        ssn.add_job_blocked(self._note_blocked)
        ssn.add_job_enqueueable(self._vote)
        ssn.add_class_key(self._conflicting_reservations)
        ssn.add_predicate(self._check, extension_points.Scope.LOCAL)
        ssn.add_event_handler(self._on_allocate, self._on_deallocate)

    def close(self, ssn: session.Session) -> None:
        """Report start times to owners, and store reservations for the next session."""
        self._restore_reservations()
        kept = []
        for plan in self._plans.values():
            job = ssn.jobs[plan.job]
            if ssn.job_ready(job):
                continue
            job.start_estimate_text = _start_forecast(plan)
            if plan.start is not None:
                ssn.request_session_at(plan.start)
            names, resources = ssn.nodes.names, ssn.resources
            rows = {
                names[row]: resource_vectors.named(resources, amounts)
                for row, amounts in plan.rows.items()
            }
            kept.append(ReservationRecord(plan.job, job.uid, plan.start, rows))
        if kept:
            ssn.remember[NAME] = msgspec.json.encode(kept, order="deterministic").decode()

    # Owners ---------------------------------------------------------------------------------

    def _restore_reservations(self) -> None:
        """Restore all stored reservations before any is improved, so that the order in which they
        are processed gives no reservation an advantage."""
        if self._is_open:
            return
        self._is_open = True
        waiting: list[entities.Job] = []
        for kept in sorted(self._remembered, key=_by_start):
            job = self._session.jobs.get(kept.job)
            is_there = job is not None and job.uid == kept.uid
            if job is not None and is_there and self._still_waits(job, kept):
                waiting.append(job)
                plan = self._restored(kept)
                if plan is not None and self._is_still_valid(plan, self._demands(job)):
                    self._add_reservation(plan)
        for job in waiting:
            better = self._earliest_reservation(job, self._plans.pop(job.key, None))
            if better is not None:
                self._add_reservation(better)

    def _still_waits(self, job: entities.Job, kept: ReservationRecord) -> bool:
        if self._session.job_ready(job):
            return False
        if job.is_pending:
            return self._session.queues[job.queue].is_open
        if self._session.job_valid(job) is None:
            return True
        is_late = kept.start is None or self._session.reached(kept.start + RESERVE_AFTER)
        return job.phase == "Inqueue" and not is_late

    def _note_blocked(self, job: entities.Job) -> str:
        """Decide whether a blocked job gets a reservation."""
        self._restore_reservations()
        if not job.is_pending and self._session.job_valid(job) is not None:
            return ""
        is_head = self._is_head(job)
        if not is_head and not self._deadlines.is_over(job):
            return ""
        before = self._plans.pop(job.key, None)
        self._note_change()
        plan = None if job.is_refused_by_queue else self._earliest_reservation(job, before)
        # A plan that starts now means that the job fits on idle nodes. It was not placed there, so
        # it waits for something other than nodes.
        if plan is not None and (plan.start != self._session.now or job.waiting):
            self._add_reservation(plan)
        return ""

    def _is_head(self, job: entities.Job) -> bool:
        """Return whether no blocked job or owner of a reservation precedes the job in its queue.

        If so, the job becomes the head of the queue, and the reservations of the jobs after it are
        dropped, except those of jobs past their ``sla-waiting-time``.
        """
        owners = [self._session.jobs[key] for key in self._plans]
        others = [each for each in owners if each.queue == job.queue and each is not job]
        first = self._heads.get(job.queue, job)
        for other in (first, *others):
            if other is not job and self._session.compare_jobs(other, job) < 0:
                return False
        self._heads[job.queue] = job
        for other in others:
            if not self._deadlines.is_over(other):
                del self._plans[other.key]
                self._note_change()
        return True

    def _add_reservation(self, plan: start_estimate.Reservation) -> None:
        if len(self._plans) < self._most and plan.rows:
            self._plans[plan.job] = plan
            self._note_change()

    def _note_change(self) -> None:
        self._changes += 1
        self._ended.clear()
        self._asked.clear()

    def _vote(self, job: entities.Job) -> int:
        """Permit enqueueing a job whose reservation has begun, regardless of inqueue jobs that need
        the same room."""
        self._restore_reservations()
        plan = self._plans.get(job.key)
        is_due = plan is not None and plan.start is not None and self._session.reached(plan.start)
        return extension_points.PERMIT if is_due else extension_points.ABSTAIN

    # Planning -------------------------------------------------------------------------------

    def _earliest_reservation(
        self, job: entities.Job, before: start_estimate.Reservation | None
    ) -> start_estimate.Reservation | None:
        """Return the earliest reservation; the previous reservation if it is still valid and there
        is no earlier one."""
        demands = self._demands(job)
        if not demands:
            return None
        reservation = self._plan(job, demands)
        if before is None or not self._is_still_valid(before, demands):
            return reservation
        if reservation is None or reservation.start is None or before.start is None:
            return reservation
        return reservation if reservation.start < before.start else before

    def _plan(
        self, job: entities.Job, demands: Sequence[start_estimate.Demand]
    ) -> start_estimate.Reservation | None:
        table = self._times()
        now = self._session.now.timestamp()
        run_time, size = self._run_times.of_job(job), len(self._session.nodes)

        def places(time: float) -> dict[int, resource_vectors.Vector] | None:
            start = datetime.fromtimestamp(time, UTC)
            mask = self._session.is_open(start, run_time, node_views.ALL, size)
            mask &= self._session.reservations.available(job, start, run_time)
            usable = [
                start_estimate.Demand(each.request, each.count, each.mask & mask)
                for each in demands
            ]
            return start_estimate.pack(
                self._available_from(job, time), usable, self._busiest_first()
            )

        times = [now, *(time for time in table.times() if time > now)]
        start = start_estimate.earliest(times, lambda time: places(time) is not None)
        if start is None:
            return self._reservation_without_start(job, demands)
        rows = places(start)
        assert rows is not None
        return start_estimate.Reservation(job.key, datetime.fromtimestamp(start, UTC), rows)

    def _reservation_without_start(
        self, job: entities.Job, demands: Sequence[start_estimate.Demand]
    ) -> start_estimate.Reservation | None:
        """Return nodes where the job would fit if all running tasks ended, the emptiest first."""
        if not self._holds and not self._deadlines.is_over(job):
            return None
        table = self._session.nodes
        room = table.allocatable - self._reserved(job.key)
        rows = start_estimate.pack(room, demands, self._busiest_first()[::-1])
        return None if rows is None else start_estimate.Reservation(job.key, None, rows)

    def _is_still_valid(
        self, plan: start_estimate.Reservation, demands: Sequence[start_estimate.Demand]
    ) -> bool:
        parts = [resource_vectors.multiplied(each.request, each.count) for each in demands]
        needed = resource_vectors.sum_of(parts, len(self._session.nodes.idle))
        if plan.start is None or not np.array_equal(plan.need, needed):
            return False
        room = self._available_from(self._session.jobs[plan.job], plan.start.timestamp())
        return all(bool(np.all(reserved <= room[:, row])) for row, reserved in plan.rows.items())

    def _available_from(self, job: entities.Job, time: float) -> resource_vectors.Table:
        """Return the resources that are available to the job from a time on, indefinitely. Its
        nominations count as available; room of reservations that start later does not.
        O(reservations x nodes)."""
        others = [plan for plan in self._plans.values() if plan.job != job.key]
        starts = [plan.start.timestamp() for plan in others if plan.start is not None]
        whole = self._session.nodes.future_idle.copy()
        for task in job.with_status(entities.Status.PIPELINED):
            whole[:, self._session.nodes.rows[task.node]] += task.request
        room: resource_vectors.Table | None = None
        for moment in (time, *sorted({start for start in starts if start > time})):
            then = whole + self._times().ended_by(moment) - self._reserved(job.key, moment)
            room = then if room is None else np.minimum(room, then)
        assert room is not None
        return room

    def _reserved(self, besides: str, by: float = math.inf) -> resource_vectors.Table:
        """Return the resources reserved for other jobs that start by ``by``. The resources of a job
        that this session has started are in use, and would count twice."""
        total = np.zeros_like(self._session.nodes.idle)
        for plan in self._plans.values():
            is_there = plan.start is None or plan.start.timestamp() <= by
            if plan.job != besides and is_there and not self._has_begun(plan.job):
                for row, amounts in plan.rows.items():
                    total[:, row] += amounts
        return total

    def _busiest_first(self) -> list[int]:
        """Return nodes by idle resources, the least first, so that idle nodes stay free for other
        jobs."""
        table = self._session.nodes
        whole = np.maximum(table.allocatable, 1)
        idle = (np.maximum(table.future_idle, 0) / whole).sum(axis=0)
        order: list[int] = np.argsort(idle, kind="stable").tolist()
        return order

    def _demands(self, job: entities.Job) -> list[start_estimate.Demand]:
        """Return the tasks that the job lacks for its minimum, grouped by equal tasks."""
        if not job.tasks:
            return self._demands_of_pending_phase(job)
        lacking = job.min_available - job.ready
        wanting = job.with_status(entities.Status.PIPELINED, entities.Status.PENDING)
        tasks = [task for task in wanting if not task.is_gated and not task.is_best_effort]
        counts: dict[entities.TaskClass, list[entities.Task]] = {}
        for task in _needed_first(job, self._session.ordered_tasks(tasks))[: max(lacking, 0)]:
            counts.setdefault(task.task_class, []).append(task)
        return [
            start_estimate.Demand(
                same[0].request, len(same), self._session.finder.filter_result(same[0]).resolvable
            )
            for same in counts.values()
        ]

    def _demands_of_pending_phase(self, job: entities.Job) -> list[start_estimate.Demand]:
        """Return the demand of a job without pods: equal parts of ``minResources``."""
        if job.min_request is None or job.min_available < 1:
            return []
        each = -(-job.min_request // job.min_available)
        return [
            start_estimate.Demand(
                each, job.min_available, self._session.nodes.labelled.usable.copy()
            )
        ]

    # Filtering other tasks ----------------------------------------------------------------------

    def _conflicting_reservations(self, task: entities.Task) -> tuple[Any, ...]:
        """Return the reservations that the task would outlast, in their current version. Tasks with
        equal results have the same feasible nodes."""
        self._restore_reservations()
        if not self._plans:
            return ()
        # A started job no longer reserves room.
        due = tuple(key for key in self._plans if not self._has_begun(key))
        requested = (task.job, task.namespace, self._run_times.of(task), due)
        known = self._asked.get(requested)
        if known is None:
            binding = tuple(key for key in due if self._binds(self._plans[key], task))
            # Reasons name the owner only to its own namespace.
            version_key = (self._changes, due, binding, task.namespace) if binding else ()
            known = self._asked[requested] = version_key
        return known

    def _has_begun(self, key: str) -> bool:
        return self._session.job_ready(self._session.jobs[key])

    def _binds(self, plan: start_estimate.Reservation, task: entities.Task) -> bool:
        if task.job == plan.job or self._is_ordered_before(task.job, plan.job):
            return False
        run_time = self._run_times.of(task)
        return run_time is None or plan.start is None or self._session.now + run_time > plan.start

    def _is_ordered_before(self, key: str, owner: str) -> bool:
        """Return whether the job comes before the owner in the owner's queue."""
        left, right = self._session.jobs.get(key), self._session.jobs[owner]
        return (
            left is not None
            and left.queue == right.queue
            and self._session.compare_jobs(left, right) < 0
        )

    def _check(
        self, task: entities.Task, view: node_views.NodeView
    ) -> Sequence[extension_points.Check]:
        kept_off = self._conflicting_reservations(task)
        checks = []
        for key in kept_off[2] if kept_off else ():
            plan = self._plans[key]
            passed = self._leaves_enough(task, plan, view)
            owner = self._session.jobs[key].name_for(task.namespace)
            reason = f"reserved for {owner}, which {_start_forecast(plan)}"
            checks.append(
                extension_points.Check(reason, extension_points.Code.UNSCHEDULABLE, passed)
            )
        return checks

    def _leaves_enough(
        self, task: entities.Task, plan: start_estimate.Reservation, view: node_views.NodeView
    ) -> extension_points.Mask:
        """Return the nodes with room for the task in addition to the resources reserved at the
        start time."""
        reserved_amounts = self._reserved_at(plan, task.job)[:, view.rows]
        room = view.future_idle + self._ended_at(plan)[:, view.rows] - reserved_amounts
        is_free: extension_points.Mask = ~np.any(reserved_amounts > 0, axis=0)
        return resource_vectors.fits(task.request, room) | is_free

    def _reserved_at(
        self, plan: start_estimate.Reservation, besides: str
    ) -> resource_vectors.Table:
        """Return the resources reserved at the plan's start time."""
        total = np.zeros_like(self._session.nodes.idle)
        for other in self._plans.values():
            is_there = plan.start is None or (other.start is not None and other.start <= plan.start)
            if other.job != besides and is_there and not self._has_begun(other.job):
                for row, amounts in other.rows.items():
                    total[:, row] += amounts
        return total

    def _ended_at(self, plan: start_estimate.Reservation) -> resource_vectors.Table:
        if plan.start is None:
            return np.zeros_like(self._session.nodes.idle)
        if plan.job not in self._ended:
            self._ended[plan.job] = self._times().ended_by(plan.start.timestamp())
        return self._ended[plan.job]

    def _times(self) -> start_estimate.EndTimes:
        if self._timetable is None:
            self._timetable = start_estimate.EndTimes(self._session, self._run_times)
        return self._timetable

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        if self._timetable is not None:
            self._timetable.add(tasks)
            self._ended.clear()

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        if self._timetable is not None:
            self._timetable.remove(tasks)
            self._ended.clear()

    # Memory -----------------------------------------------------------------------------------

    def _restored(self, kept: ReservationRecord) -> start_estimate.Reservation | None:
        """Return the reservation if all its nodes and resources still exist."""
        rows, known = self._session.nodes.rows, self._session.resources
        if not kept.rows.keys() <= rows.keys():
            return None
        if any(known.known(name) is None for amounts in kept.rows.values() for name in amounts):
            return None
        return start_estimate.Reservation(
            kept.job,
            kept.start,
            {
                rows[name]: resource_vectors.vector(known, amounts)
                for name, amounts in kept.rows.items()
            },
        )


def _by_start(kept: ReservationRecord) -> tuple[bool, datetime]:
    return kept.start is None, kept.start or datetime.max.replace(tzinfo=UTC)


def _decode_state(text: str) -> Sequence[ReservationRecord]:
    try:
        return decoding.from_json(text, list[ReservationRecord]) if text else []
    except msgspec.DecodeError:
        return []


def _start_forecast(plan: start_estimate.Reservation) -> str:
    if plan.start is None:
        return "starts once its nodes are free"
    return f"starts by {plan.start.astimezone(UTC).isoformat(timespec='seconds')}"


def _needed_first(job: entities.Job, tasks: Sequence[entities.Task]) -> list[entities.Task]:
    """Return tasks that the minimums of their roles need before others."""
    left: dict[str, int] = {
        role: least - sum(t.role == role and t.status in entities.READY for t in job.tasks.values())
        for role, least in job.task_min_available.items()
    }
    first, rest = [], []
    for task in tasks:
        if left.get(task.role, 0) > 0:
            left[task.role] -= 1
            first.append(task)
        else:
            rest.append(task)
    return [*first, *rest]
