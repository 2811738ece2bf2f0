"""Explains why gangs wait: the tier that blocks, numbers, and the text of the condition.

The text is that of Volcano's conditions. Only explanations that differ from the topic are returned.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np

from stromboli.scheduler.core import capacity_check
from stromboli.scheduler.core.cache import cluster_cache, partial_gangs, refusal_backoff
from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, queue_usage, requirements, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.formats import units
from stromboli.shared.messages import scheduling as messages

_UNBOUND = (entities.Status.PENDING, entities.Status.PIPELINED, entities.Status.ALLOCATED)
"""Statuses of tasks that are not bound after a session; an Allocated task waits for its gang."""
_SHORT_OF_ROOM: Collection[messages.Tier] = ("enqueue", "resources", "share", "predicates")
"""Tiers of gangs that wait for free resources, unless they can never fit."""
_MAX_NAMED_PODS = 3
"""Largest number of pods that a text names."""


class ExplanationChanges(msgspec.Struct, frozen=True):
    """Changes of explanations: PodGroup -> explanation, or None once it no longer waits.

    ``orders``: changed chunks of the queues' orders. ``is_throttled``: some gangs were not tried.
    """

    explanations: dict[str, messages.PodGroupExplained | None]
    orders: tuple[messages.QueueOrdered, ...]
    is_throttled: bool


class BlockingReason(msgspec.Struct, frozen=True):
    """What blocks a job: the tier, a text, and the task that found no node with its rejections."""

    tier: messages.Tier
    reason: str
    task: entities.Task | None = None
    error: entities.FitError = entities.FitError()


def explain_waiting(
    cache: cluster_cache.ClusterCache,
    closed: session.Session,
    creation_grace: timedelta,
    partial: Mapping[str, partial_gangs.PartialGang] | None = None,
    backing_off: Mapping[str, refusal_backoff.BackingOff] | None = None,
    awaiting_plan: Collection[str] = (),
) -> ExplanationChanges:
    """Explain all waiting gangs after a closed session; return what differs from the topic.

    ``creation_grace``: age until which a PodGroup may lack pods without an explanation.
    ``partial``: gangs that were started only in part. ``backing_off``: gangs that the session
    skipped because their decisions were refused. ``awaiting_plan``: gangs whose plan follows; they
    get no explanation. O(waiting jobs), with a small constant for jobs that the session skipped
    because their queue did not admit them.
    """
    gone = cache.explained.keys() - cache.waiting
    now: dict[str, messages.PodGroupExplained | None] = dict.fromkeys(gone)
    lines: dict[str, list[entities.Job]] = {queue: [] for queue in cache.ordered}
    free = _FreeResources(closed)
    capacity = capacity_check.CapacityCheck(closed)
    # Explanations of unadmitted jobs that the session skipped stay as they are.
    left = closed.model.unadmitted.keys() - closed.resumed
    for key in sorted(cache.waiting - left):
        job = cache.model.job(key)
        if job is not None and closed.skips(key) and key not in awaiting_plan:
            lines.setdefault(job.queue, []).append(job)
            continue
        now[key] = None
        if job is None:
            now[key] = _unreadable(cache, key)
            continue
        if key in awaiting_plan:
            continue
        refused = (backing_off or {}).get(key)
        blocking = _blocking_reason(cache, closed, job, refused)
        if blocking is None:
            continue
        if blocking.tier == "gang" and _is_being_created(closed, job, creation_grace):
            continue
        lines.setdefault(job.queue, []).append(job)
        is_known = blocking.tier == "refused" and _names_refusal(cache.explained.get(key), refused)
        if key in closed.untried or is_known:
            now[key] = cache.explained.get(key)
        else:
            gang = (partial or {}).get(key)
            explanation = _explanation(closed, job, blocking, free, gang)
            if blocking.tier in _SHORT_OF_ROOM:
                explanation = _with_capacity(explanation, capacity.reason(job))
            now[key] = explanation
    return ExplanationChanges(
        {
            key: explanation
            for key, explanation in sorted(now.items())
            if explanation != cache.explained.get(key)
        },
        tuple(_queue_order_changes(cache, closed, lines)),
        bool(closed.untried),
    )


def _names_refusal(
    known: messages.PodGroupExplained | None, refused: refusal_backoff.BackingOff | None
) -> bool:
    """Whether the explanation names the refusal already: only the first session has its text."""
    has_news = refused is not None and bool(refused.text)
    return known is not None and known.tier == "refused" and not has_news


def _with_capacity(
    explanation: messages.PodGroupExplained, reason: str
) -> messages.PodGroupExplained:
    """The explanation, changed if the gang can never fit: this reason takes precedence.

    The session's explanation of a gang that is not admitted names the current usage of its queue,
    which would mislead: an empty queue would not have room for the gang either.
    """
    if not reason:
        return explanation
    is_admitted = explanation.phase != "Pending"
    message = f"{reason}. {explanation.message}" if is_admitted else reason
    return msgspec.structs.replace(explanation, tier="never-fits", message=message)


def _queue_order_changes(
    cache: cluster_cache.ClusterCache,
    closed: session.Session,
    lines: dict[str, list[entities.Job]],
) -> Iterator[messages.QueueOrdered]:
    """Each queue's waiting gangs in job order, if the order changed."""
    unadmitted, unschedulable = closed.model.unadmitted, cache.unschedulable_gangs
    key_of = closed.job_key()

    def position(job: entities.Job) -> Any:
        known = unschedulable.position(job.key) if closed.skips(job.key) else ()
        return known or key_of(job)

    for queue in sorted({*lines, *unadmitted.queues()}):
        jobs = lines.get(queue, [])
        there = [job for job in jobs if job.key in closed.jobs]
        others = [job.key for job in jobs if job.key not in closed.jobs]
        for job in there:
            closed.job_order_changed(job)
        waiting = sorted([(position(job), job.key) for job in there])
        skipped = [pair for pair in unadmitted.ordered(queue) if pair[1] not in closed.resumed]
        # Both are sorted: a merge.
        keys = [key for _, key in (sorted([*skipped, *waiting]) if skipped else waiting)]
        yield from cache.ordered.changed_chunks(queue, [*keys, *others])


