"""One job in full: why it is pending, its attempts as bars, its tasks and events. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from stromboli.cli.render import explanation_view, job_view, output, start_view
from stromboli.client import phases
from stromboli.client.responses import Explanation, KubernetesEvent
from stromboli.console.core import amounts, past_attempts
from stromboli.shared import decoding, device_annotations, keys
from stromboli.shared.api import batch, core
from stromboli.shared.api.views import accounting
from stromboli.shared.api.views.task_history import TaskAttempt, TaskHistory
from stromboli.shared.messages.scheduling import Shortage

MOST_ATTEMPTS = 500
"""Attempts that a page shows; the rest is counted."""
MOST_EVENTS = 100
MOST_IN_FRONT = 5


class _DecidedNuma(msgspec.Struct, frozen=True):
    """The annotation with the amounts on each NUMA node."""

    numa: dict[str, dict[str, str]] = {}


_NUMA = decoding.decoder_of(_DecidedNuma)


class ShortageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a job needs of a resource, what is free, and what is missing. ``queue``: usage and
    limits of the job's queue, if the queue is the limit. ``missing``: the shortage in words."""

    resource: str
    needed: str
    free: str
    total: str
    missing: str
    free_percent: float
    needed_percent: float
    queue: str = ""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is pending. ``position`` counts from 1; 0 if it is not known."""

    headline: str
    position: int = 0
    queue: str = ""
    in_front: tuple[str, ...] = ()
    more_in_front: int = 0
    starts: str = ""
    gang: str = ""
    shortages: tuple[ShortageRow, ...] = ()
    refusals: tuple[tuple[int, str], ...] = ()
    messages: tuple[str, ...] = ()


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with its bar: where it was pending, bound, running and terminating, in percent of
    the time of the ``Timeline``. ``numa``: what it holds of each NUMA node, as decided;
    ``confirmed``: what its kubelet confirmed; ``used``: what it used of its requests."""

    attempt: TaskAttempt
    start: float
    bound: float
    running: float
    terminating: float
    end: float
    ran: str
    devices: str
    numa: str = ""
    confirmed: str = ""
    used: str = ""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts on one scale, from the first one to now, or to the end of the last one. ``more``
    attempts are left out."""

    rows: tuple[AttemptRow, ...] = ()
    more: int = 0
    first: datetime | None = None
    last: datetime | None = None


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """A Kubernetes Event."""

    at: datetime | None
    is_warning: bool
    reason: str
    subject: str
    message: str
    count: int


ACTIONS = ("suspend", "resume", "restart", "delete")
CONSEQUENCES = {
    "suspend": "Its pods end now. The job stays and can be resumed.",
    "resume": "The job is scheduled again, in its queue.",
    "restart": "Its pods are deleted and created again. This does not count as a retry.",
    "delete": "The job, its pods and its other child objects are deleted. This cannot be undone.",
}
"""Action -> what it does, as a confirmation states it."""


def actions(phase: str) -> tuple[str, ...]:
    """The actions that are possible in a phase. No command changes a job that has ended."""
    match phase:
        case "Pending" | "Running" | "Restarting":
            return ("suspend", "restart", "delete")
        case "Aborted":
            return ("resume", "delete")
        case _:
            return ("delete",)


def forms(job: batch.Job) -> tuple[str, ...]:
    """The forms that are possible: ``change``, ``resubmit``, ``retry`` (of the failed indexes of an
    array), ``tools`` (debug tools)."""
    phase = phases.phase_of(job)
    has_ended = phase in phases.FINAL
    is_retried = job.status.array is not None and bool(job.status.array.failed)
    possible = (
        ("change", not has_ended),
        ("tools", phase == "Running"),
        ("resubmit", True),
        ("retry", is_retried),
    )
    return tuple(name for name, is_possible in possible if is_possible)


def consequence(action: str, phase: str) -> str:
    """What an action does, as a confirmation states it."""
    if action == "suspend" and phase == "Pending":
        return "The job is held: it does not start before it is resumed."
    return CONSEQUENCES[action]


def facts(job: batch.Job, now: datetime) -> list[tuple[str, str]]:
    """Spec and status as pairs of label and text, as in ``strom job describe``."""
    all_facts = [(line[:9].strip(), line[10:]) for line in job_view.facts(job, now)]
    listed_facts = [
        (name, text) for name, text in all_facts if name not in ("job", "phase", "created")
    ]
    if ran := job_view.running_time(job, now):
        listed_facts.append(("ran", ran))
    return listed_facts


def tasks(job: batch.Job) -> list[dict[str, Any]]:
    """The tasks with their pods by phase."""
    counts = job.status.task_status_count
    return [
        {
            "name": row[0],
            "replicas": row[1],
            "minimum": row[2],
            "image": row[3],
            "requests": row[4],
            "pods": ", ".join(
                f"{count} {phase.lower()}"
                for phase, count in sorted(counts[row[0]].phase.items())
                if count
            )
            if row[0] in counts
            else "",
        }
        for row in job_view.task_rows(job)
    ]


def pending(explanation: Explanation, now: datetime) -> Pending | None:
    """Why the job is pending; None if nothing blocks it."""
    explained = explanation.explained
    if explained is None:
        if not explanation.held and explanation.phase != "Pending":
            return None
        headline = "The scheduler has not explained the job yet, or the job is about to start"
        if explanation.held:
            headline = "Not all of its pods are created"
        return Pending(headline=headline, messages=(explanation.held,) if explanation.held else ())
    front = [explanation_view.job_name(name) for name in explanation.in_front or ()]
    least, members = explained.min_member, explained.members
    together = f"{least} of {members}" if members > least else f"{least}"
    gang = f"{together} pods must start together" if max(least, members) > 1 else "1 pod must start"
    if members:
        gang += f": {explained.running} running, {explained.placeable} more can be placed now"
    starts = ""
    if explanation.expected is not None:
        starts = start_view.sentence(explanation.expected, now)
    messages = tuple(filter(None, (explained.message, explanation.held)))
    headline = explanation_view.TIERS[explained.tier]
    return Pending(
        headline=headline[:1].upper() + headline[1:],
        position=0 if explanation.in_front is None else len(front) + 1,
        queue=explained.queue,
        in_front=tuple(front[:MOST_IN_FRONT]),
        more_in_front=max(len(front) - MOST_IN_FRONT, 0),
        starts=starts,
        gang=gang,
        shortages=tuple(_shortage(it) for it in explained.shortages),
        refusals=tuple((it.nodes, it.reason) for it in explained.refusals),
        messages=messages,
    )


def timeline(
    history: TaskHistory,
    now: datetime,
    numa: Mapping[str, str] | None = None,
    kept: Mapping[str, accounting.Attempt] | None = None,
) -> Timeline:
    """The attempts that a page shows. ``numa``: the uid of a pod -> what it holds of each NUMA
    node; ``kept``: the uid of a pod -> its attempt in the history."""
    attempts: Sequence[TaskAttempt] = history.tasks
    listed_attempts = attempts[:MOST_ATTEMPTS]
    begins = [it.created_at for it in listed_attempts if it.created_at is not None]
    first = min(begins, default=now)
    last = max([it.ended_at or now for it in listed_attempts], default=now) if begins else now
    rows = tuple(
        msgspec.structs.replace(
            _attempt(it, first, last, now),
            numa=(numa or {}).get(it.pod_uid, ""),
            **_measured((kept or {}).get(it.pod_uid)),
        )
        for it in listed_attempts
    )
    return Timeline(rows=rows, more=len(attempts) - len(listed_attempts), first=first, last=last)


def _measured(attempt: accounting.Attempt | None) -> dict[str, str]:
    if attempt is None:
        return {}
    return {"confirmed": past_attempts.confirmed(attempt), "used": past_attempts.used(attempt)}


def numa_of(pod: core.Pod) -> str:
    """What a pod holds of each NUMA node, as its bind decided: ``NUMA 0: 8 cpu, 4 gpu``."""
    try:
        text = pod.metadata.annotation(keys.TOPOLOGY_DECISION) or "{}"
        decided = decoding.decode(_NUMA, text)
    except msgspec.DecodeError:
        return ""
    return "; ".join(
        f"NUMA {cell}: "
        + ", ".join(f"{amount} {name.rpartition('/')[2]}" for name, amount in cell_amounts.items())
        for cell, cell_amounts in sorted(decided.numa.items())
    )


def events(kubernetes_events: Iterable[KubernetesEvent]) -> list[EventRow]:
    """The last ``MOST_EVENTS`` events, the newest first."""
    ordered = sorted(
        kubernetes_events,
        key=lambda event: event.at.timestamp() if event.at is not None else 0.0,
        reverse=True,
    )
    return [
        EventRow(
            at=event.at,
            is_warning=event.type == "Warning",
            reason=event.reason,
            subject=f"{event.involved_object.kind} {event.involved_object.name}".strip(),
            message=event.message,
            count=max(event.count, 1),
        )
        for event in ordered[:MOST_EVENTS]
    ]


def phase_changes(job: batch.Job) -> list[tuple[str, datetime | None]]:
    """The last 20 phases that the job entered with their times, the oldest first."""
    entered = [(it.status, it.last_transition_time) for it in job.status.conditions]
    if not entered:
        entered = [(phases.phase_of(job), job.metadata.creation_timestamp)]
    return entered[-20:]


def _shortage(one: Shortage) -> ShortageRow:
    missing = one.needed - one.free
    whole = max(one.total, one.needed, 1)
    queue = ""
    if one.allocated is not None:
        parts = (
            ("allocated", one.allocated),
            ("inqueue", one.promised or None),
            ("deserved", one.deserved),
            ("capability", one.capability),
        )
        queue = ", ".join(
            f"{word} {amounts.text(one.resource, amount)}"
            for word, amount in parts
            if amount is not None
        )
    if missing > 0:
        verdict = f"short by {amounts.text(one.resource, missing)}"
    elif one.allocated is not None:
        verdict = "free, but beyond the share of its queue"
    else:
        verdict = "free in total, but not on any node"
    return ShortageRow(
        resource=amounts.label(one.resource),
        needed=amounts.text(one.resource, one.needed),
        free=amounts.text(one.resource, one.free),
        total=amounts.text(one.resource, one.total),
        missing=verdict,
        free_percent=round(min(100.0, max(0.0, 100.0 * one.free / whole)), 1),
        needed_percent=round(min(100.0, 100.0 * one.needed / whole), 1),
        queue=queue,
    )


def _attempt(it: TaskAttempt, first: datetime, last: datetime, now: datetime) -> AttemptRow:
    length = max((last - first).total_seconds(), 0.001)

    def at(moment: datetime) -> float:
        return round(min(100.0, max(0.0, 100.0 * (moment - first).total_seconds() / length)), 2)

    end = it.ended_at or now
    # A short run is never seen as Running; it has an exit code all the same.
    ran_from = it.running_at or (it.bound_at if it.exit_code is not None else None)
    return AttemptRow(
        attempt=it,
        start=at(it.created_at or first),
        bound=at(it.bound_at or ran_from or it.terminating_at or end),
        running=at(ran_from or it.terminating_at or end),
        terminating=at(it.terminating_at or end),
        end=at(end),
        ran=output.duration(ran_from, end) if ran_from is not None else "",
        devices=device_annotations.format_assignments(it.devices),
    )
