"""Whom the plugin ``capacity`` lets a queue reclaim from (spec/plugins 6.4).

A victim's queue keeps its guarantee, and gives only what it holds beyond what it deserves or what
it does not deserve at all. With a reclaim level the same holds for that many queues above it,
unless they are above the reclaimer too.
"""

from collections.abc import Mapping, Sequence

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import hierarchy, quotas, shares


class VictimChooser:
    """Chooses among candidates. What it has chosen counts as gone for those that follow."""

    def __init__(
        self,
        ssn: session.Session,
        queue_quotas: Mapping[str, quotas.QueueQuota],
        above: Mapping[str, Sequence[quotas.QueueQuota]],
        demands: shares.Demands,
        level: int,
    ) -> None:
        """``above``: queue -> the accounts above it, the parent first. ``level``: how many of
        them are looked at."""
        self._session = ssn
        self._accounts = queue_quotas
        self._demands = demands
        self._above: dict[str, list[quotas.QueueQuota]] = {
            name: [quota for quota in chain[:level] if quota.queue.name != hierarchy.ROOT]
            for name, chain in above.items()
        }

    def for_task(
        self, reclaimer: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        """Victims for one task, in the order in which victims go."""
        own = self._session.job_of(reclaimer)
        if own is None or own.queue not in self._accounts:
            return extension_points.Victims([], extension_points.REJECT)
        wanted = self._demands.of(reclaimer)
        columns = {column for column, _ in shares.quota_relevant(wanted)}
        held: dict[str, shares.Row] = {}
        victims = []
        for task in self._session.ordered_victims(candidates, reclaimer):
            job = self._session.job_of(task)
            if job is None or job.queue not in self._accounts:
                continue
            demand = self._demands.of(task)
            if columns.isdisjoint(column for column, _ in shares.quota_relevant(demand)):
                continue
            if self._is_sibling_without_claim(own.queue, job.queue, wanted, demand):
                continue
            upper = self._upper(job.queue, own.queue)
            row = _remaining(held, self._accounts[job.queue])
            if quotas.keeps_guarantee(self._accounts[job.queue], row, demand) and all(
                _can_give(quota, demand, _remaining(held, quota))
                for quota in (self._accounts[job.queue], *upper)
            ):
                for quota in (self._accounts[job.queue], *upper):
                    shares.add(_remaining(held, quota), demand, -1)
                victims.append(task)
        return extension_points.Victims(victims)

    def for_job(
        self, action: str, preemptor: entities.Job, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        """Victims for a whole gang, in the order given. Within a queue all may go."""
        if action != "gangreclaim":
            return extension_points.Victims(candidates)
        if preemptor.queue not in self._accounts:
            return extension_points.Victims([], extension_points.REJECT)
        held: dict[str, shares.Row] = {}
        victims = []
        for task in candidates:
            job = self._session.job_of(task)
            if job is None or job.queue not in self._accounts:
                continue
            demand = self._demands.of(task)
            quota = self._accounts[job.queue]
            row = _remaining(held, quota)
            is_spare = quotas.keeps_guarantee(quota, row, demand)
            if is_spare and _can_give(quota, demand, row):
                shares.add(row, demand, -1)
                victims.append(task)
        return extension_points.Victims(victims)

    def _upper(self, victim: str, reclaimer: str) -> list[quotas.QueueQuota]:
        """The accounts above the victim's queue that must have something to give, too."""
        chain, other = self._above[victim], self._above[reclaimer]
        return [
            quota
            for level, quota in enumerate(chain)
            if level >= len(other) or other[level] is not quota
        ]

    def _is_sibling_without_claim(
        self, reclaimer: str, victim: str, wanted: shares.Demand, demand: shares.Demand
    ) -> bool:
        """Neither queue deserves what it is about, and a queue close above is above both: they
        have no claim against each other."""
        return (
            any(quota in self._above[victim] for quota in self._above[reclaimer])
            and _is_undeserved(self._accounts[victim], demand)
            and _is_undeserved(self._accounts[reclaimer], wanted)
        )


def _remaining(held: dict[str, shares.Row], quota: quotas.QueueQuota) -> shares.Row:
    """What the queue holds without the victims chosen so far."""
    return held.setdefault(quota.queue.name, list(quota.allocated))


def _can_give(quota: quotas.QueueQuota, demand: shares.Demand, row: shares.Row) -> bool:
    return _is_undeserved(quota, demand) or _is_beyond(quota, demand, row)


def _is_undeserved(quota: quotas.QueueQuota, demand: shares.Demand) -> bool:
    """The queue deserves nothing of what the task asks for; here a place among pods counts."""
    return not any(quota.deserved[column] > 0 for column, _ in demand)


def _is_beyond(quota: quotas.QueueQuota, demand: shares.Demand, row: shares.Row) -> bool:
    """The queue holds more than it deserves of something that the task asks for and that its
    deserts speak of."""
    return any(
        row[column] > quota.deserved[column]
        for column, _ in shares.quota_relevant(demand)
        if quota.deserved[column] > 0 or column in quota.named
    )
