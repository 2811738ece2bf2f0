"""The console's shell: the application of all routes, and the task that closes ended
sessions and unused lists.

::

    browser ── cookie ──▶ checks of security.py ──▶ session ──▶ route of pages/ ──▶ template
                                                      └─ token ──▶ REST: lists, watches, actions
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import structlog
from litestar import Litestar, Request, Response, get
from litestar.config.compression import CompressionConfig
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath

from stromboli.client import errors
from stromboli.console import security, templating
from stromboli.console.live_rows import LiveLists
from stromboli.console.login_limits import LoginLimits
from stromboli.console.oidc.provider import Provider
from stromboli.console.pages import (
    cluster,
    job,
    job_actions,
    job_logs,
    jobs,
    live,
    login,
    past,
    provider_login,
    system,
    topology,
    workloads,
)
from stromboli.console.pages.requests import Console, LoginRequiredError, Page, Web, explain
from stromboli.console.sessions import Sessions
from stromboli.console.settings import ConsoleSettings
from stromboli.shared.runtime import runtime

FORM_BYTES = 64 * 1024
POLL_EVERY_S = 10.0
"""Interval at which ended sessions and unused lists are closed."""
WITHOUT_SESSION = ("/static/", "/login", "/logout")
"""Prefixes of paths that need no token, so that requests to them renew none."""
KEPT = "public, max-age=31536000, immutable"
_log = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def running(
    settings: ConsoleSettings,
    clock: runtime.Clock,
    port: int,
    *,
    is_secure: bool = False,
    is_behind_proxy: bool = False,
) -> AsyncIterator[Litestar]:
    """Yields the application, and closes its sessions and lists at the end.

    ``port`` is a part of the cookie's name, since browsers send cookies to all ports of a host.
    ``is_secure``: browsers use https. ``is_behind_proxy``: requests come from a proxy that names
    their clients in a header."""
    lists = LiveLists(settings.most_watches)
    provider = Provider(settings) if settings.oidc_issuer else None
    sessions = Sessions(settings, lists, provider)
    # The prefix makes browsers refuse this cookie from other hosts of the domain; it needs https.
    cookie = "__Host-stromboli-console" if is_secure else f"stromboli-console-{port}"
    console = Console(
        settings=settings,
        sessions=sessions,
        lists=lists,
        clock=clock,
        cookie=cookie,
        is_secure=is_secure,
        provider=provider,
        limits=LoginLimits(),
        is_behind_proxy=is_behind_proxy,
    )
    cleaning = asyncio.create_task(_clean(sessions, lists))
    try:
        yield application(console)
    finally:
        cleaning.cancel()
        await asyncio.wait([cleaning])
        await sessions.close_all()
        await lists.close_all()


def application(console: Console) -> Litestar:
    """All routes with their checks, headers and error pages."""

    @get("/static/{digest:str}/{name:str}")
    async def static(digest: FromPath[str], name: FromPath[str]) -> Response[bytes]:
        file = templating.static_files().get(name)
        if file is None or file.digest != digest:
            raise HTTPException("this version has no such static file", status_code=404)
        return Response(file.content, media_type=file.media_type, headers={"cache-control": KEPT})

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        method = str(connection.scope.get("method"))
        why = security.refusal(method, connection.headers, console.settings.hosts)
        if why:
            raise HTTPException(why, status_code=403)
        if connection.url.path.startswith(WITHOUT_SESSION):
            return
        session = console.sessions.get(connection.cookies.get(console.cookie, ""))
        if session is not None:
            await console.sessions.renew(session)

    def without_session(request: Web, _: LoginRequiredError) -> Page:
        if request.url.path.startswith("/live/"):
            return _with_headers(Response(b"", status_code=401, media_type="text/plain"))
        return _with_headers(login.come_back_or_login(request))

    def refused(request: Web, error: errors.ClientError) -> Page:
        if isinstance(error, errors.UnauthenticatedError):  # the token has expired
            console.sessions.end(request.cookies.get(console.cookie, ""))
            return without_session(request, LoginRequiredError())
        status, headline, next_step = explain(error)
        violations = getattr(error, "violations", ())
        return _error_page(
            console, request, status, headline, str(error), next_step, violations=violations
        )

    def failed(request: Web, error: HTTPException) -> Page:
        headline = "Not found" if error.status_code == 404 else "This request was refused"
        return _error_page(
            console,
            request,
            error.status_code,
            headline,
            str(error.detail),
            "Go to the start page.",
        )

    def broken(request: Web, error: Exception) -> Page:
        _log.error("page failed", path=request.url.path, exc_info=error)
        why = "the console's log has the details"
        return _error_page(console, request, 500, "This page has an error", why, "Try again later.")

    handlers: dict[int | type[Exception], Any] = {  # Litestar does not await these
        LoginRequiredError: without_session,
        errors.ClientError: refused,
        HTTPException: failed,
        Exception: broken,
    }
    return Litestar(
        [
            static,
            *login.routes(console),
            *provider_login.routes(console),
            *jobs.routes(console),
            *job.routes(console),
            *job_actions.routes(console),
            *job_logs.routes(console),
            *workloads.routes(console),
            *cluster.routes(console),
            *topology.routes(console),
            *past.routes(console),
            *system.routes(console),
            *live.routes(console),
        ],
        guards=[guard],
        exception_handlers=handlers,
        after_request=_with_headers,
        compression_config=CompressionConfig(backend="gzip", exclude=["^/live/"]),
        openapi_config=None,
        logging_config=None,
        request_max_body_size=FORM_BYTES,
    )


def _error_page(
    console: Console,
    request: Request[Any, Any, Any],
    status: int,
    headline: str,
    detail: str,
    next_step: str,
    violations: Any = (),
) -> Page:
    session = console.sessions.get(request.cookies.get(console.cookie, ""))
    page = console.page(
        session,
        "error.html",
        status,
        headline=headline,
        detail=detail,
        next_step=next_step,
        violations=violations,
        retry=status == 503,
    )
    return _with_headers(page)


def _with_headers(response: Response[Any]) -> Response[Any]:
    for name, value in security.HEADERS.items():
        response.headers[name] = value
    return response


async def _clean(sessions: Sessions, lists: LiveLists) -> None:
    while True:
        await asyncio.sleep(POLL_EVERY_S)
        await sessions.close_ended()
        await lists.close_unused()
