"""What happened to a job, in the order of time, from its status, its pods, Kubernetes' Events and
the history of what was tried before. Pure.

What happened to many pods within one second is one line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from stromboli.cli.render import log_lines, output, pod_status
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.api.meta import ObjectMeta, Part
from stromboli.shared.api.task_history import TaskAttempt

HEADERS = ("TIME", "AFTER", "WHO", "WHAT")
NAMES_SHOWN = 4


class InvolvedObject(Part, frozen=True, kw_only=True):
    """Whom an event is about."""

    kind: str = ""
    name: str = ""


class Event(Part, frozen=True, kw_only=True):
    """A Kubernetes Event."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: InvolvedObject = InvolvedObject()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    event_time: datetime | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None

    @property
    def at(self) -> datetime | None:
        """When it was seen last; of one that was seen once, to the microsecond if that is known."""
        last = self.last_timestamp or self.metadata.creation_timestamp
        return self.event_time or last if self.count <= 1 else last or self.event_time


class Entry(msgspec.Struct, frozen=True):
    """One thing that happened. ``who``: the job, a pod by its short name, or pods in number.
    ``rank`` orders what happened within one second, which is all that Kubernetes keeps: behind
    which version of the job's Events, and what of it comes before what."""

    at: datetime
    who: str
    what: str
    rank: tuple[int, int] = (0, 0)


SUBMITTED, MADE, BOUND, RUNS, ENDED, TOLD = range(6)
"""What comes before what within one second; Events stand as they were written."""
_BEGINS = "Pending"
"""The phase in which a job's pods are made, at first and after each restart."""


def attempts_without_pod(
    attempts: Iterable[TaskAttempt], pods: Iterable[pod_status.Pod]
) -> list[TaskAttempt]:
    """The attempts whose pods are no longer there, but those that succeeded: an array has thousands
    of them."""
    there = {pod.metadata.uid for pod in pods}
    return [it for it in attempts if it.state != "Succeeded" and it.pod_uid not in there]


def timeline_entries(
    job: batch.Job,
    pods: Sequence[pod_status.Pod],
    events: Iterable[Event],
    before: Iterable[TaskAttempt] = (),
) -> list[Entry]:
    """All that is known, the earliest first. ``before``: attempts whose pods are gone."""
    name = job.metadata.name
    # Events have whole seconds: within one, they stand in the order in which they were written.
    events = tuple(sorted(events, key=lambda event: event.metadata.version))
    of_pods = [entry for pod in pods for entry in _entries_of_pod(pod, name)]
    told = frozenset(event.reason for event in events if event.involved_object.kind == "Job")
    together = _after_last_restart(_job_starts(events), _merge_pods(of_pods))
    tried = _entries_of_attempts(
        before, name, [one for one in events if one.involved_object.kind == "Job"]
    )
    found = [
        *_entries_of_job(job, told),
        *_merge_pods(tried),
        *together,
        *_entries_of_events(events, name),
    ]
    return sorted(found, key=lambda entry: (_second(entry.at), entry.rank, entry.at))


