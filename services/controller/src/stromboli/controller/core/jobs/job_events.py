"""Events of a job: unpublished events for ``batch.events``, and Kubernetes Events about the job."""

from collections import Counter
from collections.abc import Container, Iterator
from datetime import datetime
from typing import Literal

from stromboli.controller.core import commands, lifecycle
from stromboli.controller.core.jobs import due_events, event_messages, job_pods
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared import gpu_types, keys
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job
from stromboli.shared.formats.counts import counted
from stromboli.shared.messages import batch

_ENDING = (event_history.TERMINATING, *event_history.OVER)
"""Published states of a pod whose eviction has already been recorded."""


def due(
    cache: controller_cache.ControllerCache, job: Job, observed: job_pods.JobPods, now: datetime
) -> commands.Stage:
    """Events to publish: of pods, then of the phase. O(pods that may differ)."""
    of_tasks = due_events.due_tasks(
        cache.published,
        job,
        observed.unsettled(),
        cache.is_terminating,
        cache.unknown_pods(),
        observed.settle,
        lambda node: _gpu_type(cache, node),
        now,
    )
    unrecorded = frozenset[str]() if cache.is_terminating(job) else observed.unrecorded()
    # The pod may be deleted once its end is published, so the status records its result first.
    of_tasks = tuple(it for it in of_tasks if not _is_end(it, unrecorded))
    events: list[commands.Command] = [*_evictions(job, of_tasks, now), *of_tasks]
    message = due_events.due_phase(cache.published, job)
    if message is not None:
        trace = job.metadata.annotation(keys.TRACEPARENT) or ""
        # The published phase is last: it marks the Event as recorded, so a crash loses neither.
        type_: Literal["Normal", "Warning"] = "Warning" if message.after == "Failed" else "Normal"
        text = event_messages.of_phase(message)
        events.append(about(job, type_, message.after, text, message.at, recurs=True))
        events.append(
            commands.Publish(
                job=job.metadata.key, message=message, at=message.at, traceparent=trace
            )
        )
    return tuple(events)


def _is_end(command: commands.Command, uids: Container[str]) -> bool:
    """Whether the command publishes the end of one of these pods."""
    message = command.message if isinstance(command, commands.Publish) else None
    return (
        isinstance(message, batch.TaskChanged)
        and message.after in event_history.OVER
        and message.pod_uid in uids
    )


def _gpu_type(cache: controller_cache.ControllerCache, node: str) -> str:
    """The type of a node's GPUs; empty for an unknown node."""
    node_object = cache.get(kinds.NODES, node)
    return "" if node_object is None else gpu_types.of_node(node_object)


def _evictions(job: Job, of_tasks: commands.Stage, now: datetime) -> Iterator[commands.RecordEvent]:
    """An Event for each cause of evictions of the job's pods, with the number of evicted pods."""
    counts: Counter[str] = Counter()
    for command in of_tasks:
        published = command.message if isinstance(command, commands.Publish) else None
        is_first = isinstance(published, batch.TaskChanged) and published.before not in _ENDING
        if isinstance(published, batch.TaskChanged) and published.detail and is_first:
            counts[published.detail] += 1
    for detail, count in counts.items():
        reason = "Reclaimed" if detail.startswith("reclaimed") else "Preempted"
        text = f"{counted(count, 'pod')} {detail}"
        yield about(job, "Warning", reason, text, now, recurs=True)


def about(
    job: Job,
    type_: Literal["Normal", "Warning"],
    reason: str,
    message: str,
    at: datetime,
    *,
    recurs: bool = False,
) -> commands.RecordEvent:
    """A Kubernetes Event about the job."""
    return commands.event_about(kinds.JOBS, job, type_, reason, message, at, recurs=recurs)


def no_scheduler(
    cache: controller_cache.ControllerCache, job: Job, now: datetime
) -> Iterator[commands.RecordEvent]:
    """A Warning for a job without schedulerName that was created while another batch system was
    active. While the other system is active, the job may belong to it. Stromboli never takes the
    job over, because its progress in the other system is unknown."""
    is_over = job.status.state.phase in lifecycle.FINISHED or cache.is_terminating(job)
    if job.spec.scheduler_name or cache.sync.claimed or is_over:
        return
    why = (
        "the job has no schedulerName and no other batch system is active, so nothing runs it: "
        f"delete it and submit it again, with schedulerName {cache.usual_scheduler} or without one"
    )
    yield commands.event_about(kinds.JOBS, job, "Warning", "NoScheduler", why, now)
