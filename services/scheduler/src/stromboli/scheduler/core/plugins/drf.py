"""The plugin ``drf``: dominant resource fairness between jobs (spec/plugins 4).

A job's share is its largest part of any resource of the cluster; the job with the smaller share
goes first. With ``enableHierarchy`` queues are compared along their paths as well, see ``hdrf``.

Ghodsi et al., Dominant Resource Fairness, NSDI 2011.
"""

from collections.abc import Sequence

from stromboli.scheduler.core.framework import configuration, model, points, session
from stromboli.scheduler.core.plugins import hdrf, shares

EQUAL = 1e-6
"""Shares that differ by no more are equal: a victim may be taken from an equal."""


class Plugin:
    """Job order and preemption by dominant shares; with a hierarchy also queues and reclaim."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._is_hierarchical = options.is_enabled("enableHierarchy")
        self._demands = shares.Demands()
        self._allocated: dict[str, shares.Row] = {}
        self._shares: dict[str, float] = {}

    def open(self, within: session.Session) -> None:
        """Sum up what jobs hold and register."""
        self._session = within
        self._total: shares.Row = within.total.tolist()
        for key, job in within.jobs.items():
            self._allocated[key] = job.allocated.tolist()
            self._shares[key] = shares.share(self._allocated[key], self._total)
        within.add_job_order(self._compare_jobs)
        within.add_preemptable(self._choose_preemptable)
        within.add_event_handler(self._take, self._give_back)
        if self._is_hierarchical:
            self._tree = hdrf.Tree(within, self._allocated)
            within.add_queue_order(self._tree.compare)
            within.add_reclaimable(self._choose_reclaimable)

    def close(self, within: session.Session) -> None:
        """Nothing stays."""

    def _compare_jobs(self, left: model.Job, right: model.Job) -> int:
        first, second = self._shares[left.key], self._shares[right.key]
        return (first > second) - (first < second)

    def _choose_preemptable(
        self, preemptor: model.Task, candidates: Sequence[model.Task]
    ) -> points.Victims:
        """Victims of jobs that, without what was asked of them so far, still hold as much."""
        if self._session.job_of(preemptor) is None:
            return points.Victims([])
        grown = list(self._allocated[preemptor.job])
        shares.add(grown, self._demands.of(preemptor))
        own = shares.share(grown, self._total)
        left: dict[str, shares.Row] = {}
        victims = []
        for task in candidates:
            if self._session.job_of(task) is None:
                continue
            row = left.setdefault(task.job, list(self._allocated[task.job]))
            shares.add(row, self._demands.of(task), -1)
            theirs = shares.share(row, self._total)
            if own < theirs or abs(own - theirs) <= EQUAL:
                victims.append(task)
        return points.Victims(victims)

    def _choose_reclaimable(
        self, reclaimer: model.Task, candidates: Sequence[model.Task]
    ) -> points.Victims:
        job = self._session.job_of(reclaimer)
        if job is None:
            return points.Victims([])
        known = [task for task in candidates if self._session.job_of(task) is not None]
        with self._tree.charged(job, self._demands.of(reclaimer)):
            return points.Victims([task for task in known if self._goes_before(job, task)])

    def _goes_before(self, reclaimer: model.Job, victim: model.Task) -> bool:
        """Whether the reclaimer's queue comes first even once the victim is gone."""
        job = self._session.jobs[victim.job]
        with self._tree.charged(job, self._demands.of(victim), -1):
            queues = self._session.queues
            return self._tree.compare(queues[reclaimer.queue], queues[job.queue]) < 0

    def _take(self, tasks: Sequence[model.Task]) -> None:
        self._charge(tasks[0], len(tasks))

    def _give_back(self, tasks: Sequence[model.Task]) -> None:
        self._charge(tasks[0], -len(tasks))

    def _charge(self, like: model.Task, times: int) -> None:
        job = self._session.job_of(like)
        if job is None:
            return
        demand = self._demands.of(like)
        allocated = self._allocated[job.key]
        shares.add(allocated, demand, times)
        self._shares[job.key] = shares.share(allocated, self._total)
        if self._is_hierarchical:
            self._tree.charge(job, demand, times)
