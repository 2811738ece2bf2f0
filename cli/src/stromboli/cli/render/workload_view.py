"""Flows, templates and crons as rows of a list, and one of them in full. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from stromboli.cli.render import output
from stromboli.shared import decoding
from stromboli.shared.api import flow
from stromboli.shared.api.meta import ObjectMeta
from stromboli.shared.formats import counts
from stromboli.shared.formats import cron as schedules

FLOW_HEADERS = ("NAME", "PHASE", "JOBS", "RUNNING", "COMPLETED", "FAILED", "AGE")
TEMPLATE_HEADERS = ("NAME", "QUEUE", "TASKS", "PODS", "JOBS", "AGE")
CRON_HEADERS = ("NAME", "SCHEDULE", "ZONE", "SUSPENDED", "ACTIVE", "LAST", "NEXT", "AGE")
FLOW_JOB_HEADERS = ("JOB", "PHASE", "AFTER", "STARTED", "ENDED", "RETRIES")
EVENT_HEADERS = ("TYPE", "REASON", "AGE", "MESSAGE")
MOST_EVENTS = 5
"""Maximum Events that are shown: the last ones usually explain why there is no progress."""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Kubernetes Event that are shown."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""
    message: str = ""
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None

    @property
    def at(self) -> datetime | None:
        """When the event last occurred."""
        return self.last_timestamp or self.event_time or self.first_timestamp


_EVENT = decoding.decoder_of(Event)


def flow_row(job_flow: flow.JobFlow, now: datetime) -> tuple[str, ...]:
    """A flow as a row under ``FLOW_HEADERS``."""
    status = job_flow.status
    return (
        job_flow.metadata.name,
        flow_phase(job_flow),
        str(len({entry.name for entry in job_flow.spec.flows})),
        str(len(status.running_jobs)),
        str(len(status.completed_jobs)),
        str(len(status.failed_jobs) + len(status.terminated_jobs)),
        output.age(job_flow.metadata.creation_timestamp, now),
    )


def flow_phase(job_flow: flow.JobFlow) -> str:
    """The flow's phase; Pending before its first reconciliation."""
    return job_flow.status.state.phase or "Pending"


def template_row(template: flow.JobTemplate, now: datetime) -> tuple[str, ...]:
    """A template as a row under ``TEMPLATE_HEADERS``."""
    spec = _spec(template.spec)
    tasks = [task for task in spec.get("tasks") or () if isinstance(task, dict)]
    return (
        template.metadata.name,
        str(spec.get("queue") or "default"),
        str(len(tasks)),
        str(sum(int(task.get("replicas") or 0) for task in tasks)),
        str(len(template.status.job_depends_on_list)),
        output.age(template.metadata.creation_timestamp, now),
    )


def cron_row(cron: flow.CronJob, now: datetime) -> tuple[str, ...]:
    """A cron as a row under ``CRON_HEADERS``."""
    coming = next_time(cron, now)
    return (
        cron.metadata.name,
        cron.spec.schedule,
        cron.spec.time_zone or "UTC",
        "yes" if cron.spec.suspend else "no",
        str(len(cron.status.active)),
        output.age(cron.status.last_schedule_time, now),
        "" if coming is None else output.age(now, coming),
        output.age(cron.metadata.creation_timestamp, now),
    )


def next_time(cron: flow.CronJob, now: datetime) -> datetime | None:
    """When the next job is due, by this machine's clock; None for never."""
    if cron.spec.suspend:
        return None
    created = cron.metadata.creation_timestamp or now
    try:
        schedule = schedules.Schedule(cron.spec.schedule, cron.spec.time_zone, created)
    except ValueError:  # the server validates it, or reports it in an Event
        return None
    return schedule.next_after(now)


def flow_facts(job_flow: flow.JobFlow, now: datetime) -> list[str]:
    """The status of the flow, one fact per line."""
    return output.facts(
        ("flow", job_flow.metadata.key),
        ("phase", flow_phase(job_flow)),
        ("jobs", job_flow.spec.job_retain_policy or "retain"),
        ("created", _time(job_flow.metadata.creation_timestamp)),
    )


def flow_jobs(job_flow: flow.JobFlow, now: datetime) -> list[tuple[str, ...]]:
    """The flow's jobs under ``FLOW_JOB_HEADERS``, in the order of the manifest."""
    stories = {it.name: it for it in job_flow.status.job_status_list}
    rows: list[tuple[str, ...]] = []
    for entry in {entry.name: entry for entry in job_flow.spec.flows}.values():
        name = f"{job_flow.metadata.name}-{entry.name}"
        story = stories.get(name, flow.FlowJobStatus(name=name))
        waits = entry.depends_on
        rows.append(
            (
                name,
                story.state,
                "" if waits is None else ",".join(waits.targets),
                output.age(story.start_timestamp, now),
                output.age(story.end_timestamp, now),
                str(story.restart_count),
            )
        )
    return rows


def template_facts(template: flow.JobTemplate, now: datetime) -> list[str]:
    """The jobs that the template creates, and those that were created from it."""
    _, queue, tasks, pods, _, _ = template_row(template, now)
    return output.facts(
        ("template", template.metadata.key),
        ("queue", queue),
        ("pods", f"{pods} in {counts.counted(int(tasks), 'task')}"),
        ("jobs", ", ".join(template.status.job_depends_on_list) or "none"),
        ("created", _time(template.metadata.creation_timestamp)),
    )


def cron_facts(cron: flow.CronJob, now: datetime) -> list[str]:
    """The schedule of the cron, and its recent jobs."""
    spec, status = cron.spec, cron.status
    deadline = spec.starting_deadline_seconds
    coming = "suspended" if spec.suspend else _time(next_time(cron, now))
    return output.facts(
        ("cron", cron.metadata.key),
        ("schedule", f"{spec.schedule} ({spec.time_zone or 'UTC'})"),
        ("next", coming),
        ("last", _time(status.last_schedule_time)),
        ("succeeded", _time(status.last_successful_time)),
        ("active", ", ".join(it.name for it in status.active) or "none"),
        ("concurrency", spec.concurrency_policy),
        ("deadline", "none" if deadline is None else f"{deadline} s after the scheduled time"),
        ("created", _time(cron.metadata.creation_timestamp)),
    )


def event_rows(raws: Iterable[bytes | msgspec.Raw], now: datetime) -> list[tuple[str, ...]]:
    """The last Events under ``EVENT_HEADERS``, oldest first."""
    beginning = datetime.min.replace(tzinfo=UTC)
    # Within a second they are in the order in which they were written.
    events = sorted(
        map(_EVENT.decode, raws),
        key=lambda event: (event.at or beginning, event.metadata.version),
    )
    return [
        (event.type, event.reason, output.age(event.at, now), event.message)
        for event in events[-MOST_EVENTS:]
    ]


def _spec(raw: msgspec.Raw) -> dict[str, Any]:
    spec = msgspec.json.decode(raw)
    return spec if isinstance(spec, dict) else {}


def _time(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S %Z}"
