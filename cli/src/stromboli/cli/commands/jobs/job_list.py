"""``strom job list``: jobs as a table or for programs."""

import functools
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.parameters import selectors
from stromboli.cli.render import job_view, listing, output, start_view
from stromboli.client.operations import calls
from stromboli.client.phases import PHASES, phase_of
from stromboli.shared.api import batch, kinds
from stromboli.shared.api.views.expected_start import ExpectedStart


class Order(StrEnum):
    """Sort orders of jobs."""

    NAME = "name"
    AGE = "age"
    PHASE = "phase"
    QUEUE = "queue"


def list_jobs(
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    queue: options.QueueFilter = None,
    phase: options.Phases = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Only jobs of this user.")
    ] = None,
    me: options.Me = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="DURATION", help="Only jobs submitted in the last 30m, 12h or 7d."
        ),
    ] = None,
    sort: Annotated[Order, typer.Option("--sort", help="Sort order.")] = Order.NAME,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="List at most N jobs.")
    ] = None,
    selector: options.Selector = "",
    watch: options.Watch = False,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List jobs.

    For pending jobs, the list shows the range of the expected start if there is a forecast.
    """
    phases = options.phases(phase, "--state") if phase else frozenset(PHASES)
    wanted = options.selector(selector)
    oldest = submitted_after(since, datetime.now(UTC))
    is_wide = output_format is output.Format.WIDE
    submitter = user

    def is_wanted(job: batch.Job) -> bool:
        return (
            phase_of(job) in phases
            and queue in (None, job.spec.queue)
            and options.is_submitted_by(submitter, job)
            and (job.metadata.creation_timestamp or oldest) >= oldest
            and selectors.matches(wanted, job.metadata.labels)
        )

    starts: dict[str, ExpectedStart] = {}

    def row(job: batch.Job, now: datetime) -> tuple[str, ...]:
        start = starts.get(f"{job.metadata.key}-{job.metadata.uid}")
        return (
            *job_view.row(job, now),
            *((start_view.cell(start, now),) if starts else ()),
            *(job_view.wide_cells(job, now) if is_wide else ()),
        )

    jobs = listing.Listing(
        kind=kinds.JOBS,
        what="jobs",
        headers=job_view.HEADERS + (job_view.WIDE_HEADERS if is_wide else ()),
        row=row,
        is_wanted=is_wanted,
        namespace=None if all_namespaces else namespace,
        state="PHASE",
        order=functools.partial(sort_key, sort),
        limit=limit,
    )
    with options.client(server) as client:
        submitter = options.submitter(client, is_me=me, user=user)
        if watch:
            listing.follow(client, jobs, output_format, calls.watch_jobs(jobs.namespace or ""))
            return
        raw_jobs = client.jobs(jobs.namespace)
        if output_format.is_table and raw_jobs:
            starts = client.expected_starts(jobs.namespace)
        if starts:
            headers = (*job_view.HEADERS, start_view.HEADER, *jobs.headers[len(job_view.HEADERS) :])
            jobs = msgspec.structs.replace(jobs, headers=headers)
        listing.show(client, jobs, output_format, raw_jobs)


def sort_key(order: Order, job: batch.Job) -> Any:
    """The sort key of a job; jobs that are equal by it are sorted by name. ``age``: youngest
    first."""
    if order is Order.AGE:
        created = job.metadata.creation_timestamp
        return -created.timestamp() if created else 0.0, listing.by_name(job)
    if order is Order.PHASE:
        return PHASES.index(phase_of(job)), listing.by_name(job)
    return job.spec.queue if order is Order.QUEUE else "", listing.by_name(job)


def submitted_after(since: str | None, now: datetime) -> datetime:
    """The earliest creation time of a listed job. Raises BadParameter."""
    if since is None:
        return datetime.min.replace(tzinfo=UTC)
    return now - timedelta(seconds=options.duration_s(since, "--since") or 0.0)
