"""The timeline of a job, from its status, its pods, Kubernetes' Events and its task history. Pure.

The same event of several pods within one second is one line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from stromboli.cli.render import log_lines, output, pod_status
from stromboli.client import phases
from stromboli.client.responses import KubernetesEvent
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.api.views.task_history import TaskAttempt

HEADERS = ("TIME", "AFTER", "OBJECT", "EVENT")
NAMES_SHOWN = 4


class Entry(msgspec.Struct, frozen=True):
    """An entry. ``who`` is the job, the short name of a pod, or several pods.

    ``rank`` orders entries within one second, the resolution of Kubernetes: the version of the
    job's last Event before it, the attempt, and the step of the attempt."""

    at: datetime
    who: str
    what: str
    rank: tuple[int, int, int] = (0, 0, 0)


SUBMITTED, CREATED, BOUND, STARTED, ENDED, STATUS = range(6)
"""The order of steps within one second; Events keep the order in which they were written."""
_LAST = 1 << 30
"""The attempt of an entry that comes after those of all attempts."""
_BEGINS = "Pending"
"""The phase in which a job's pods are created, initially and after each restart."""


def attempts_without_pod(
    attempts: Iterable[TaskAttempt], pods: Iterable[pod_status.Pod]
) -> list[TaskAttempt]:
    """The attempts whose pods are deleted, without succeeded ones: an array has thousands of
    them."""
    there = {pod.metadata.uid for pod in pods}
    return [it for it in attempts if it.state != "Succeeded" and it.pod_uid not in there]


def timeline_entries(
    job: batch.Job,
    pods: Sequence[pod_status.Pod],
    events: Iterable[KubernetesEvent],
    before: Iterable[TaskAttempt] = (),
) -> list[Entry]:
    """All entries, the earliest first. ``before``: attempts whose pods are deleted."""
    name = job.metadata.name
    # Events have whole seconds; within one, the resource version gives their order.
    events = tuple(sorted(events, key=lambda event: event.metadata.version))
    of_pods = [entry for pod in pods for entry in _entries_of_pod(pod, name)]
    recorded = frozenset(event.reason for event in events if event.involved_object.kind == "Job")
    together = _after_last_restart(_job_starts(events), _merge_pods(of_pods))
    tried = _entries_of_attempts(
        before, name, [one for one in events if one.involved_object.kind == "Job"]
    )
    entries = [
        *_entries_of_job(job, recorded),
        *_merge_pods(tried),
        *together,
        *_entries_of_events(events, name),
    ]
    return sorted(entries, key=lambda entry: (_second(entry.at), entry.rank, entry.at))


