"""Victims that the plugin ``capacity`` allows for reclaim.

A victim's queue keeps its guarantee. It loses only resources that it holds above its deserved
amount, or that it does not deserve at all. With a reclaim level the same applies to that many of
its ancestors, except those that it shares with the reclaimer's queue.

In a tree, the order of two queues is the order of their branches: the two queues below their last
common ancestor. A victim is not allowed if its queue would be served before the reclaimer's queue
after the eviction: it would get the resources again, and evictions would never end. Volcano allows
such victims.
"""

from collections.abc import Mapping, Sequence

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import hierarchy, quotas, shares


class VictimChooser:
    """Chooses victims among candidates. Chosen victims count as evicted for the next candidates."""

    def __init__(
        self,
        ssn: session.Session,
        queue_quotas: Mapping[str, quotas.QueueQuota],
        above: Mapping[str, Sequence[quotas.QueueQuota]],
        demands: shares.Demands,
        level: int,
    ) -> None:
        """``above``: queue -> the quotas of its ancestors, the parent first; empty without a tree.
        ``level``: how many of them are checked."""
        self._session = ssn
        self._accounts = queue_quotas
        self._demands = demands
        self._chains = above
        self._above: dict[str, list[quotas.QueueQuota]] = {
            name: [quota for quota in chain[:level] if quota.queue.name != hierarchy.ROOT]
            for name, chain in above.items()
        }

    def for_task(
        self, reclaimer: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        """Return victims for one task, in the order of eviction."""
        own = self._session.job_of(reclaimer)
        if own is None or own.queue not in self._accounts:
            return extension_points.Victims([], extension_points.REJECT)
        wanted = self._demands.of(reclaimer)
        columns = {column for column, _ in shares.quota_relevant(wanted)}
        remaining: dict[str, shares.Row] = {}
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
            if self._would_be_served_first(job.queue, own.queue, demand, remaining):
                continue
            upper = self._upper(job.queue, own.queue)
            row = _remaining(remaining, self._accounts[job.queue])
            if quotas.keeps_guarantee(self._accounts[job.queue], row, demand) and all(
                _can_give(quota, demand, _remaining(remaining, quota))
                for quota in (self._accounts[job.queue], *upper)
            ):
                self._take(job.queue, demand, remaining)
                victims.append(task)
        return extension_points.Victims(victims)

    def for_job(
        self, action: str, preemptor: entities.Job, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        """Return victims for a gang, in the given order. Inside the queue all candidates are
        allowed."""
        if action != "gangreclaim":
            return extension_points.Victims(candidates)
        if preemptor.queue not in self._accounts:
            return extension_points.Victims([], extension_points.REJECT)
        remaining: dict[str, shares.Row] = {}
        victims = []
        for task in candidates:
            job = self._session.job_of(task)
            if job is None or job.queue not in self._accounts:
                continue
            demand = self._demands.of(task)
            quota = self._accounts[job.queue]
            row = _remaining(remaining, quota)
            is_spare = quotas.keeps_guarantee(quota, row, demand)
            if (
                is_spare
                and _can_give(quota, demand, row)
                and not self._would_be_served_first(job.queue, preemptor.queue, demand, remaining)
            ):
                self._take(job.queue, demand, remaining)
                victims.append(task)
        return extension_points.Victims(victims)

    def _upper(self, victim: str, reclaimer: str) -> list[quotas.QueueQuota]:
        """Return the ancestors of the victim's queue that must also hold more than they deserve."""
        chain, other = self._above[victim], self._above[reclaimer]
        return [
            quota
            for level, quota in enumerate(chain)
            if level >= len(other) or other[level] is not quota
        ]

    def _take(self, queue: str, demand: shares.Demand, remaining: dict[str, shares.Row]) -> None:
        """Subtract a victim from its queue and the ancestors."""
        for quota in (self._accounts[queue], *self._chains[queue]):
            shares.add(_remaining(remaining, quota), demand, -1)

    def _would_be_served_first(
        self,
        victim: str,
        reclaimer: str,
        demand: shares.Demand,
        remaining: dict[str, shares.Row],
    ) -> bool:
        """Return whether the victim's queue, in another branch, would be served before the
        reclaimer's once the victim is gone.

        Branches that deserve nothing have no order, and a queue directly below the common ancestor
        is no branch: what it may give up is decided by what it holds.
        """
        queue, own_queue = self._session.queues[victim], self._session.queues[reclaimer]
        if queue.priority != own_queue.priority:
            return False
        chain, other = self._chains[victim], self._chains[reclaimer]
        common = {quota.queue.name for quota in chain} & {quota.queue.name for quota in other}
        branch = [quota for quota in chain if quota.queue.name not in common]
        own = [quota for quota in other if quota.queue.name not in common]
        if not branch or not own:
            return False
        theirs, ours = branch[-1], own[-1]
        if not (any(theirs.deserved) and any(ours.deserved)):
            return False
        row = list(_remaining(remaining, theirs))
        shares.add(row, demand, -1)
        share = shares.dominant_share(row, theirs.deserved)
        is_older = (queue.created, queue.uid) < (own_queue.created, own_queue.uid)
        return share < ours.share or (share == ours.share and is_older)

    def _is_sibling_without_claim(
        self, reclaimer: str, victim: str, wanted: shares.Demand, demand: shares.Demand
    ) -> bool:
        """Return whether neither queue deserves the resources and a common ancestor is within the
        reclaim level, so that neither may reclaim from the other."""
        return (
            any(quota in self._above[victim] for quota in self._above[reclaimer])
            and _is_undeserved(self._accounts[victim], demand)
            and _is_undeserved(self._accounts[reclaimer], wanted)
        )


def _remaining(remaining: dict[str, shares.Row], quota: quotas.QueueQuota) -> shares.Row:
    """Return what the queue holds without the victims chosen so far."""
    return remaining.setdefault(quota.queue.name, list(quota.allocated))


def _can_give(quota: quotas.QueueQuota, demand: shares.Demand, row: shares.Row) -> bool:
    return _is_undeserved(quota, demand) or _is_beyond(quota, demand, row)


def _is_undeserved(quota: quotas.QueueQuota, demand: shares.Demand) -> bool:
    """Return whether the queue deserves nothing of what the task requests; ``pods`` counts here."""
    return not any(quota.deserved[column] > 0 for column, _ in demand)


def _is_beyond(quota: quotas.QueueQuota, demand: shares.Demand, row: shares.Row) -> bool:
    """Return whether the queue holds more than its deserved amount of a resource that the task
    requests and that the queue's deserved amounts name."""
    return any(
        row[column] > quota.deserved[column]
        for column, _ in shares.quota_relevant(demand)
        if quota.deserved[column] > 0 or column in quota.named
    )
