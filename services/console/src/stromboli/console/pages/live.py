"""Server-sent events that report a change of what a page shows. They carry no data: the page loads
itself again, so that there is one way to render it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from litestar import get
from litestar.params import FromPath
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

from stromboli.client import errors
from stromboli.console.core import job_rows, workload_rows
from stromboli.console.live_rows import LiveRows, Watched, ticks
from stromboli.console.pages import watches
from stromboli.console.pages.requests import Console, Web, allowed, query_of
from stromboli.console.sessions import Session

EVENT_STREAM = "text/event-stream"
STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
CHANGED = b"event: changed\ndata: \n\n"
OPENED = b": open\n\n"
CLOCK_EVERY_S = 5.0
ALIVE = b": alive\n\n"


def routes(console: Console) -> list[ControllerRouterHandler]:
    """A stream for each page."""

    async def stream(session: Session, *wanted: Watched[Any]) -> Stream:
        """Changes of those lists that the viewer may read."""
        results = [await allowed(watches.opened(console, session, it)) for it in wanted]
        lists = [it for it in results if not isinstance(it, errors.ForbiddenError)]
        return Stream(_events(session, lists), media_type=EVENT_STREAM, headers=STREAM_HEADERS)

    async def _events(session: Session, lists: list[LiveRows[Any]]) -> AsyncIterator[bytes]:
        yield OPENED
        if not lists:
            return
        async for has_changed in ticks(lists):
            if not await console.continues(session):
                return
            yield CHANGED if has_changed else ALIVE

    @get("/live/jobs")
    async def jobs(request: Web) -> Stream:
        filters = job_rows.read_filters(query_of(request))
        session = console.session(request)
        return await stream(session, watches.jobs(filters.scope), watches.groups(filters.scope))

    @get("/live/job/{namespace:str}/{name:str}")
    async def job(request: Web, namespace: FromPath[str], name: FromPath[str]) -> Stream:
        return await stream(console.session(request), *watches.of_job(namespace, name))

    @get("/live/overview")
    async def overview(request: Web) -> Stream:
        session = console.session(request)
        return await stream(session, *watches.of_overview(session.namespace))

    @get("/live/queues")
    async def queues(request: Web) -> Stream:
        return await stream(console.session(request), watches.queues(), watches.groups(""))

    @get("/live/nodes")
    async def nodes(request: Web) -> Stream:
        return await stream(console.session(request), watches.pods(""))

    @get("/live/clock")
    async def clock(request: Web) -> Stream:
        """For pages without a watch: reports a change every ``CLOCK_EVERY_S``."""
        session = console.session(request)
        return Stream(_ticking(session), media_type=EVENT_STREAM, headers=STREAM_HEADERS)

    async def _ticking(session: Session) -> AsyncIterator[bytes]:
        yield OPENED
        while await console.continues(session):
            await asyncio.sleep(CLOCK_EVERY_S)
            yield CHANGED

    @get("/live/flows")
    async def flows(request: Web) -> Stream:
        session = console.session(request)
        scope = workload_rows.read_filters(query_of(request)).scope
        return await stream(session, watches.flows(scope), watches.crons(scope))

    return [jobs, job, overview, queues, nodes, clock, flows]
