"""Quotas and usage of queues, for the plugins ``proportion`` and ``capacity``.

A queue's quota is built from the sums of its jobs, and updated with each placement and rollback in
the session. Rows are changed in place, and shares are updated with them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, queue_usage, requirements, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import shares


class QueueQuota(msgspec.Struct, eq=False):
    """A queue's limits and usage, one amount per resource.

    ``real_capability``: the most that it can reach given the guarantees of other queues.
    ``inqueue``: resources that enqueued jobs still lack for their minimum. ``elastic``: resources
    that its jobs hold above their minimum. ``deserved`` may have fractions of a unit. ``named``:
    the columns, except cpu and memory, for which the queue states a deserved amount, zero included.
    """

    queue: entities.Queue
    guarantee: shares.Row
    capability: shares.Row
    real_capability: shares.Row
    deserved: Sequence[float]
    named: frozenset[int]
    allocated: shares.Row
    request: shares.Row
    inqueue: shares.Row
    elastic: shares.Row
    share: float = 0.0

    def charge(self, demand: shares.Demand, times: int = 1) -> None:
        """Charge the request of a placed task; ``times`` -1 gives it back."""
        shares.add(self.allocated, demand, times)

    def needed_with(self, request: Sequence[int]) -> shares.Row:
        """Return the usage with the minimum resources of one more job, without elastic resources,
        which the queue can give up."""
        total = shares.sum_of(self.allocated, self.inqueue)
        kept = [amount - more for amount, more in zip(total, self.elastic, strict=True)]
        return shares.sum_of(kept, request)


def open_quota(ssn: session.Session, queue: entities.Queue, unguaranteed: shares.Row) -> QueueQuota:
    """Return the quota of a queue with the usage of its jobs. O(resources).

    ``unguaranteed``: the part of the cluster that is guaranteed to no queue. ``deserved`` is what
    the queue's spec states.
    """
    limits = limits_of(ssn, queue)
    totals = ssn.model.queue_usage.queues.get(queue.name)
    if totals is None:
        totals = queue_usage.UsageTotals(len(limits.guarantee))
    allocated, request, elastic, inqueue = totals.rows
    return QueueQuota(
        queue=queue,
        guarantee=limits.guarantee,
        capability=limits.capability,
        real_capability=limits.reachable(unguaranteed),
        deserved=limits.deserved,
        named=limits.named,
        allocated=list(allocated),
        request=request,
        inqueue=inqueue,
        elastic=elastic,
    )


class Limits(msgspec.Struct, eq=False):
    """The amounts of a queue's spec by column. Sessions share the rows and must not change them in
    place."""

    guarantee: shares.Row
    capability: shares.Row
    deserved: shares.Row
    named: frozenset[int]
    _unguaranteed: shares.Row = []
    _reachable: shares.Row = []
    _request: shares.Row = []
    _ceiling: shares.Row = []

    def reachable(self, unguaranteed: shares.Row) -> shares.Row:
        """The most that the queue can reach, given the resources that are guaranteed to no
        queue."""
        if self._unguaranteed != unguaranteed:
            most = shares.sum_of(unguaranteed, self.guarantee)
            self._reachable = shares.minimum(most, self.capability)
            self._unguaranteed, self._request = unguaranteed, []
        return self._reachable

    def ceiling(self, request: shares.Row, unguaranteed: shares.Row) -> shares.Row:
        """The request, limited to what the queue can reach and at least the guarantee. Cached as
        long as the arguments are the same lists."""
        reachable = self.reachable(unguaranteed)
        if self._request is not request:
            self._ceiling = [
                max(min(limit, want), least)
                for limit, want, least in zip(reachable, request, self.guarantee, strict=True)
            ]
            self._request = request
        return self._ceiling


def limits_of(ssn: session.Session, queue: entities.Queue) -> Limits:
    """Return the queue's limits, which are kept across sessions until the model's epoch
    changes."""
    epoch, limits = queue.limits
    if epoch != ssn.model.epoch:
        limits = Limits(
            shares.row_of(ssn, queue.guarantee),
            capability_of(ssn, queue),
            shares.row_of(ssn, queue.deserved),
            _named(ssn, queue),
        )
        queue.limits = (ssn.model.epoch, limits)
    queue_limits: Limits = limits
    return queue_limits


def queue_status(quota: QueueQuota | None) -> extension_points.QueueShare | None:
    """Return the queue's share as explanations report it; None for an unknown queue."""
    if quota is None:
        return None
    return extension_points.QueueShare(
        quota.allocated, quota.inqueue, quota.deserved, quota.real_capability
    )


def beyond_guarantees(
    ssn: session.Session,
    books: Mapping[str, QueueQuota],
    demands: shares.Demands,
    victims: Sequence[entities.Task],
) -> list[entities.Task]:
    """Return the victims, in their order, whose eviction leaves their queues the guarantee.
    O(victims)."""
    remaining: dict[str, shares.Row] = {}
    going = []
    for task in victims:
        job = ssn.job_of(task)
        quota = books.get(job.queue) if job is not None else None
        if quota is None:
            going.append(task)
            continue
        row = remaining.setdefault(quota.queue.name, list(quota.allocated))
        demand = demands.of(task)
        if keeps_guarantee(quota, row, demand):
            shares.add(row, demand, -1)
            going.append(task)
    return going


