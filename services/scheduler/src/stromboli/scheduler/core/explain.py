"""Why gangs wait: the tier that blocks, numbers, and the text that users know from conditions.

The text is Volcano's (spec/scheduling 1.3 and 9, spec/plugins 1). Only what changed is said.
"""

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import numpy as np

from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, queue_usage, requirements, resource_vectors
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.formats import units
from stromboli.shared.messages import scheduling as messages

_WAIT = (entities.Status.PENDING, entities.Status.PIPELINED, entities.Status.ALLOCATED)
"""States of tasks that are not bound after a session: an Allocated one waits for its gang."""
_MOST_NAMED = 3
"""Pods named in a text about several."""


class Told(msgspec.Struct, frozen=True):
    """PodGroup -> why it waits, or None once it does not; queues' orders; only where that is news.

    ``is_throttled``: gangs were not tried.
    """

    explanations: dict[str, messages.PodGroupExplained | None]
    orders: tuple[messages.QueueOrdered, ...]
    is_throttled: bool


class Why(msgspec.Struct, frozen=True):
    """What blocks a job: the tier, the reason in words, and the task and its refusals if one found
    no node."""

    tier: messages.Tier
    reason: str
    task: entities.Task | None = None
    error: entities.FitError = entities.FitError()


def told(picture: cluster_cache.ClusterCache, closed: session.Session, patience: timedelta) -> Told:
    """What a closed session has to say about all that waits. O(jobs that wait)."""
    now: dict[str, messages.PodGroupExplained | None] = dict.fromkeys(picture.explained)
    lines: dict[str, list[entities.Job]] = {queue: [] for queue in picture.ordered}
    free = _Free(closed)
    for key in sorted(picture.waiting):
        job = picture.world.job(key)
        if job is None:
            now[key] = _unreadable(picture, key)
            continue
        if key in closed.world.aside:
            now[key] = picture.explained.get(key)
            lines.setdefault(job.queue, []).append(job)
            continue
        why = _why(picture, closed, job)
        if why is None:
            continue
        if why.tier == "gang" and _is_young(closed, job, patience):
            continue
        lines.setdefault(job.queue, []).append(job)
        if key in closed.untried:
            now[key] = picture.explained.get(key)
        else:
            now[key] = _explanation(closed, job, why, free)
    return Told(
        {key: said for key, said in sorted(now.items()) if said != picture.explained.get(key)},
        tuple(_orders(picture, closed, lines)),
        bool(closed.untried),
    )


def _orders(
    picture: cluster_cache.ClusterCache,
    closed: session.Session,
    lines: dict[str, list[entities.Job]],
) -> Iterator[messages.QueueOrdered]:
    """Each queue's waiting gangs in job order, where that is news."""
    for queue, jobs in sorted(lines.items()):
        there = [job for job in jobs if job.key in closed.jobs]
        others = [job for job in jobs if job.key not in closed.jobs]
        ordered = closed.ordered_jobs(there) if len(there) > 1 else there
        yield from picture.ordered.news(queue, [job.key for job in [*ordered, *others]])


def _is_young(closed: session.Session, job: entities.Job, patience: timedelta) -> bool:
    """Its pods are being made: there is nothing to explain yet, but later if they do not come."""
    if job.key in closed.decisions.admitted:
        return not closed.reached(closed.now + patience)
    created = job.pod_group.metadata.creation_timestamp
    return created is not None and not closed.reached(durations.after(created, patience))


# What blocks ---------------------------------------------------------------------------------


