"""Attempts of all jobs that ran, from the history: filters from the URL and rows. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import ClassVar

import msgspec

from stromboli.cli.render import output
from stromboli.console.core import url_filters
from stromboli.console.core.url_filters import UrlFilters, word
from stromboli.shared import device_annotations
from stromboli.shared.api.views import accounting, efficiency

PAGE_ROWS = 100
MOST_TOKEN_CHARACTERS = 512
"""Maximum characters that REST accepts in the token of a page."""
HOUR_S = 3600.0


class AttemptFilters(UrlFilters, frozen=True, kw_only=True):
    """The filters of the list. ``since`` and ``until`` are days (UTC), both included: attempts that
    existed then. ``after``: the token of the page."""

    place: ClassVar[str] = "after"
    job: str = ""
    uid: str = ""
    user: str = ""
    queue: str = ""
    node: str = ""
    state: str = ""
    since: str = ""
    until: str = ""
    after: str = ""

    def query(self) -> accounting.AttemptQuery:
        """These filters as a query to REST."""
        return accounting.AttemptQuery(
            namespace=self.scope,
            job=self.job,
            uid=self.uid,
            user=self.user,
            queue=self.queue,
            node=self.node,
            states=(self.state,) if self.state else (),
            since=url_filters.begin(self.since) if self.since else None,
            until=url_filters.end(self.until) if self.until else None,
            limit=PAGE_ROWS,
            after=self.after,
        )


class PastAttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with texts: how long it was pending, how long it ran, and what it used."""

    attempt: accounting.Attempt
    waited: str
    ran: str
    cpu_hours: str
    gpu_hours: str
    devices: str
    confirmed: str = ""
    used: str = ""


def read_filters(query: Mapping[str, str]) -> AttemptFilters:
    """The filters of a URL's query. Invalid values, as from a typo in the URL, are ignored."""
    state = word(query, "state")
    return AttemptFilters(
        namespace=word(query, "namespace"),
        job=word(query, "job"),
        uid=word(query, "uid"),
        user=word(query, "user"),
        queue=word(query, "queue"),
        node=word(query, "node"),
        state=state if state in accounting.STATES else "",
        since=url_filters.day(query, "since"),
        until=url_filters.day(query, "until"),
        after=query.get("after", "")[:MOST_TOKEN_CHARACTERS],
    )


def rows(attempts: Iterable[accounting.Attempt], now: datetime) -> list[PastAttemptRow]:
    """The attempts as rows, in their order."""
    return [
        PastAttemptRow(
            attempt=it,
            waited=_length(it.submitted_at, it.allocated_at or it.ended_at or now),
            ran=_length(it.started_at, it.ended_at or now),
            cpu_hours=hours(it.cpu_seconds),
            gpu_hours=hours(it.gpu_seconds),
            devices=device_annotations.format_assignments(it.devices),
            confirmed=confirmed(it),
            used=used(it),
        )
        for it in attempts
    ]


def confirmed(attempt: accounting.Attempt) -> str:
    """What the kubelet of an attempt confirmed: ``NUMA 0,1; cpu 0-3; gpu GPU-a``; empty if that is
    not known."""
    cpu_assignments = {"cpu": (attempt.exclusive_cpus,)} if attempt.exclusive_cpus else {}
    cells = ",".join(map(str, attempt.numa_nodes))
    parts = (
        f"NUMA {cells}" if cells else "",
        device_annotations.format_assignments(cpu_assignments | attempt.confirmed_devices),
    )
    return "; ".join(filter(None, parts))


def used(attempt: accounting.Attempt) -> str:
    """What an attempt used of its requests: ``CPU 30 %, memory 1.2 GiB (60 %), GPU 85 %``; empty if
    it was not measured."""
    summary = efficiency.of_attempts((attempt,))
    parts = [("CPU", summary.cpu), ("GPU", summary.gpu)]
    words = [f"{name} {part.percent}" for name, part in parts if part is not None and part.percent]
    if summary.memory is not None:
        share = f" ({summary.memory.percent})" if summary.memory.percent else ""
        words.insert(1, f"memory {efficiency.format_bytes(summary.memory.used)}{share}")
    return ", ".join(words)


def hours(seconds: float) -> str:
    """Seconds as hours; empty for 0."""
    return f"{seconds / HOUR_S:.2f}" if seconds else ""


def _length(began: datetime | None, ended: datetime) -> str:
    return "" if began is None else output.duration(began, ended)