def keeps_guarantee(quota: QueueQuota, usage: Sequence[float], demand: shares.Demand) -> bool:
    """Return whether the queue keeps its guarantee without this victim. Resources that the victim
    does not request do not count."""
    least = quota.guarantee
    return all(
        usage[column] - amount >= least[column] for column, amount in demand if least[column]
    )


def quota_gauges(
    ssn: session.Session, books: Mapping[str, QueueQuota]
) -> Iterator[extension_points.Gauge]:
    """Yield usage, deserved amounts and limits of queues, with Volcano's metric names.

    A queue without jobs uses zero. An absent limit has no gauge.
    """
    for name in sorted(ssn.queues):
        queue, quota = ssn.queues[name], books.get(name)
        labels = (("queue_name", name),)
        yield extension_points.Gauge("queue_weight", queue.weight, labels)
        yield extension_points.Gauge("queue_overused", ssn.overused(queue), labels)
        yield extension_points.Gauge("queue_share", quota.share if quota else 0.0, labels)
        nothing = [0] * len(ssn.resources.names)
        rows: dict[str, Sequence[float]] = {
            "allocated": quota.allocated if quota else nothing,
            "request": quota.request if quota else nothing,
            "inqueue": quota.inqueue if quota else nothing,
            "deserved": quota.deserved if quota else nothing,
        }
        if quota is not None:
            rows |= {"capacity": quota.capability, "real_capacity": quota.real_capability}
        for what, row in rows.items():
            yield from _amounts(ssn, f"queue_{what}", labels, row)


_SUFFIXES = {"cpu": "milli_cpu", "memory": "memory_bytes"}


def _amounts(
    ssn: session.Session,
    name: str,
    labels: tuple[tuple[str, str], ...],
    row: Sequence[float],
) -> Iterator[extension_points.Gauge]:
    for resource, amount in zip(ssn.resources.names, row, strict=True):
        if amount >= resource_vectors.INFINITE:
            continue
        if resource in _SUFFIXES:
            yield extension_points.Gauge(f"{name}_{_SUFFIXES[resource]}", amount, labels)
        else:
            more = (*labels, ("resource", resource))
            yield extension_points.Gauge(f"{name}_scalar_resources", amount, more)


def _named(ssn: session.Session, queue: entities.Queue) -> frozenset[int]:
    names = queue.deserved.keys() | queue.guarantee.keys()
    columns = [ssn.resources.known(name) for name in sorted(names - {"cpu", "memory"})]
    return frozenset(column for column in columns if column is not None)


def capability_of(ssn: session.Session, queue: entities.Queue) -> shares.Row:
    """Return the queue's capability. An absent name sets no limit, nor does cpu or memory of
    zero."""
    row = shares.row_of(ssn, queue.capability, resource_vectors.INFINITE)
    for column in (requirements.CPU, requirements.MEMORY):
        if row[column] <= 0:
            row[column] = resource_vectors.INFINITE
    return row


def unguaranteed(ssn: session.Session) -> shares.Row:
    """Return the part of the cluster that is guaranteed to no queue; queues without jobs count,
    too. Read-only: it is kept across sessions until a queue or the sum of the nodes changes."""

    def summed() -> shares.Row:
        free: shares.Row = ssn.total.tolist()
        total = [0] * len(free)
        for queue in ssn.queues.values():
            total = shares.sum_of(total, shares.row_of(ssn, queue.guarantee))
        return shares.difference(free, total)

    parts = (ssn.model.epoch, ssn.total)
    return ssn.model.auxiliary.cached("unguaranteed", parts, summed)


def queues_with_jobs(ssn: session.Session) -> list[str]:
    """Return the names of queues that have jobs, in order."""
    return sorted(ssn.model.queue_usage.queues)


def vote_enqueueable(ssn: session.Session, job: entities.Job, chain: Iterable[QueueQuota]) -> int:
    """Vote on enqueueing a job in all these queues. A rejection is reported to the user.

    A job without minimum resources is never rejected.
    """
    if job.min_request is None:
        return extension_points.PERMIT
    request: shares.Row = job.min_request.tolist()
    demand = shares.pairs(request)
    for quota in chain:
        needed = quota.needed_with(request)
        short = shares.exceeded_names(ssn, needed, quota.real_capability, demand)
        if short:
            names = ", ".join(f"insufficient {name}" for name in short)
            ssn.emit_event(job, f"queue resource quota insufficient: {names}")
            return extension_points.REJECT
    return extension_points.PERMIT


def note_enqueued(job: entities.Job, chain: Iterable[QueueQuota]) -> None:
    """Count the job's minimum resources as inqueue in all these queues."""
    if job.min_request is None:
        return
    coming: shares.Row = queue_usage.without_gated(job, job.min_request).tolist()
    for quota in chain:
        quota.inqueue = shares.sum_of(quota.inqueue, coming)