def _is_being_created(
    closed: session.Session, job: entities.Job, creation_grace: timedelta
) -> bool:
    """Whether the pods are probably being created; if not, a later session explains it."""
    if job.key in closed.decisions.admitted:
        return not closed.reached(closed.now + creation_grace)
    created = job.pod_group.metadata.creation_timestamp
    return created is not None and not closed.reached(durations.after(created, creation_grace))


# Blocking reasons ----------------------------------------------------------------------------


def _blocking_reason(
    cache: cluster_cache.ClusterCache,
    closed: session.Session,
    job: entities.Job,
    refused: refusal_backoff.BackingOff | None,
) -> BlockingReason | None:
    """What blocks the job after the session's decisions; None if nothing does."""
    if job.is_terminating:
        return None
    if job.frozen:
        return BlockingReason("unknown", f": {job.frozen}")
    queue = closed.queues.get(job.queue)
    if queue is None:
        problem = cache.model.problems.get(("queue", job.queue))
        if problem:
            return BlockingReason("unknown", f": its queue cannot be read: {problem}")
        blocking = f"queue {job.queue} does not exist: create it, or submit to another queue"
        return BlockingReason("queue-closed", blocking)
    pending = job.count_in(_UNBOUND)
    if not (pending or job.problems or job.is_pending) and job.is_ready and job.roles_ready:
        return None
    if not queue.is_open:
        return BlockingReason("queue-closed", f"queue {queue.name} is {queue.state}")
    if refused is not None:
        return BlockingReason("refused", refusal_backoff.message_of(job.key, refused))
    invalid = closed.job_valid(job)
    if invalid is not None and invalid.reason == extension_points.PLUGIN_FAILED:
        return BlockingReason("unknown", f": {invalid.message}")
    if job.is_pending:
        return BlockingReason("enqueue", "; ".join(closed.events.get(job.key, ())) or job.fit_error)
    if job.topology_error:
        return BlockingReason("topology", f": {job.topology_error}")
    failed = _first_failure(job)
    if failed is not None:
        return _placement_failure(closed, *failed)
    if job.problems:
        pod = min(job.problems)
        return BlockingReason("invalid", f" {pod}: {job.problems[pod]}")
    if invalid is not None:
        return BlockingReason("gang", f": {invalid.message}")
    if job.gated:
        names = ", ".join(sorted(task.key for task in job.gated.values())[:_MAX_NAMED_PODS])
        count = len(job.gated)
        waits = "1 pod waits for its" if count == 1 else f"{count} pods wait for their"
        return BlockingReason("gang", f": {waits} scheduling gates: {names}")
    if job.fit_error:
        return BlockingReason("order", f": {job.fit_error}")
    if job.count(entities.Status.PIPELINED):
        return BlockingReason(
            "releasing", ": it is nominated to nodes whose resources are being released"
        )
    if job.pending:
        first = closed.ordered_tasks(job.pending)[0]
        return _placement_failure(closed, first, _untried_fit_error(closed, first))
    return BlockingReason("gang", "")


