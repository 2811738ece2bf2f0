"""The rule of AdvanceReservations: which nodes a task may use, and until when.

1. A job *uses* a reservation if the job names it (annotation ``stromboli.sh/reservation``) and may
   use it: its recorded submitter, namespace or queue is listed. Tasks of such a job are placed on
   the reserved nodes, within the period, and nowhere else. The job waits before the period and, if
   it has not started, after it.
2. A task that does not use a reservation is placed on a reserved node only if the task ends before
   the period begins, or once the period is over. The end of a task is now plus its time limit
   (``framework.run_times``). A task without a time limit is kept off the nodes from ``leadTime``
   before the start.
3. At the start, tasks of other jobs that still run on the nodes are left running, or evicted with
   ``atStart: Evict`` (the default for maintenance). At the end, tasks that use the reservation are
   left running, or evicted with ``atEnd: Evict``.

The check is built into the session, in addition to the checks of plugins, so that it holds for
every configuration and every action. Its results change at the starts and ends of periods
(``changes``). As a start comes closer, some tasks no longer end before it: that only removes room,
and triggers no session.

Cost: O(reservations that are not over) for each distinct time limit, and O(nodes) for each
reservation whose period the task would reach.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeAlias

import numpy as np

from stromboli.scheduler.core.advance_reservations import reserved_nodes
from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import keys
from stromboli.shared.jobspec import reservations
from stromboli.shared.jobspec.validation.queueing import permissions

EVICTED_UNTIL = timedelta(days=1)
"""Time after the end of a reservation within which its pods are evicted: if the scheduler was down
for a day, it leaves them running. Without a limit each session would search for them until the
object is deleted."""
RunTime: TypeAlias = "timedelta | None"
"""How long a task runs at most; None if unknown."""


class Use(NamedTuple):
    """The relation of a job to reservations. ``name``: the reservation that the job names.
    ``waits``: why the job must wait for the reservation. Both are empty for most jobs."""

    name: str = ""
    waits: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the job uses a reservation whose period has begun and is not over."""
        return bool(self.name) and not self.waits


