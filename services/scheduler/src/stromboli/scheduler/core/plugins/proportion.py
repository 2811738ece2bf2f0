"""The plugin ``proportion``: flat queues share the cluster by weight.

The *deserved* amounts of queues follow weighted max-min fairness in each resource, computed by
water filling: each queue gets its weight times a common level, at least its guarantee, and at most
its request and its limit. Without guarantees Volcano reaches the same result in rounds. With
guarantees its rounds distribute more than the cluster has, so that guaranteed amounts are also part
of what other queues deserve; here the level takes guarantees into account.

Most sessions use few queues, and only orders and placements depend on deserved amounts. Quotas are
therefore opened when they are first used, and deserved amounts are computed when they are first
read. They are computed from the requests and allocations at the opening of the session, so they do
not change within it.
"""

import functools
from collections.abc import Iterator, Sequence
from fractions import Fraction

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import quotas, shares

EXACT = 2**45
"""Below this, floating point distinguishes quotients that differ by ``NEGLIGIBLE``."""
NEGLIGIBLE = 0.1
"""Amounts that differ by less are equal: Volcano's epsilon, in the unit of every resource. The
level is a quotient; without the epsilon a queue could lack its last pod by a rounding error."""


class Plugin:
    """Orders queues, limits allocation and enqueueing, and reclaims, by weighted shares."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._demands = shares.Demands()
        self._opened: dict[str, quotas.QueueQuota] = {}
        self._deserved: dict[str, Sequence[float]] | None = None

    def open(self, ssn: session.Session) -> None:
        """Register."""
        self._session = ssn
        ssn.can_borrow = True
        ssn.add_queue_order(key=self._queue_key)
        ssn.add_gauges(self._gauges)
        ssn.add_queue_share(lambda queue: quotas.queue_status(self._filled(queue.name)))
        ssn.add_overused(self._is_overused)
        ssn.add_allocatable(self._count_allocatable)
        ssn.add_preemptive(self._is_preemptive)
        ssn.add_reclaimable(self._choose_reclaimable, may_have=self._is_beyond_share)
        ssn.add_reclaim_limit(
            lambda tasks: quotas.beyond_guarantees(ssn, self._all_filled(), self._demands, tasks)
        )
        ssn.add_room_vote(self._vote_enqueueable, by_request=True)
        ssn.add_job_enqueued(self._note_enqueued)
        ssn.add_event_handler(self._on_allocate, self._on_deallocate)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _quota(self, queue: str) -> quotas.QueueQuota:
        """Return the quota of a queue with jobs. Its deserved amounts are those of the spec."""
        queue_quota = self._opened.get(queue)
        if queue_quota is None:
            ssn = self._session
            queue_quota = quotas.open_quota(ssn, ssn.queues[queue], self._unguaranteed)
            self._opened[queue] = queue_quota
        return queue_quota

    def _filled(self, queue: str) -> quotas.QueueQuota | None:
        """Return the quota of a queue with its deserved amounts; None for a queue without jobs."""
        if self._deserved is None:
            self._deserved = _deserved(self._session, self._unguaranteed)
        deserved = self._deserved.get(queue)
        if deserved is None:
            return None
        quota = self._quota(queue)
        quota.deserved = deserved
        return quota

    def _all_filled(self) -> dict[str, quotas.QueueQuota]:
        """Return the quotas of all queues with jobs, with their deserved amounts."""
        names = quotas.queues_with_jobs(self._session)
        return {name: quota for name in names if (quota := self._filled(name)) is not None}

    @functools.cached_property
    def _unguaranteed(self) -> shares.Row:
        return quotas.unguaranteed(self._session)

    def _gauges(self) -> Iterator[extension_points.Gauge]:
        queue_quotas = self._all_filled()
        for quota in queue_quotas.values():
            quota.share = _share(quota)
        yield from quotas.quota_gauges(self._session, queue_quotas)

    def _queue_key(self, queue: entities.Queue) -> tuple[int, float]:
        quota = self._filled(queue.name)
        return -queue.priority, _share(quota) if quota else 0.0

    def _is_overused(self, queue: entities.Queue) -> bool:
        quota = self._filled(queue.name)
        return quota is not None and shares.is_within(quota.deserved, quota.allocated)

    def _count_allocatable(self, queue: entities.Queue, task: entities.Task, most: int) -> int:
        quota = self._filled(queue.name)
        if quota is None or not queue.is_open:
            return 0
        limit = quota.real_capability if self._session.is_borrowing else quota.deserved
        return shares.count_fitting(quota.allocated, self._demands.of(task), limit, most)

    def _is_preemptive(self, queue: entities.Queue, tasks: Sequence[entities.Task]) -> bool:
        together = [0] * len(self._session.resources.names)
        for task in tasks:
            shares.add(together, self._demands.of(task))
        return self._deserves(queue, shares.pairs(together))

    def _deserves(self, queue: entities.Queue, demand: shares.Demand) -> bool:
        quota = self._filled(queue.name)
        if quota is None or not queue.is_open:
            return False
        return shares.fits(quota.allocated, demand, quota.deserved)

    def _choose_reclaimable(
        self, reclaimer: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        left: dict[str, shares.Row] = {}
        victims = []
        for task in candidates:
            job = self._session.job_of(task)
            if job is None:
                continue
            quota = self._filled(job.queue)
            if quota is None:
                continue
            allocated = left.setdefault(job.queue, list(quota.allocated))
            if not shares.is_within(allocated, quota.deserved):
                shares.add(allocated, self._demands.of(task), -1)
                victims.append(task)
        return extension_points.Victims(victims)

    def _is_beyond_share(self, evictor: extension_points.Evictor, other: entities.Job) -> bool:
        quota = self._filled(other.queue)
        return quota is not None and not shares.is_within(quota.allocated, quota.deserved)

    def _vote_enqueueable(self, job: entities.Job) -> int:
        if not self._session.queue_of(job).is_open:
            return extension_points.REJECT
        return quotas.vote_enqueueable(self._session, job, [self._quota(job.queue)])

    def _note_enqueued(self, job: entities.Job) -> None:
        quotas.note_enqueued(job, [self._quota(job.queue)])

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        self._add_usage(tasks[0], len(tasks))

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        self._add_usage(tasks[0], -len(tasks))

    def _add_usage(self, like: entities.Task, times: int) -> None:
        job = self._session.job_of(like)
        if job is not None:
            self._quota(job.queue).charge(self._demands.of(like), times)


def _deserved(ssn: session.Session, unguaranteed: shares.Row) -> dict[str, Sequence[float]]:
    """Return the deserved amounts of each queue with jobs."""
    names, total = quotas.queues_with_jobs(ssn), ssn.total.tolist()
    if not names:
        return {}
    known = [(ssn.queues[name], ssn.model.queue_usage.queues[name].rows[1]) for name in names]
    limits = [quotas.limits_of(ssn, queue) for queue, _ in known]
    ceilings = [
        each.ceiling(request, unguaranteed)
        for each, (_, request) in zip(limits, known, strict=True)
    ]
    weights = [queue.weight for queue, _ in known]
    wanted = [sum(column) for column in zip(*ceilings, strict=True)]
    if all(weight > 0 for weight in weights) and shares.is_within(wanted, total):
        return dict(zip(names, ceilings, strict=True))  # as ``fair_shares``: nothing is scarce
    deserved = fair_shares(
        weights,
        total,
        [each.reachable(unguaranteed) for each in limits],
        [request for _, request in known],
        [each.guarantee for each in limits],
    )
    return dict(zip(names, deserved, strict=True))


def _share(quota: quotas.QueueQuota) -> float:
    return shares.dominant_share(quota.allocated, quota.deserved)


def fair_shares(
    weights: Sequence[int],
    total: shares.Row,
    limits: Sequence[shares.Row],
    wanted: Sequence[shares.Row],
    guarantees: Sequence[shares.Row],
) -> list[list[float]]:
    """Return the deserved amounts of each queue, one row per queue. ``total``: one amount per
    resource.

    A queue gets at least its guarantee, and no more than its limit or its request. An amount within
    ``NEGLIGIBLE`` of a whole unit is rounded to it. Requests, limits and guarantees are passed on
    as integers, since floating point does not hold 2^53 + 1 bytes. O(queues log queues) per
    resource.
    """
    deserved: list[list[float]] = [[] for _ in weights]
    for column, amount in enumerate(total):
        floor = [row[column] for row in guarantees]
        ceiling = [
            max(min(limit[column], want[column]), least)
            for limit, want, least in zip(limits, wanted, floor, strict=True)
        ]
        for row, part in zip(deserved, _water_fill(weights, amount, floor, ceiling), strict=True):
            row.append(part)
    return deserved


def _water_fill(
    weights: Sequence[int], total: int, floor: Sequence[int], ceiling: Sequence[int]
) -> list[float]:
    """Return the amount of one resource that each queue deserves.

    A queue takes ``weight x level``, at least its floor and at most its ceiling. The function walks
    the levels at which a queue leaves its floor or reaches its ceiling; up to the next one all
    queues together take ``fixed + slope x level``.
    """
    amounts: list[float] = list(floor)
    rising: set[int] = set()
    fixed, slope = sum(floor), 0
    for _, _, is_full, at in sorted(_breakpoints(weights, floor, ceiling)):
        weight, amount = weights[at], ceiling[at] if is_full else floor[at]
        if slope and fixed * weight + slope * amount >= total * weight:
            break
        if is_full:
            fixed, slope, amounts[at] = fixed + amount, slope - weight, amount
            rising.remove(at)
        else:
            fixed, slope = fixed - amount, slope + weight
            rising.add(at)
    for at in rising:
        part = _quotient(weights[at] * (total - fixed), slope)
        amounts[at] = min(max(part, floor[at]), ceiling[at])
    return amounts


def _breakpoints(
    weights: Sequence[int], floor: Sequence[int], ceiling: Sequence[int]
) -> Iterator[tuple[float, Fraction | int, bool, int]]:
    """Yield (level, exact level, reaches its ceiling, queue) for each level at which a queue leaves
    its floor or reaches its ceiling. The exact level orders levels that floating point cannot
    distinguish."""
    for at, weight in enumerate(weights):
        for amount, is_full in ((floor[at], False), (ceiling[at], True)) if weight > 0 else ():
            exact = Fraction(amount, weight) if amount > EXACT else amount
            yield amount / weight, exact, is_full, at


def _quotient(amount: int, of: int) -> float:
    """Return the quotient, rounded to an integer if it is within ``NEGLIGIBLE`` of one or too large
    for a float to have a fraction."""
    whole, remainder = divmod(amount, of)
    fraction = remainder / of
    if fraction > 1 - NEGLIGIBLE:
        return whole + 1
    return whole if fraction < NEGLIGIBLE or whole > EXACT else whole + fraction