def _second(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def _job_starts(events: Iterable[KubernetesEvent]) -> dict[datetime, int]:
    """Second -> version of the last Event about a start or restart of the job."""
    return {
        _second(event.at): event.metadata.version
        for event in events
        if event.reason == _BEGINS and event.involved_object.kind == "Job" and event.at is not None
    }


def _entries_of_attempts(
    before: Iterable[TaskAttempt], job: str, of_job: Sequence[KubernetesEvent]
) -> Iterator[Entry]:
    """Entries of attempts whose pods are deleted. Their times are exact, so within a second each
    entry follows the job's Events up to that time: an end follows the restart that caused it."""
    for attempt in before:
        subject = attempt.pod.removeprefix(f"{job}-")
        exited = "ended" if attempt.exit_code is None else f"exited {attempt.exit_code}"
        reason = phases.attempt_in_words(attempt.reason, attempt.detail)
        why = f" ({reason})" if reason else ""
        for at, rank, what in (
            (attempt.created_at, CREATED, "created"),
            (attempt.bound_at, BOUND, f"bound to {attempt.node}"),
            (attempt.running_at, STARTED, "started"),
            (attempt.ended_at, ENDED, f"{exited}{why}"),
        ):
            if at is not None:
                behind = (
                    event.metadata.version
                    for event in of_job
                    if event.at is not None and _second(event.at) == _second(at) and event.at <= at
                )
                yield Entry(
                    at,
                    subject,
                    what + _attempt_label(attempt.attempt),
                    (max(behind, default=0), attempt.attempt, rank),
                )


def _attempt_label(attempt: int) -> str:
    return f", attempt {attempt}" if attempt > 1 else ""


def _after_last_restart(
    beginnings: Mapping[datetime, int], of_pods: Iterable[Entry]
) -> Iterator[Entry]:
    """Existing pods were created after the last restart: their entries of the same second follow
    it."""
    for entry in of_pods:
        version = beginnings.get(_second(entry.at), 0)
        yield msgspec.structs.replace(entry, rank=(version, *entry.rank[1:]))


def rows(entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    """Rows under ``HEADERS``. AFTER is the time since the first entry."""
    first = entries[0].at if entries else datetime.min.replace(tzinfo=UTC)
    return [
        (
            f"{entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            output.age(first, entry.at),
            entry.who,
            entry.what,
        )
        for entry in entries
    ]


def _entries_of_job(job: batch.Job, other_reasons: frozenset[str]) -> Iterator[Entry]:
    """The submission of the job, and the phases for which there is no Event; an Event has more
    details."""
    created = job.metadata.creation_timestamp
    user = job.metadata.annotation(keys.USER)
    if created is not None:
        yield Entry(
            created, "job", "submitted" + (f" by {user}" if user else ""), (0, 0, SUBMITTED)
        )
    for condition in job.status.conditions:
        if condition.last_transition_time and condition.status not in other_reasons:
            yield Entry(condition.last_transition_time, "job", condition.status, (0, _LAST, STATUS))
    state = job.status.state
    recorded = {(one.status, one.last_transition_time) for one in job.status.conditions}
    is_recorded = (
        state.phase,
        state.last_transition_time,
    ) in recorded or state.phase in other_reasons
    if state.last_transition_time and not is_recorded:
        why = phases.in_words(state.reason, state.message)
        text = state.phase + (f" ({why})" if why else "")
        yield Entry(state.last_transition_time, "job", text, (0, _LAST, STATUS))


def _entries_of_pod(pod: pod_status.Pod, job: str) -> Iterator[Entry]:
    attempt_text = pod.metadata.annotation(keys.ATTEMPT) or ""
    attempt = int(attempt_text) if attempt_text.isdecimal() else 1
    for entry in _entries_of_container_run(pod, log_lines.short_name(pod, job)):
        what = entry.what + _attempt_label(attempt)
        yield msgspec.structs.replace(entry, what=what, rank=(0, attempt, entry.rank[2]))


def _entries_of_container_run(pod: pod_status.Pod, subject: str) -> Iterator[Entry]:
    if pod.metadata.creation_timestamp is not None:
        yield Entry(pod.metadata.creation_timestamp, subject, "created", (0, 0, CREATED))
    for condition in pod.status.conditions:
        at = condition.last_transition_time
        if condition.type == "PodScheduled" and condition.status == "True" and at is not None:
            yield Entry(at, subject, f"bound to {pod.spec.node_name}", (0, 0, BOUND))
    for one in pod.status.container_statuses:
        for state in (one.last_state, one.state):
            began = state.running or state.terminated
            if began and began.started_at:
                yield Entry(began.started_at, subject, "started", (0, 0, STARTED))
            ended = state.terminated
            if ended and ended.finished_at:
                why = ": ".join(filter(None, (ended.reason, ended.message.strip())))
                text = f"exited {ended.exit_code}" + (f" ({why})" if why else "")
                yield Entry(ended.finished_at, subject, text, (0, 0, ENDED))
    yield from _entries_of_failed_pod(pod, subject)


def _entries_of_failed_pod(pod: pod_status.Pod, subject: str) -> Iterator[Entry]:
    """The failure of a pod without a container status: the node rejected it or was lost."""
    times = [one.last_transition_time for one in pod.status.conditions]
    known = [at for at in (pod.status.start_time, *times) if at is not None]
    if pod.status.phase == "Failed" and pod.status.reason and known:
        why = ": ".join(filter(None, (pod.status.reason, pod.status.message)))
        yield Entry(max(known), subject, f"failed ({why})", (0, 0, ENDED))


def _merge_pods(entries: Iterable[Entry]) -> Iterator[Entry]:
    groups: dict[tuple[datetime, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((_second(entry.at), entry.what), []).append(entry)
    for (_, what), members in groups.items():
        names = list(dict.fromkeys(entry.who for entry in members))
        at, rank = min(entry.at for entry in members), members[0].rank
        if len(names) <= NAMES_SHOWN:
            yield Entry(at, ", ".join(names), what, rank)
        else:
            listed = ", ".join(names[: NAMES_SHOWN - 1])
            yield Entry(at, f"{listed} and {len(names) - NAMES_SHOWN + 1} more", what, rank)


def _entries_of_events(events: Iterable[KubernetesEvent], job: str) -> Iterator[Entry]:
    for event in events:
        if event.at is None:
            continue
        about = event.involved_object
        subject = "job" if about.kind != "Pod" else about.name.removeprefix(f"{job}-")
        often = ""
        if event.count > 1 and event.first_timestamp is not None:
            often = f" ({event.count} times in {output.age(event.first_timestamp, event.at)})"
        yield Entry(
            event.at,
            subject,
            f"{event.reason}: {event.message.strip()}{often}",
            (event.metadata.version, 0, SUBMITTED)
            if event.metadata.version
            else (0, _LAST, STATUS),
        )
