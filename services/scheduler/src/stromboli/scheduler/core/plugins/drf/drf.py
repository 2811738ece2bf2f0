"""The plugin ``drf``: dominant resource fairness between jobs.

A job's share is its largest fraction of any resource of the cluster; the job with the smaller share
is served first. With ``enableHierarchy`` queues are also compared along their paths (see
``hierarchical``).

Source: Ghodsi et al., Dominant Resource Fairness, NSDI 2011.
"""

from collections.abc import Iterator, Sequence

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.drf import hierarchical
from stromboli.scheduler.core.queue_quota import shares

EQUAL = 1e-6
"""Shares that differ by no more are equal; a job with an equal share may be a victim."""


class Plugin:
    """Orders jobs and chooses victims by dominant shares; with a hierarchy also queues and
    reclaim."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._is_hierarchical = options.is_enabled("enableHierarchy")
        self._demands = shares.Demands()
        self._allocated: dict[str, shares.Row] = {}
        self._shares: dict[str, float] = {}

    def open(self, ssn: session.Session) -> None:
        """Register. What a job holds is read on demand."""
        self._session = ssn
        self._total: shares.Row = ssn.total.tolist()
        ssn.add_job_order(key=self._share)
        ssn.add_preemptable(self._choose_preemptable)
        ssn.add_gauges(self._gauges)
        ssn.add_event_handler(self._on_allocate, self._on_deallocate)
        if self._is_hierarchical:
            self._tree = hierarchical.Tree(ssn)
            ssn.add_queue_order(self._tree.compare)
            ssn.add_reclaimable(self._choose_reclaimable)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _gauges(self) -> Iterator[extension_points.Gauge]:
        """Yield the shares of waiting jobs only: one series for every job would be unbounded."""
        for job in self._session.waiting_jobs():
            if not job.count(entities.Status.PENDING, entities.Status.PIPELINED):
                continue
            labels = (("job_id", job.name), ("job_ns", job.namespace))
            yield extension_points.Gauge("job_share", self._share(job), labels)

    def _share(self, job: entities.Job) -> float:
        share = self._shares.get(job.key)
        if share is None:
            share = self._shares[job.key] = shares.dominant_share(self._held(job), self._total)
        return share

    def _held(self, job: entities.Job) -> shares.Row:
        """Return what the job holds, nominations of this session included."""
        usage = self._allocated.get(job.key)
        if usage is None:
            usage = self._allocated[job.key] = self._session.changes.held(job).tolist()
        return usage

    def _choose_preemptable(
        self, preemptor: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        """Return victims of jobs whose share, without the victims so far, is at least the
        preemptor's."""
        own_job = self._session.job_of(preemptor)
        if own_job is None:
            return extension_points.Victims([])
        grown = list(self._held(own_job))
        shares.add(grown, self._demands.of(preemptor))
        own = shares.dominant_share(grown, self._total)
        left: dict[str, shares.Row] = {}
        victims = []
        for task in candidates:
            job = self._session.job_of(task)
            if job is None:
                continue
            row = left.setdefault(task.job, list(self._held(job)))
            shares.add(row, self._demands.of(task), -1)
            theirs = shares.dominant_share(row, self._total)
            if own < theirs or abs(own - theirs) <= EQUAL:
                victims.append(task)
        return extension_points.Victims(victims)

    def _choose_reclaimable(
        self, reclaimer: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        job = self._session.job_of(reclaimer)
        if job is None:
            return extension_points.Victims([])
        known = [task for task in candidates if self._session.job_of(task) is not None]
        with self._tree.charged(job, self._demands.of(reclaimer)):
            return extension_points.Victims(
                [task for task in known if self._is_served_before(job, task)]
            )

    def _is_served_before(self, reclaimer: entities.Job, victim: entities.Task) -> bool:
        """Return whether the reclaimer's queue comes first even after the victim's eviction."""
        job = self._session.jobs[victim.job]
        with self._tree.charged(job, self._demands.of(victim), -1):
            queues = self._session.queues
            return self._tree.compare(queues[reclaimer.queue], queues[job.queue]) < 0

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        self._add_usage(tasks[0], len(tasks))

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        self._add_usage(tasks[0], -len(tasks))

    def _add_usage(self, like: entities.Task, times: int) -> None:
        job = self._session.job_of(like)
        if job is None:
            return
        demand = self._demands.of(like)
        allocated = self._held(job)
        shares.add(allocated, demand, times)
        self._shares[job.key] = shares.dominant_share(allocated, self._total)
        if self._is_hierarchical:
            self._tree.charge(job, demand, times)