def _first_failure(job: entities.Job) -> tuple[entities.Task, entities.FitError] | None:
    """The first task that nodes rejected, else the first that was not tried."""
    failed = sorted(
        (not error.refusals, job.tasks[uid].name, uid) for uid, error in job.fit_errors.items()
    )
    if not failed:
        return None
    _, _, uid = failed[0]
    return job.tasks[uid], job.fit_errors[uid]


def _untried_fit_error(closed: session.Session, task: entities.Task) -> entities.FitError:
    """Why a task was not tried. The queue's share is the reason only if a node has room."""
    filter_result, fits = closed.finder.filter_result(task), closed.finder.fits_future(task)
    if not np.any(filter_result.passed & fits):
        return closed.finder.fit_error(task, filter_result, fits)
    queue = closed.queues[closed.jobs[task.job].queue]
    return entities.FitError(message=f"queue {queue.name} has reached its share", is_share=True)


def _placement_failure(
    closed: session.Session, task: entities.Task, error: entities.FitError
) -> BlockingReason:
    if error.is_share:
        return BlockingReason("share", f" {task.name}: {error}", task, error)
    is_short = any(_reason(name) in error.refusals for name in closed.resources.names)
    return BlockingReason(
        "resources" if is_short else "predicates", f" {task.name}: {error}", task, error
    )


# Messages --------------------------------------------------------------------------------


def _unreadable(cache: cluster_cache.ClusterCache, key: str) -> messages.PodGroupExplained:
    """The explanation of a PodGroup that cannot be read."""
    members = cache.model.members(key)
    return messages.PodGroupExplained(
        pod_group=key,
        pod_group_uid="",
        queue="",
        phase="",
        tier="unknown",
        message=cache.model.problems.get(("podgroup", key), ""),
        min_member=0,
        members=len(members),
        running=sum(task.status is entities.Status.RUNNING for task in members),
        pending=sum(task.status is entities.Status.PENDING for task in members),
        placeable=0,
    )


def _explanation(
    closed: session.Session,
    job: entities.Job,
    blocking: BlockingReason,
    free: "_FreeResources",
    partial: partial_gangs.PartialGang | None,
) -> messages.PodGroupExplained:
    tried = sum(
        task.last_status in entities.ALLOCATED
        for task in job.by_status.get(entities.Status.PENDING, {}).values()
    )
    shortages = free.shortages(job, blocking)
    tier = blocking.tier
    if tier == "resources" and shortages and all(each.needed <= each.free for each in shortages):
        tier = "fragmentation"
    waits = job.count_in(_UNBOUND)
    is_outside = tier in ("enqueue", "queue-closed", "refused")
    message = blocking.reason if is_outside else _message(job, blocking.reason, tried)
    if partial is not None:
        message += partial_gangs.message_of(partial, job.min_available)
    return messages.PodGroupExplained(
        pod_group=job.key,
        pod_group_uid=job.pod_group.metadata.uid,
        queue=job.queue,
        phase=job.pod_group.status.phase,
        tier=tier,
        message=message + _failed_plugins(closed, message),
        min_member=job.min_available,
        members=len(job.tasks) + len(job.problems),
        running=job.count(entities.Status.RUNNING),
        pending=waits + len(job.problems),
        placeable=tried + job.count(entities.Status.PIPELINED, entities.Status.ALLOCATED),
        shortages=shortages,
        refusals=tuple(
            messages.NodeRejection(nodes=nodes, reason=reason)
            for reason, nodes in sorted(
                blocking.error.refusals.items(), key=lambda entry: (-entry[1], entry[0])
            )
        ),
    )


def _failed_plugins(closed: session.Session, message: str) -> str:
    """The failed plugins with their errors, since the explanation may be a consequence of them."""
    lacking = [
        f"{name} ({blocking})"
        for name, blocking in sorted(closed.failures.items())
        if blocking not in message
    ]
    return f" Decided without plugin {', '.join(lacking)}." if lacking else ""


