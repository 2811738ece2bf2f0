"""What queues may have and what they hold: the books of ``proportion`` and ``capacity``.

A queue's account is opened from what its jobs hold and then follows what is placed and taken
back. Rows are changed in place; shares follow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, queue_usage, requirements, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import shares


class QueueQuota(msgspec.Struct, eq=False):
    """A queue's limits and holdings, one amount per resource.

    ``real_capability``: what it can reach given what is guaranteed to others. ``inqueue``: what
    jobs that passed its door will still take. ``elastic``: what its jobs hold beyond their minimum
    resources. ``deserved`` may have fractions of a unit; ``named``: the columns of which the queue
    says what it deserves, be it nothing, cpu and memory aside.
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

    def take(self, demand: shares.Demand, times: int = 1) -> None:
        """A task of this request got a place, or lost it with ``times`` -1."""
        shares.add(self.allocated, demand, times)

    def needed_with(self, request: Sequence[int]) -> shares.Row:
        """What it will hold once a further job has its minimum resources."""
        held = shares.sum_of(self.allocated, self.inqueue)
        kept = [amount - more for amount, more in zip(held, self.elastic, strict=True)]
        return shares.sum_of(kept, request)


def open_quota(ssn: session.Session, queue: entities.Queue, unguaranteed: shares.Row) -> QueueQuota:
    """The account of a queue as its jobs are. O(resources).

    ``unguaranteed``: what of the cluster is guaranteed to no queue. ``deserved`` is what the queue
    states.
    """
    guarantee = shares.row_of(ssn, queue.guarantee)
    capability = capability_of(ssn, queue)
    held = ssn.world.books.queues.get(queue.name)
    if held is None:
        held = queue_usage.UsageTotals(len(guarantee))
    return QueueQuota(
        queue=queue,
        guarantee=guarantee,
        capability=capability,
        real_capability=shares.minimum(shares.sum_of(unguaranteed, guarantee), capability),
        deserved=shares.row_of(ssn, queue.deserved),
        named=_named(ssn, queue),
        allocated=held.allocated.tolist(),
        request=held.request.tolist(),
        inqueue=held.inqueue.tolist(),
        elastic=held.elastic.tolist(),
    )


def queue_status(quota: QueueQuota | None) -> extension_points.QueueShare | None:
    """What an account says of its queue."""
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
    """The victims, in their order, that leave their queues their guarantees. O(victims)."""
    held: dict[str, shares.Row] = {}
    going = []
    for task in victims:
        job = ssn.job_of(task)
        quota = books.get(job.queue) if job is not None else None
        if quota is None:
            going.append(task)
            continue
        row = held.setdefault(quota.queue.name, list(quota.allocated))
        demand = demands.of(task)
        if keeps_guarantee(quota, row, demand):
            shares.add(row, demand, -1)
            going.append(task)
    return going


def keeps_guarantee(quota: QueueQuota, held: Sequence[float], demand: shares.Demand) -> bool:
    """Whether the queue, which holds so much, has what is guaranteed to it without this victim. A
    resource that the victim does not ask for is none of its business."""
    least = quota.guarantee
    return all(held[column] - amount >= least[column] for column, amount in demand if least[column])


def quota_gauges(
    ssn: session.Session, books: Mapping[str, QueueQuota]
) -> Iterator[extension_points.Gauge]:
    """What queues hold, deserve and may have, with the field's names. A queue without jobs holds
    nothing; where nothing limits there is no number."""
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
    """The queue's ceiling. A name that is absent, and cpu or memory of zero, set no limit."""
    row = shares.row_of(ssn, queue.capability, resource_vectors.INFINITE)
    for column in (requirements.CPU, requirements.MEMORY):
        if row[column] <= 0:
            row[column] = resource_vectors.INFINITE
    return row


def unguaranteed(ssn: session.Session) -> shares.Row:
    """What of the cluster is guaranteed to no queue, whether that queue has jobs or not."""
    free: shares.Row = ssn.total.tolist()
    total = [0] * len(free)
    for queue in ssn.queues.values():
        total = shares.sum_of(total, shares.row_of(ssn, queue.guarantee))
    return shares.difference(free, total)


def queues_with_jobs(ssn: session.Session) -> list[str]:
    """Names of queues that have any, in order."""
    return sorted(ssn.world.books.queues)


def vote_enqueueable(ssn: session.Session, job: entities.Job, chain: Iterable[QueueQuota]) -> int:
    """The vote on letting a job through the doors of all these queues; a refusal tells the user.

    A job that names no minimum resources asks for nothing that could be refused.
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
    """The job's minimum resources are to come in all these queues."""
    if job.min_request is None:
        return
    coming: shares.Row = queue_usage.without_gated(job, job.min_request).tolist()
    for quota in chain:
        quota.inqueue = shares.sum_of(quota.inqueue, coming)
