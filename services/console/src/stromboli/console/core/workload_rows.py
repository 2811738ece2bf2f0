"""Flows and crons as rows of lists, and one cron in full. Pure."""

import zoneinfo
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from stromboli.cli.render import workload_view
from stromboli.console.core.url_filters import UrlFilters, word
from stromboli.shared.api import flow

MOST_ROWS = 200
"""Flows, and crons, that a page shows; the search finds the others."""
NEXT_TIMES = 5


class WorkloadFilters(UrlFilters, frozen=True, kw_only=True):
    """The filters of both lists. ``q``: a part of the name."""

    q: str = ""


class FlowEntry(msgspec.Struct, frozen=True):
    """A flow in a list."""

    flow: flow.JobFlow

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.flow.metadata.key


class CronEntry(msgspec.Struct, frozen=True):
    """A cron in a list."""

    cron: flow.CronJob

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.cron.metadata.key


class FlowRow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with the number of its jobs by state."""

    namespace: str
    name: str
    phase: str
    jobs: int
    running: int
    completed: int
    failed: int
    created: datetime | None


class CronRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cron with its times; ``next`` is None for one that is suspended or never due again."""

    namespace: str
    name: str
    schedule: str
    zone: str
    is_suspended: bool
    active: tuple[str, ...]
    last: datetime | None
    last_success: datetime | None
    next: datetime | None


def read_filters(query: Mapping[str, str]) -> WorkloadFilters:
    """The filters of a URL's query."""
    return WorkloadFilters(namespace=word(query, "namespace"), q=word(query, "q"))


def flow_rows(flow_entries: Iterable[FlowEntry], q: str) -> list[FlowRow]:
    """The flows whose key contains ``q``: running ones first, then from newest to oldest."""
    rows = [_flow_row(it.flow) for it in flow_entries if q.lower() in it.key.lower()]
    return sorted(rows, key=lambda it: (it.phase != "Running", -_seconds(it.created), it.name))


def cron_rows(cron_entries: Iterable[CronEntry], q: str, now: datetime) -> list[CronRow]:
    """The crons whose key contains ``q``, by their next time."""
    rows = [cron_row(it.cron, now) for it in cron_entries if q.lower() in it.key.lower()]
    return sorted(rows, key=lambda it: (it.next is None, _seconds(it.next), it.name))


def cron_row(cron: flow.CronJob, now: datetime) -> CronRow:
    """A cron with its times."""
    return CronRow(
        namespace=cron.metadata.namespace,
        name=cron.metadata.name,
        schedule=cron.spec.schedule,
        zone=cron.spec.time_zone or "UTC",
        is_suspended=bool(cron.spec.suspend),
        active=tuple(it.name for it in cron.status.active),
        last=cron.status.last_schedule_time,
        last_success=cron.status.last_successful_time,
        next=workload_view.next_time(cron, now),
    )


def next_times(cron: flow.CronJob, now: datetime) -> list[tuple[datetime, str]]:
    """The next times of a cron, each with the text that a clock in its zone shows."""
    times: list[tuple[datetime, str]] = []
    at = now
    while len(times) < NEXT_TIMES:
        coming = workload_view.next_time(cron, at)
        if coming is None:
            break
        zone = zoneinfo.ZoneInfo(cron.spec.time_zone or "UTC")
        times.append((coming, f"{coming.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"))
        at = coming
    return times


def _flow_row(job_flow: flow.JobFlow) -> FlowRow:
    status = job_flow.status
    return FlowRow(
        namespace=job_flow.metadata.namespace,
        name=job_flow.metadata.name,
        phase=workload_view.flow_phase(job_flow),
        jobs=len({entry.name for entry in job_flow.spec.flows}),
        running=len(status.running_jobs),
        completed=len(status.completed_jobs),
        failed=len(status.failed_jobs) + len(status.terminated_jobs),
        created=job_flow.metadata.creation_timestamp,
    )


def _seconds(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()
