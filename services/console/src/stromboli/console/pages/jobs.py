"""The list of jobs."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from litestar import get
from litestar.types import ControllerRouterHandler

from stromboli.cli.render import start_view
from stromboli.client import errors
from stromboli.client.operations import job_calls
from stromboli.console import templating
from stromboli.console.core import job_rows
from stromboli.console.pages import watches
from stromboli.console.pages.requests import Console, Page, Web, allowed, gather, scoped_query_of
from stromboli.console.sessions import Session
from stromboli.shared.api.views.expected_start import ExpectedStart

STARTS_KEPT = timedelta(seconds=5)
"""How long expected starts are cached: forecasts are made less often."""
UID_CHARACTERS = 36
"""The name of a job's PodGroup ends with the job's uid."""


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The list of jobs."""

    @get("/jobs")
    async def jobs(request: Web) -> Page:
        session = console.session(request)
        filters = job_rows.read_filters(scoped_query_of(request, session))
        wanted = (watches.jobs(filters.scope), watches.groups(filters.scope))
        rows, groups = await gather(
            *(allowed(watches.opened_in_part(console, session, it)) for it in wanted)
        )
        if isinstance(rows, errors.ForbiddenError):
            return console.choose_namespace(session, "jobs", filters.scope)
        selected = job_rows.select(rows.rows.values(), filters)
        reasons = (
            {}
            if isinstance(groups, errors.ForbiddenError)
            else _reasons(selected.rows, groups.rows)
        )
        now = console.clock()
        waiting = [row.uid for row in selected.rows if row.phase == "Pending"]
        starts = await _starts(session, filters.scope, now) if waiting else {}
        return console.page(
            session,
            "jobs.html",
            section="jobs",
            live="/live/jobs" + templating.query(job_rows.Filters(namespace=filters.namespace)),
            filters=filters,
            jobs=selected,
            reasons=reasons,
            starts={uid: start_view.cell(starts.get(uid), now) for uid in waiting},
            is_broken=rows.is_broken,
            is_loading=rows.is_loading,
        )

    return [jobs]


def _reasons(
    rows: Iterable[job_rows.JobRow], groups: Mapping[str, job_rows.GroupRow]
) -> Mapping[str, str]:
    """The uid of a job -> why its PodGroup is pending. O(shown jobs)."""
    job_groups = ((row.uid, groups.get(f"{row.key}-{row.uid}")) for row in rows)
    return {uid: group.message for uid, group in job_groups if group is not None and group.message}


async def _starts(session: Session, namespace: str, now: datetime) -> Mapping[str, ExpectedStart]:
    """The uid of a job -> when it is expected to start. Empty without the right to read
    that, or while there is no forecast: the list is useful without it."""
    kept = session.starts.get(namespace)
    if kept is not None and now - kept[0] < STARTS_KEPT:
        return kept[1]
    try:
        response = await session.client.send(job_calls.expected_starts(namespace))
    except errors.ResponseError:
        return {}
    starts = {it.pod_group[-UID_CHARACTERS:]: it for it in response.items}
    session.starts = {namespace: (now, starts)}  # of one namespace: viewers rarely change it
    return starts