def _why(
    picture: cluster_cache.ClusterCache, closed: session.Session, job: entities.Job
) -> Why | None:
    """What blocks the job after all that was decided; None if nothing does."""
    if job.is_going:
        return None
    if job.frozen:
        return Why("unknown", f": {job.frozen}")
    queue = closed.queues.get(job.queue)
    if queue is None:
        problem = picture.world.problems.get(("queue", job.queue))
        if problem:
            return Why("unknown", f": its queue cannot be read: {problem}")
        why = f"queue {job.queue} does not exist: create it, or submit to another queue"
        return Why("queue-closed", why)
    pending = job.count(*_WAIT)
    if not (pending or job.problems or job.is_pending) and job.is_ready and job.roles_ready:
        return None
    if not queue.is_open:
        return Why("queue-closed", f"queue {queue.name} is {queue.state}")
    invalid = closed.job_valid(job)
    if invalid is not None and invalid.reason == extension_points.PLUGIN_FAILED:
        return Why("unknown", f": {invalid.message}")
    if job.is_pending:
        return Why("enqueue", "; ".join(closed.events.get(job.key, ())) or job.fit_error)
    if job.domain_error:
        return Why("topology", f": {job.domain_error}")
    failed = _failure(job)
    if failed is not None:
        return _why_nowhere(closed, *failed)
    if job.problems:
        pod = min(job.problems)
        return Why("invalid", f" {pod}: {job.problems[pod]}")
    if invalid is not None:
        return Why("gang", f": {invalid.message}")
    if job.gated:
        names = ", ".join(sorted(task.key for task in job.gated.values())[:_MOST_NAMED])
        return Why("gang", f": {len(job.gated)} pods wait for their scheduling gates: {names}")
    if job.fit_error:
        return Why("order", f": {job.fit_error}")
    if job.count(entities.Status.PIPELINED):
        return Why("releasing", ": it is promised what is being released")
    if job.pending:
        first = closed.ordered_tasks(job.pending)[0]
        return _why_nowhere(closed, first, _untried(closed, first))
    return Why("gang", "")


def _failure(job: entities.Job) -> tuple[entities.Task, entities.FitError] | None:
    """The first task that nodes refused, else the first that was not tried."""
    failed = sorted(
        (not error.refusals, job.tasks[uid].name, uid) for uid, error in job.fit_errors.items()
    )
    if not failed:
        return None
    _, _, uid = failed[0]
    return job.tasks[uid], job.fit_errors[uid]


def _untried(closed: session.Session, task: entities.Task) -> entities.FitError:
    """Why a task was not even tried. A queue that has its share blocks only where a node would take
    the task."""
    verdict, fits = closed.finder.verdict(task), closed.finder.fits_future(task)
    if not np.any(verdict.passed & fits):
        return closed.finder.fit_error(task, verdict, fits)
    queue = closed.queues[closed.jobs[task.job].queue]
    return entities.FitError(message=f"queue {queue.name} has its share", is_share=True)


def _why_nowhere(closed: session.Session, task: entities.Task, error: entities.FitError) -> Why:
    if error.is_share:
        return Why("share", f" {task.name}: {error}", task, error)
    is_short = any(_reason(name) in error.refusals for name in closed.resources.names)
    return Why("resources" if is_short else "predicates", f" {task.name}: {error}", task, error)


# What is said --------------------------------------------------------------------------------


def _unreadable(picture: cluster_cache.ClusterCache, key: str) -> messages.PodGroupExplained:
    """The gang of a PodGroup that cannot be read."""
    members = picture.world.members(key).values()
    return messages.PodGroupExplained(
        pod_group=key,
        pod_group_uid="",
        queue="",
        phase="",
        tier="unknown",
        message=picture.world.problems.get(("podgroup", key), ""),
        min_member=0,
        members=len(members),
        running=sum(task.status is entities.Status.RUNNING for task in members),
        pending=sum(task.status is entities.Status.PENDING for task in members),
        placeable=0,
    )


def _explanation(
    closed: session.Session, job: entities.Job, why: Why, free: "_Free"
) -> messages.PodGroupExplained:
    tried = sum(
        task.last_status in entities.ALLOCATED
        for task in job.by_status.get(entities.Status.PENDING, {}).values()
    )
    shortages = free.shortages(job, why)
    tier = why.tier
    if tier == "resources" and shortages and all(each.needed <= each.free for each in shortages):
        tier = "fragmentation"
    waits = job.count(*_WAIT)
    is_outside = tier in ("enqueue", "queue-closed")
    message = why.reason if is_outside else _message(job, why.reason, tried)
    return messages.PodGroupExplained(
        pod_group=job.key,
        pod_group_uid=job.pod_group.metadata.uid,
        queue=job.queue,
        phase=job.pod_group.status.phase,
        tier=tier,
        message=message + _missed(closed, message),
        min_member=job.min_available,
        members=len(job.tasks) + len(job.problems),
        running=job.count(entities.Status.RUNNING),
        pending=waits + len(job.problems),
        placeable=tried + job.count(entities.Status.PIPELINED, entities.Status.ALLOCATED),
        shortages=shortages,
        refusals=tuple(
            messages.NodesRefused(nodes=nodes, reason=reason)
            for reason, nodes in sorted(
                why.error.refusals.items(), key=lambda entry: (-entry[1], entry[0])
            )
        ),
    )


