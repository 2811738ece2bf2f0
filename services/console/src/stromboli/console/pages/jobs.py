"""The list of jobs."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from litestar import get
from litestar.types import ControllerRouterHandler

from stromboli.cli.render import start_view
from stromboli.client import errors, job_calls
from stromboli.console import templating
from stromboli.console.core import job_rows
from stromboli.console.pages import watches
from stromboli.console.pages.requests import Console, Page, Web, allowed, scoped_query_of
from stromboli.console.sessions import Session
from stromboli.shared.api.expected_start import ExpectedStart

STARTS_KEPT = timedelta(seconds=5)
"""How long expected starts are used again: forecasts are made less often."""
UID_CHARACTERS = 36
"""The name of a job's PodGroup ends with the job's uid."""


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The list of jobs."""

    @get("/jobs")
    async def jobs(request: Web) -> Page:
        session = console.session(request)
        filters = job_rows.read_filters(scoped_query_of(request, session))
        rows = await allowed(watches.opened(console, session, watches.jobs(filters.scope)))
        if isinstance(rows, errors.ForbiddenError):
            return console.choose_namespace(session, "jobs", filters.scope)
        selected = job_rows.select(rows.rows.values(), filters)
        groups = await allowed(watches.opened(console, session, watches.groups(filters.scope)))
        reasons = (
            {}
            if isinstance(groups, errors.ForbiddenError)
            else {it.job_uid: it.message for it in groups.rows.values() if it.message}
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
        )

    return [jobs]


async def _starts(session: Session, namespace: str, now: datetime) -> Mapping[str, ExpectedStart]:
    """The uid of a job -> when it is expected to start. Empty without the right to it, or while
    there is no forecast: the list is useful without."""
    kept = session.starts.get(namespace)
    if kept is not None and now - kept[0] < STARTS_KEPT:
        return kept[1]
    try:
        found = await session.client.send(job_calls.expected_starts(namespace))
    except errors.ResponseError:
        return {}
    starts = {it.pod_group[-UID_CHARACTERS:]: it for it in found.items}
    session.starts = {namespace: (now, starts)}  # of one namespace: viewers rarely change it
    return starts
