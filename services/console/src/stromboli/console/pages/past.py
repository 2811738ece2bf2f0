"""What ran, what it used, what was evicted and what changed, from the history."""

from collections.abc import Awaitable
from typing import Any

from litestar import get
from litestar.types import ControllerRouterHandler

from stromboli.client import errors
from stromboli.client.operations import accounting_calls, calls
from stromboli.console.core import (
    cluster_changes,
    deserved_usage,
    evictions,
    past_attempts,
    usage_rows,
)
from stromboli.console.pages.requests import (
    Console,
    Page,
    Web,
    allowed,
    query_of,
    redirect,
    scoped_query_of,
)
from stromboli.shared.api.views import accounting


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The pages of the history. They need the history service, which is optional."""

    @get("/history")
    async def history(request: Web) -> Page:
        session = console.session(request)
        filters = past_attempts.read_filters(scoped_query_of(request, session))
        call = accounting_calls.attempts(filters.query())
        response, problem = await read(session.client.send(call))
        if isinstance(response, errors.ForbiddenError):
            return console.choose_namespace(session, "history", filters.scope)
        return console.page(
            session,
            "history.html",
            section="history",
            filters=filters,
            problem=problem,
            rows=past_attempts.rows(response.attempts, console.clock()) if response else [],
            after=response.continue_ if response else "",
            is_complete=response is None or response.complete,
        )

    @get("/usage")
    async def usage(request: Web) -> Page:
        session = console.session(request)
        filters = usage_rows.read_filters(scoped_query_of(request, session), console.clock())
        call = accounting_calls.usage(filters.query())
        response, problem = await read(session.client.send(call))
        if isinstance(response, errors.ForbiddenError):
            return console.choose_namespace(session, "usage", filters.scope)
        return console.page(
            session,
            "usage.html",
            section="usage",
            filters=filters,
            ranges=usage_rows.ranges(console.clock()),
            problem=problem,
            keys=call.query["by"].split(","),
            rows=usage_rows.rows(response.usage, filters) if response else [],
            total=usage_rows.total(response.usage) if response else None,
            groups=len(response.usage) if response else 0,
            deserved=deserved_usage.rows(response.shares) if response else [],
            is_complete=response is None or response.complete,
        )

    @get("/evictions")
    async def moved(request: Web) -> Page:
        """The earlier path of the page of decisions, which links and bookmarks may have."""
        return redirect("/decisions", **query_of(request))

    @get("/decisions")
    async def decided(request: Web) -> Page:
        session = console.session(request)
        filters = evictions.read_filters(scoped_query_of(request, session))
        response, problem = await read(session.client.send(_evictions(filters)))
        if isinstance(response, errors.ForbiddenError):
            return console.choose_namespace(session, "decisions", filters.scope)
        return console.page(
            session,
            "decisions.html",
            section="decisions",
            filters=filters,
            problem=problem,
            rows=evictions.rows(response.evictions, filters.scope) if response else [],
            pairs=evictions.mutual(response.evictions, filters.scope) if response else [],
            after=response.continue_ if response else "",
            is_complete=response is None or response.complete,
        )

    @get("/changes")
    async def changes(request: Web) -> Page:
        session = console.session(request)
        filters = cluster_changes.read_filters(query_of(request))
        response, problem = await read(
            session.client.send(accounting_calls.changes(filters.query()))
        )
        if isinstance(response, errors.ForbiddenError):
            raise response  # objects of the cluster have no namespace that could be chosen
        return console.page(
            session,
            "changes.html",
            section="changes",
            filters=filters,
            problem=problem,
            rows=cluster_changes.rows(response.changes) if response else [],
            after=response.continue_ if response else "",
            is_complete=response is None or response.complete,
        )

    return [history, usage, moved, decided, changes]


def _evictions(filters: evictions.EvictionFilters) -> calls.Call[accounting.EvictionPage]:
    return accounting_calls.evictions(filters.query())


async def read(answer: Awaitable[Any]) -> tuple[Any, str]:
    """The answer of the history, or the reason why there is none, which the page shows below its
    filters: the history may be unavailable, or reject a filter."""
    try:
        return await allowed(answer), ""
    except (errors.UnavailableError, errors.UnreachableError, errors.RejectedError) as error:
        return None, error.reason
