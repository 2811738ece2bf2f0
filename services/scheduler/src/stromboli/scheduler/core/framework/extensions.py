"""Combines the answers of all plugins at an extension point (``interfaces.Combine``)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points


class Extensions(interfaces.Registry):
    """The combined answers of all plugins, by point."""

    def __init__(self, tiers: Sequence[Sequence[configuration.PluginOptions]]) -> None:
        super().__init__(tiers)
        self._room_votes: set[extension_points.JobVote] = set()

    def add_room_vote(self, vote: extension_points.JobVote, *, by_request: bool) -> None:
        """Like ``add_job_enqueueable``, for a vote by the room that other admitted jobs leave. It
        is not called for a job for which an AdvanceReservation keeps nodes."""
        self._room_votes.add(vote)
        self.add_job_enqueueable(vote, by_request=by_request)

    def victim_tasks(self, tasks: Sequence[entities.Task]) -> list[entities.Task]:
        """Tasks to move elsewhere: the union of the first tier that chooses any."""
        candidates = self.evictable(None, tasks)
        for tier in self.functions(interfaces.VICTIM_TASKS):
            victims = {task.uid: task for choose in tier for task in choose(candidates)}
            if victims:
                return list(victims.values())
        return []

    def preemptable(
        self, preemptor: entities.Task, candidates: Sequence[entities.Task]
    ) -> list[entities.Task]:
        """Victims on which all plugins of the deciding tier agree."""
        tiers = self.functions(interfaces.PREEMPTABLE)
        return _agreed(tiers, candidates, preemptor)

    def reclaimable(
        self, reclaimer: entities.Task, candidates: Sequence[entities.Task]
    ) -> list[entities.Task]:
        """Victims on which all plugins of the deciding tier agree, within the reclaim limits of all
        tiers.
        """
        tiers = self.functions(interfaces.RECLAIMABLE)
        return self._within_reclaim_limits(_agreed(tiers, candidates, reclaimer))

    def may_preempt(self, evictor: extension_points.Evictor, other: entities.Job) -> bool:
        """Whether the other job may have victims for a preemptor in its queue: in at least one
        tier, no plugin excludes the job."""
        return self._may_have_victims(interfaces.PREEMPTABLE, evictor, other)

    def may_reclaim(self, evictor: extension_points.Evictor, other: entities.Job) -> bool:
        """Whether the other job may have victims for a reclaimer of another queue."""
        return self._may_have_victims(interfaces.RECLAIMABLE, evictor, other)

    def _may_have_victims(
        self, point: interfaces.Point, evictor: extension_points.Evictor, other: entities.Job
    ) -> bool:
        tests = self._victim_jobs
        return any(
            all(choose not in tests or tests[choose](evictor, other) for choose in tier)
            for tier in self.functions(point)
            if tier
        )

    def _within_reclaim_limits(self, victims: list[entities.Task]) -> list[entities.Task]:
        for leave in self.flat(interfaces.RECLAIM_LIMIT):
            victims = list(leave(victims))
        return victims

    def evictable(
        self, job: entities.Job | None, candidates: Sequence[entities.Task]
    ) -> Sequence[entities.Task]:
        """The candidates that no plugin protects from eviction for this job."""
        tests = list(self.flat(interfaces.EVICTABLE))
        if not tests:
            return candidates
        return [task for task in candidates if all(test(job, task) for test in tests)]

    def eviction_notice(self, task: entities.Task) -> timedelta:
        """How long before its termination an evicted task is notified: the longest answer."""
        notices = (tell(task) for tell in self.flat(interfaces.EVICTION_NOTICE))
        return max(notices, default=timedelta())

    def is_open(
        self, start: datetime, run_time: timedelta | None, rows: node_views.Rows, size: int
    ) -> extension_points.Mask:
        """The nodes, of ``size`` in total, that are available to a task from start to end."""
        mask = np.ones(size, np.bool_)
        for test in self.flat(interfaces.AVAILABILITY):
            mask &= test(start, run_time, rows)
        return mask

    def unified_evictable(
        self, action: str, job: entities.Job, candidates: Sequence[entities.Task]
    ) -> list[entities.Task]:
        """Victims for a gang on which all plugins of the deciding tier agree; for reclaim also
        within the reclaim limits.
        """
        left = self.evictable(job, candidates)
        victims = _agreed(self.functions(interfaces.UNIFIED_EVICTABLE), left, action, job)
        return self._within_reclaim_limits(victims) if action == "gangreclaim" else victims

    def overused(self, queue: entities.Queue) -> bool:
        """Whether any plugin reports that the queue has reached its share."""
        return any(test(queue) for test in self.flat(interfaces.OVERUSED))

    def preemptive(self, queue: entities.Queue, tasks: Sequence[entities.Task]) -> bool:
        """Whether all plugins let the queue reclaim for these tasks."""
        return all(test(queue, tasks) for test in self.flat(interfaces.PREEMPTIVE))

    def allocatable(self, queue: entities.Queue, task: entities.Task) -> bool:
        """Whether all plugins allow one more such task in the queue."""
        return self.count_allocatable(queue, task, 1) > 0

    def count_allocatable(self, queue: entities.Queue, task: entities.Task, most: int) -> int:
        """How many further tasks like this one, at most ``most``, all plugins allow in the
        queue."""
        for count in self.flat(interfaces.ALLOCATABLE):
            most = min(most, count(queue, task, most))
            if most <= 0:
                return 0
        return most

    def sort_keys(self, point: interfaces.Point) -> list[extension_points.Key[Any]] | None:
        """Sort keys equivalent to the plugins' orders, the most significant one first; None if an
        order has no key.
        """
        orders = list(self.flat(point))
        keys = [self._keys[compare] for compare in orders if compare in self._keys]
        return keys if len(keys) == len(orders) else None

    def siblings(self) -> extension_points.Siblings | None:
        """The groups of queues, if one plugin orders queues and forms groups; else None."""
        orders = list(self.flat(interfaces.QUEUE_ORDER))
        return self._siblings.get(orders[0]) if len(orders) == 1 else None

    def missing_count(self, job: entities.Job, task: entities.Task) -> int:
        """The least number of such tasks to place before the job can be ready; at least 1."""
        least = 1
        for missing in self.flat(interfaces.JOB_READY):
            least = max(least, missing(job, task))
        return least

    def job_ready(self, job: entities.Job) -> bool:
        """Whether every plugin allows the job to be bound. Without plugins every job is ready."""
        return not any(missing(job, None) for missing in self.flat(interfaces.JOB_READY))

    def subjob_ready(self, job: entities.Job, subjob: entities.SubJob) -> bool:
        """Whether all plugins allow the subgroup to be bound. A job without subgroup policies is
        checked as a whole.
        """
        if not job.sub_group_minimums:
            return self.job_ready(job)
        return all(test(job, subjob) for test in self.flat(interfaces.SUBJOB_READY))

    def job_pipelined(self, job: entities.Job) -> bool:
        """Whether the plugins vote to keep the job's nominations."""
        return _voted(self.functions(interfaces.JOB_PIPELINED), job)

    def subjob_pipelined(self, job: entities.Job, subjob: entities.SubJob) -> bool:
        """Whether the plugins vote to keep the subgroup's nominations. A job without subgroup
        policies is checked as a whole.
        """
        if not job.sub_group_minimums:
            return self.job_pipelined(job)
        return _voted(self.functions(interfaces.SUBJOB_PIPELINED), job, subjob)

    def domain_scores(
        self, tasks: Sequence[entities.Task], requested: npt.NDArray[np.intp]
    ) -> extension_points.Scores:
        """The sum of the scores of topology domains."""
        total: extension_points.Scores = np.zeros(len(requested), np.int64)
        for score in self.flat(interfaces.DOMAIN_ORDER):
            total += score(tasks, requested)
        return total

    def job_enqueueable(self, job: entities.Job, *, has_own_nodes: bool = False) -> bool:
        """Whether the plugins vote that the job becomes Inqueue. ``has_own_nodes``: an
        AdvanceReservation keeps nodes for the job, so votes on room do not count."""
        votes = self.functions(interfaces.JOB_ENQUEUEABLE)
        if has_own_nodes:
            votes = [[vote for vote in tier if vote not in self._room_votes] for tier in votes]
        return _voted(votes, job)

    def job_enqueued(self, job: entities.Job) -> None:
        """Notify all plugins that the job became Inqueue."""
        for note in self.flat(interfaces.JOB_ENQUEUED):
            note(job)

    def job_starving(self, job: entities.Job) -> bool:
        """Whether all plugins of the first tier with this point let the job evict others; False
        without such a plugin.
        """
        for tier in self.functions(interfaces.JOB_STARVING):
            if tier:
                return all(test(job) for test in tier)
        return False

    def job_valid(self, job: entities.Job) -> extension_points.JobInvalid | None:
        """The first reason not to try the job, or None."""
        answers = (test(job) for test in self.flat(interfaces.JOB_VALID))
        return next((answer for answer in answers if answer is not None), None)

    def gauges(self) -> tuple[extension_points.Gauge, ...]:
        """The gauges of all plugins."""
        return tuple(gauge for tell in self.flat(interfaces.GAUGES) for gauge in tell())

    def queue_usage(self, queue: entities.Queue) -> extension_points.QueueShare | None:
        """The queue's usage and limits; None if no plugin knows them."""
        answers = (tell(queue) for tell in self.flat(interfaces.QUEUE_SHARE))
        return next((answer for answer in answers if answer is not None), None)


def _voted(tiers: interfaces.Tiers, *subject: Any) -> bool:
    """The answer of the first tier with a PERMIT or a REJECT (``interfaces.Combine.VOTE``)."""
    for tier in tiers:
        has_permit = False
        for vote in tier:
            answer = vote(*subject)
            if answer < 0:
                return False
            has_permit = has_permit or answer > 0
        if has_permit:
            return True
    return True


def _agreed(
    tiers: interfaces.Tiers, candidates: Sequence[entities.Task], *subject: Any
) -> list[entities.Task]:
    """The victims of the first tier whose plugins have a common choice.

    A plugin that chooses no task, or an empty intersection, ends its tier. Volcano calls the rest
    of the tier as if no plugin had answered before, and so evicts tasks that a plugin protects.
    """
    for tier in tiers:
        agreed: list[entities.Task] | None = None
        for choose in tier:
            chosen: extension_points.Victims = choose(*subject, candidates)
            if chosen.vote == extension_points.ABSTAIN:
                continue
            kept = None if agreed is None else {task.uid for task in agreed}
            agreed = [task for task in chosen.tasks if kept is None or task.uid in kept]
            if not agreed:
                break
        if agreed:
            return agreed
    return []