def _second(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def _job_starts(events: Iterable[Event]) -> dict[datetime, int]:
    """Second -> version of the last Event in it that says that the job begins (again)."""
    return {
        _second(event.at): event.metadata.version
        for event in events
        if event.reason == _BEGINS and event.involved_object.kind == "Job" and event.at is not None
    }


def _entries_of_attempts(
    before: Iterable[TaskAttempt], job: str, of_job: Sequence[Event]
) -> Iterator[Entry]:
    """Attempts of which only the history is left. Its times are exact, so within a second each
    stands behind what the job's Events told until then: an end behind the restart that asked for
    it."""
    for attempt in before:
        who = attempt.pod.removeprefix(f"{job}-")
        exit_code = "" if attempt.exit_code is None else f" with {attempt.exit_code}"
        why = f" ({attempt.reason})" if attempt.reason else ""
        for at, rank, what in (
            (attempt.created_at, MADE, "made"),
            (attempt.bound_at, BOUND, f"bound to {attempt.node}"),
            (attempt.running_at, RUNS, "runs"),
            (attempt.ended_at, ENDED, f"ended{exit_code}{why}"),
        ):
            if at is not None:
                behind = (
                    event.metadata.version
                    for event in of_job
                    if event.at is not None and _second(event.at) == _second(at) and event.at <= at
                )
                yield Entry(
                    at, who, what + _attempt_label(attempt.attempt), (max(behind, default=0), rank)
                )


def _attempt_label(attempt: int) -> str:
    return f", attempt {attempt}" if attempt > 1 else ""


def _after_last_restart(
    beginnings: Mapping[datetime, int], of_pods: Iterable[Entry]
) -> Iterator[Entry]:
    """Pods that are there were made after the last restart: what became of them within the same
    second stands behind it."""
    for entry in of_pods:
        version = beginnings.get(_second(entry.at), 0)
        yield msgspec.structs.replace(entry, rank=(version, entry.rank[1]))


def rows(found: Sequence[Entry]) -> list[tuple[str, ...]]:
    """Under ``HEADERS``; AFTER is the time since the first entry."""
    first = found[0].at if found else datetime.min.replace(tzinfo=UTC)
    return [
        (
            f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            output.age(first, entry.at),
            entry.who,
            entry.what,
        )
        for entry in found
    ]


def _entries_of_job(job: batch.Job, told_otherwise: frozenset[str]) -> Iterator[Entry]:
    """Phases but those of which an Event tells, with more words."""
    created = job.metadata.creation_timestamp
    user = job.metadata.annotation(keys.USER)
    if created is not None:
        yield Entry(created, "job", "submitted" + (f" by {user}" if user else ""), (0, SUBMITTED))
    for condition in job.status.conditions:
        if condition.last_transition_time and condition.status not in told_otherwise:
            yield Entry(condition.last_transition_time, "job", condition.status, (0, TOLD))
    state = job.status.state
    told = {(one.status, one.last_transition_time) for one in job.status.conditions}
    is_told = (state.phase, state.last_transition_time) in told or state.phase in told_otherwise
    if state.last_transition_time and not is_told:
        why = ": ".join(filter(None, (state.reason, state.message)))
        text = state.phase + (f" ({why})" if why else "")
        yield Entry(state.last_transition_time, "job", text, (0, TOLD))


def _entries_of_pod(pod: pod_status.Pod, job: str) -> Iterator[Entry]:
    said = pod.metadata.annotation(keys.ATTEMPT) or ""
    nth = _attempt_label(int(said) if said.isdecimal() else 1)
    for entry in _entries_of_container_run(pod, log_lines.short_name(pod, job)):
        yield msgspec.structs.replace(entry, what=entry.what + nth)


def _entries_of_container_run(pod: pod_status.Pod, who: str) -> Iterator[Entry]:
    if pod.metadata.creation_timestamp is not None:
        yield Entry(pod.metadata.creation_timestamp, who, "made", (0, MADE))
    for condition in pod.status.conditions:
        at = condition.last_transition_time
        if condition.type == "PodScheduled" and condition.status == "True" and at is not None:
            yield Entry(at, who, f"bound to {pod.spec.node_name}", (0, BOUND))
    for one in pod.status.container_statuses:
        for state in (one.last_state, one.state):
            began = state.running or state.terminated
            if began and began.started_at:
                yield Entry(began.started_at, who, "runs", (0, RUNS))
            ended = state.terminated
            if ended and ended.finished_at:
                why = ": ".join(filter(None, (ended.reason, ended.message.strip())))
                text = f"ended with {ended.exit_code}" + (f" ({why})" if why else "")
                yield Entry(ended.finished_at, who, text, (0, ENDED))
    yield from _entries_of_failed_pod(pod, who)


def _entries_of_failed_pod(pod: pod_status.Pod, who: str) -> Iterator[Entry]:
    """Why a pod failed, where no container says so: the node refused it, or lost it."""
    times = [one.last_transition_time for one in pod.status.conditions]
    known = [at for at in (pod.status.start_time, *times) if at is not None]
    if pod.status.phase == "Failed" and pod.status.reason and known:
        why = ": ".join(filter(None, (pod.status.reason, pod.status.message)))
        yield Entry(max(known), who, f"failed ({why})", (0, ENDED))


def _merge_pods(found: Iterable[Entry]) -> Iterator[Entry]:
    groups: dict[tuple[datetime, str], list[Entry]] = {}
    for entry in found:
        groups.setdefault((_second(entry.at), entry.what), []).append(entry)
    for (_, what), members in groups.items():
        names = list(dict.fromkeys(entry.who for entry in members))
        at, rank = min(entry.at for entry in members), members[0].rank
        if len(names) <= NAMES_SHOWN:
            yield Entry(at, ", ".join(names), what, rank)
        else:
            listed = ", ".join(names[: NAMES_SHOWN - 1])
            yield Entry(at, f"{listed} and {len(names) - NAMES_SHOWN + 1} more", what, rank)


def _entries_of_events(events: Iterable[Event], job: str) -> Iterator[Entry]:
    for event in events:
        if event.at is None:
            continue
        about = event.involved_object
        who = "job" if about.kind != "Pod" else about.name.removeprefix(f"{job}-")
        often = ""
        if event.count > 1 and event.first_timestamp is not None:
            often = f" ({event.count} times in {output.age(event.first_timestamp, event.at)})"
        yield Entry(
            event.at,
            who,
            f"{event.reason}: {event.message.strip()}{often}",
            (event.metadata.version, SUBMITTED if event.metadata.version else TOLD),
        )