def _message(job: entities.Job, origin: str, tried: int) -> str:
    waits = job.count_in(_UNBOUND)
    lacking = waits if job.is_ready else job.min_available - job.ready - tried
    counts = {status.value: len(tasks) for status, tasks in job.by_status.items()}
    counts[entities.Status.PENDING.value] = counts.get("Pending", 0) + len(job.problems)
    readiness = "ready" if job.is_ready else "not ready"
    text = f"{lacking}/{len(job.tasks) + len(job.problems)} tasks in gang unschedulable: "
    text += f"pod group is {readiness}, "
    text += _histogram(counts | {"minAvailable": job.min_available})
    pending = counts["Pending"]
    if pending:
        reasons = {"Schedulable": tried, "Unschedulable": pending - tried}
        text += f"; Pending: {_histogram(reasons)}"
    return f"{text}. Origin reason is{origin}" if origin else f"{text}."


def _histogram(counts: dict[str, int]) -> str:
    """Sorted as strings, so that ``10 x`` comes before ``2 y``, as in Volcano."""
    lines = (f"{number} {name}" for name, number in counts.items() if number or "min" in name)
    return ", ".join(sorted(lines))


class _FreeResources:
    """Free resources of all nodes after a session, summed on first use."""

    def __init__(self, closed: session.Session) -> None:
        self._session = closed
        self._free: list[int] | None = None
        self._total: list[int] = []

    def shortages(
        self, job: entities.Job, blocking: BlockingReason
    ) -> tuple[messages.Shortage, ...]:
        """For each resource that is short: the amount that the gang needs to start, the free
        amount, and the total amount of all nodes.

        For a running gang, the needed amounts are those of its pending surplus tasks. If the queue
        blocks the gang, the queue's share is included.
        """
        needed = self._needed(job, blocking)
        if needed is None:
            return ()
        if self._free is None:
            self._sum_up()
        free = self._free or []
        standing = None
        if blocking.tier in ("enqueue", "share"):
            standing = self._session.queue_usage(self._session.queues[job.queue])
        shortages = []
        for name, column in sorted(
            (name, column) for column, name in enumerate(self._session.resources.names)
        ):
            amount = int(needed[column])
            is_short = amount > free[column] or _reason(name) in blocking.error.refusals
            if amount and (
                is_short or _exceeds_queue_limit(standing, column, amount, blocking.tier)
            ):
                there = messages.Shortage(
                    resource=name,
                    needed=_clamp_int64(amount),
                    free=_clamp_int64(free[column]),
                    total=_clamp_int64(self._total[column]),
                )
                shortages.append(
                    there if standing is None else _with_queue_share(there, standing, column)
                )
        return tuple(shortages)

    def _needed(
        self, job: entities.Job, blocking: BlockingReason
    ) -> resource_vectors.Vector | resource_vectors.Sum | None:
        if blocking.tier == "enqueue":
            if job.min_request is None:
                return None
            needed = job.min_request.copy()
            needed[requirements.PODS] = 0  # limited by nodes, but not by a queue's quota
            return needed
        if blocking.tier not in ("resources", "share"):
            return None
        missing = self._session.ordered_tasks(job.pending)
        if not job.is_ready:
            missing = missing[: max(job.min_available - job.ready, 1)]
        return queue_usage.sum_of_requests(missing, len(job.allocated))

    def _sum_up(self) -> None:
        nodes = self._session.nodes
        usable = nodes.labelled.usable
        self._free = resource_vectors.total(np.maximum(nodes.idle, 0)[:, usable]).tolist()
        self._total = resource_vectors.total(nodes.allocatable[:, usable]).tolist()


def _with_queue_share(
    there: messages.Shortage, standing: extension_points.QueueShare, column: int
) -> messages.Shortage:
    """The shortage with the queue's usage, reservations, deserved share and capability."""
    deserved, most = int(standing.deserved[column]), standing.capability[column]
    return msgspec.structs.replace(
        there,
        allocated=_clamp_int64(standing.allocated[column]),
        promised=_clamp_int64(standing.promised[column]),
        deserved=None if deserved >= resource_vectors.INFINITE else _clamp_int64(deserved),
        capability=None if most >= resource_vectors.INFINITE else _clamp_int64(most),
    )


def _clamp_int64(amount: int) -> int:
    """The amount limited to 64 bits, as messages require."""
    return max(-units.LARGEST, min(units.LARGEST, amount))


def _exceeds_queue_limit(
    standing: extension_points.QueueShare | None, column: int, amount: int, tier: messages.Tier
) -> bool:
    """Whether the queue would exceed its limit with this amount."""
    if standing is None:
        return False
    usage = standing.allocated[column] + amount
    if tier == "enqueue":
        return usage + standing.promised[column] > standing.capability[column]
    return usage > standing.deserved[column]


def _reason(resource: str) -> str:
    return f"Insufficient {resource}"