def _missed(closed: session.Session, message: str) -> str:
    """Which plugins had no say, and why: what else is told may be for want of theirs."""
    lacking = [
        f"{name} ({why})" for name, why in sorted(closed.failures.items()) if why not in message
    ]
    return f" Decided without plugin {', '.join(lacking)}." if lacking else ""


def _message(job: entities.Job, origin: str, tried: int) -> str:
    waits = job.count(*_WAIT)
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
    """Sorted as texts, so that ``10 x`` stands before ``2 y``, as users see it today."""
    lines = (f"{number} {name}" for name, number in counts.items() if number or "min" in name)
    return ", ".join(sorted(lines))


class _Free:
    """What is free in sum after a session, counted once if anybody is short of something."""

    def __init__(self, closed: session.Session) -> None:
        self._session = closed
        self._free: list[int] | None = None
        self._total: list[int] = []

    def shortages(self, job: entities.Job, why: Why) -> tuple[messages.Shortage, ...]:
        """Of each resource that is short somewhere, what the gang needs to begin (or its surplus
        needs), what there is in all, and the queue's part where that is what blocks."""
        needed = self._needed(job, why)
        if needed is None:
            return ()
        if self._free is None:
            self._sum_up()
        free = self._free or []
        standing = None
        if why.tier in ("enqueue", "share"):
            standing = self._session.standing(self._session.queues[job.queue])
        found = []
        for name, column in sorted(
            (name, column) for column, name in enumerate(self._session.resources.names)
        ):
            amount = int(needed[column])
            is_short = amount > free[column] or _reason(name) in why.error.refusals
            if amount and (is_short or _exceeds(standing, column, amount, why.tier)):
                there = messages.Shortage(
                    resource=name,
                    needed=_told(amount),
                    free=_told(free[column]),
                    total=_told(self._total[column]),
                )
                found.append(there if standing is None else _with_part(there, standing, column))
        return tuple(found)

    def _needed(
        self, job: entities.Job, why: Why
    ) -> resource_vectors.Vector | resource_vectors.Sum | None:
        if why.tier == "enqueue":
            if job.min_request is None:
                return None
            needed = job.min_request.copy()
            needed[requirements.PODS] = (
                0  # counted by nodes, but no measure of what a queue lets in
            )
            return needed
        if why.tier not in ("resources", "share"):
            return None
        missing = self._session.ordered_tasks(job.pending)
        if not job.is_ready:
            missing = missing[: max(job.min_available - job.ready, 1)]
        return queue_usage.together(missing, len(job.allocated))

    def _sum_up(self) -> None:
        nodes = self._session.nodes
        usable = nodes.labelled.usable
        self._free = resource_vectors.total(np.maximum(nodes.idle, 0)[:, usable]).tolist()
        self._total = resource_vectors.total(nodes.allocatable[:, usable]).tolist()


def _with_part(
    there: messages.Shortage, standing: extension_points.Standing, column: int
) -> messages.Shortage:
    """With what the queue holds, is promised, deserves and may have of the resource."""
    deserved, most = int(standing.deserved[column]), standing.capability[column]
    return msgspec.structs.replace(
        there,
        allocated=_told(standing.allocated[column]),
        promised=_told(standing.promised[column]),
        deserved=None if deserved >= resource_vectors.INFINITE else _told(deserved),
        capability=None if most >= resource_vectors.INFINITE else _told(most),
    )


def _told(amount: int) -> int:
    """The amount as readers of messages can hold it: in 64 bits."""
    return max(-units.LARGEST, min(units.LARGEST, amount))


def _exceeds(
    standing: extension_points.Standing | None, column: int, amount: int, tier: messages.Tier
) -> bool:
    """Whether the queue would hold more than it may."""
    if standing is None:
        return False
    held = standing.allocated[column] + amount
    if tier == "enqueue":
        return held + standing.promised[column] > standing.capability[column]
    return held > standing.deserved[column]


def _reason(resource: str) -> str:
    return f"Insufficient {resource}"