class ReservationRule:
    """The rule in one session. ``now``: its time. ``run_time``: the time limit of a task."""

    def __init__(
        self,
        advance_reservations: reserved_nodes.Reservations,
        now: datetime,
        size: int,
        run_time: Callable[[entities.Task], RunTime],
    ) -> None:
        self._found = advance_reservations
        self._now = now
        self._size = size
        self._run_time = run_time
        self._ahead = [each for each in advance_reservations.valid.values() if each.end > now]
        self._uses: dict[str, Use] = {}
        self._conflicts: dict[RunTime, tuple[str, ...]] = {}
        self._checks: dict[tuple[Use, RunTime], tuple[extension_points.Check, ...]] = {}

    @property
    def complaints(self) -> list[str]:
        """The reservations that reserve nothing, because they are invalid."""
        return [
            f"AdvanceReservation {name}: {why}; it reserves no nodes"
            for name, why in sorted(self._found.invalid.items())
        ]

    @property
    def is_empty(self) -> bool:
        """Whether all reservations are over. The rule then restricts only jobs that name one."""
        return not self._ahead

    def changes(self) -> Iterator[datetime]:
        """The future times at which the results of the rule change."""
        for each in self._ahead:
            if each.start > self._now:
                yield each.start
            yield each.end

    # Jobs -------------------------------------------------------------------------------------

    def use(self, job: entities.Job | None) -> Use:
        """The relation of the job to reservations."""
        if job is None:
            return Use()
        known = self._uses.get(job.key)
        if known is None:
            known = self._uses[job.key] = self._read(job)
        return known

    def waits(self, job: entities.Job) -> str:
        """Why the job must wait for the reservation that it names; empty if it need not."""
        return self.use(job).waits

    def _read(self, job: entities.Job) -> Use:
        name = job.pod_group.metadata.annotation(keys.RESERVATION)
        if not name:
            return Use()
        named = f"AdvanceReservation {name}"
        if name in self._found.invalid:
            return Use(name, f"{named} is invalid: {self._found.invalid[name]}")
        reserved = self._found.valid.get(name)
        if reserved is None:
            return Use(name, f"{named} does not exist")
        submitter = permissions.recorded(job.pod_group.metadata)
        if not reservations.may_use(
            reserved.spec,
            user=submitter.name,
            groups=submitter.groups,
            namespace=job.namespace,
            queue=job.queue,
        ):
            user = (
                f"user {submitter.name}" if submitter.name else "a submitter that is not recorded"
            )
            where = f"namespace {job.namespace} and queue {job.queue}"
            return Use(name, f"{named} is not open to {user} in {where}")
        if self._now < reserved.start:
            return Use(name, f"{named} starts at {reserved_nodes.time_text(reserved.start)}")
        if reserved.end <= self._now:
            return Use(name, f"{named} ended at {reserved_nodes.time_text(reserved.end)}")
        return Use(name)

    # Nodes ------------------------------------------------------------------------------------

    def class_key(self, task: entities.Task, job: entities.Job | None) -> object:
        """The key of a task for this rule: tasks with equal keys may use the same nodes."""
        use = self.use(job)
        if not self._ahead:
            return use if use.name else None
        return use, self._conflicting(self._run_time(task))

    def time_limit(self, task: entities.Task) -> RunTime:
        """How long the task runs at most; None if unknown, or if no reservation is left for which
        that matters."""
        return self._run_time(task) if self._ahead else None

    def checks(
        self, task: entities.Task, job: entities.Job | None
    ) -> Sequence[extension_points.Check]:
        """The checks for a task, for all nodes. A node that fails one passes it only as time
        passes, not because other gangs end."""
        use = self.use(job)
        if not (self._ahead or use.name):
            return ()
        run_time = self._run_time(task)
        known = self._checks.get((use, run_time))
        if known is None:
            known = self._checks[use, run_time] = tuple(self._made(use, run_time))
        return known

    def available(
        self, job: entities.Job, start: datetime, run_time: RunTime
    ) -> extension_points.Mask:
        """The nodes that a job with this time limit may use if it starts at ``start``, in the
        future."""
        mask: extension_points.Mask = np.ones(self._size, np.bool_)
        name = self.use(job).name
        for each in self._ahead:
            if each.name != name and _conflicts(each, start, run_time):
                mask &= ~each.mask
        if name:
            own = self._found.valid.get(name)
            is_open = own is not None and own.start <= start < own.end
            mask &= own.mask if own is not None and is_open else False
        return mask

    def _conflicting(self, run_time: RunTime) -> tuple[str, ...]:
        """The reservations whose period a task would reach if it started now."""
        known = self._conflicts.get(run_time)
        if known is None:
            known = self._conflicts[run_time] = tuple(
                each.name for each in self._ahead if _conflicts(each, self._now, run_time)
            )
        return known

    def _made(self, use: Use, run_time: RunTime) -> Iterator[extension_points.Check]:
        code = extension_points.Code.UNRESOLVABLE
        if use.waits:
            nowhere = np.zeros(self._size, np.bool_)
            yield extension_points.Check(
                f"node(s) wait: {use.waits}", code, nowhere, is_lasting=True
            )
            return
        if use.name:
            own = self._found.valid[use.name]
            reason = f"node(s) are not reserved by {use.name}"
            yield extension_points.Check(reason, code, own.mask, is_lasting=True)
        limit = "has no time limit" if run_time is None else f"may run for {run_time}"
        for name in self._conflicting(run_time):
            if name != use.name:
                reserved = self._found.valid[name]
                reason = f"node(s) are {reserved.text}, and the pod {limit}"
                yield extension_points.Check(reason, code, ~reserved.mask, is_lasting=True)

    # Evictions --------------------------------------------------------------------------------

    def closed_to_others(self) -> list[reserved_nodes.ReservedNodes]:
        """The reservations that evict tasks of other jobs now."""
        return [
            each
            for each in self._ahead
            if each.start <= self._now and reservations.evicts_at_start(each.spec)
        ]

    def closed_to_users(self) -> list[reserved_nodes.ReservedNodes]:
        """The reservations that evict their own tasks now."""
        return [
            each
            for each in self._found.valid.values()
            if each.end <= self._now < durations.after(each.end, EVICTED_UNTIL)
            and reservations.evicts_at_end(each.spec)
        ]


def _conflicts(reserved: reserved_nodes.ReservedNodes, start: datetime, run_time: RunTime) -> bool:
    """Whether a task that starts at ``start`` runs into the period. A task without a time limit
    does if it starts within the lead time, or later."""
    if reserved.end <= start:
        return False
    if reserved.start <= start:
        return True
    if run_time is None:
        return reserved.start - start <= reserved.lead_time
    return reserved.start < durations.after(start, run_time)


NO_RESERVATIONS = ReservationRule(
    reserved_nodes.Reservations({}, {}), datetime(1970, 1, 1, tzinfo=UTC), 0, lambda task: None
)
"""The rule of a session that is still being opened."""
