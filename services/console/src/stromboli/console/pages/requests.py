"""What all routes share: the session of a request, pages as responses, errors as pages."""

import asyncio
import contextlib
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from stromboli.client import errors
from stromboli.client.responses import KubernetesEvent
from stromboli.console import templating
from stromboli.console.core import job_details
from stromboli.console.live_rows import LiveLists
from stromboli.console.login_limits import LoginLimits
from stromboli.console.oidc.provider import Provider
from stromboli.console.sessions import Session, Sessions
from stromboli.console.settings import ConsoleSettings
from stromboli.shared import decoding
from stromboli.shared.runtime import runtime

HTML = "text/html"  # Litestar adds the charset
Web = Request[Any, Any, Any]
Page = Response[bytes]


class Console(msgspec.Struct, frozen=True):
    """The state that all routes share. ``cookie``: the name of the session's cookie; ``provider``:
    the OpenID Connect provider, None without one."""

    settings: ConsoleSettings
    sessions: Sessions
    lists: LiveLists
    clock: runtime.Clock
    cookie: str
    is_secure: bool
    provider: Provider | None
    limits: LoginLimits
    is_behind_proxy: bool

    def session(self, request: Web) -> Session:
        """The session of a request. Raises LoginRequiredError."""
        session = self.sessions.get(request.cookies.get(self.cookie, ""))
        if session is None:
            raise LoginRequiredError
        return session

    async def continues(self, session: Session) -> bool:
        """Whether the session of a stream is valid, once tokens that expire soon are renewed. If it
        is not, the next request of the page reports why."""
        if self.sessions.get(session.id) is None:
            return False
        try:
            await self.sessions.renew(session)
        except errors.ClientError:
            return False
        return True

    def page(
        self, session: Session | None, template: str, status: int = 200, /, **values: Any
    ) -> Page:
        """Renders a page for a session, with the values of the layout. Caches must not store it."""
        base = {
            "now": self.clock(),
            "session": session,
            "read_only": self.settings.read_only,
            "open_to_all": self.settings.open_to_all,
            "section": "",
            "live": "",
            "follows": False,
        }
        return Response(
            templating.page(template, {**base, **values}),
            media_type=HTML,
            status_code=status,
            headers={"cache-control": "no-store"},
        )

    def choose_namespace(self, session: Session, section: str, namespace: str) -> Page:
        """Asks for a namespace, since the viewer may not list this one (empty: all of them)."""
        return self.page(
            session, "choose_namespace.html", 403, section=section, namespace=namespace
        )


class LoginRequiredError(Exception):
    """The request has no session."""


def redirect(path: str, **query: str) -> Page:
    """Lead the browser to a path of this console with GET."""
    location = path + ("?" + urlencode(query) if query else "")
    return Response(b"", status_code=303, headers={"location": location}, media_type=HTML)


def lead_to(address: str) -> Page:
    """A page that leads the browser to an address, also of another site, without a redirect."""
    return Response(
        templating.page("lead.html", {"address": address}),
        media_type=HTML,
        headers={"cache-control": "no-store"},
    )


def query_of(request: Web) -> dict[str, str]:
    """The query of the URL; of a name that occurs repeatedly, the last value."""
    return {name: values[-1] for name, values in request.query_params.dict().items()}


def scoped_query_of(request: Web, session: Session) -> dict[str, str]:
    """The query of the URL, with the session's namespace if it names none."""
    return {"namespace": session.namespace, **query_of(request)}


async def form_of(request: Web) -> dict[str, str]:
    """The fields of a form. Raises HTTPException if the body is not a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException("the body is not a form", status_code=415)
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise HTTPException("the body is not a form", status_code=400) from None


async def gather(*reads: Any) -> list[Any]:
    """The results of concurrent reads. Raises the first error and cancels the other reads."""
    tasks = [asyncio.ensure_future(read) for read in reads]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def allowed(read: Any) -> Any:
    """The result of a read, or the ForbiddenError if the viewer lacks the right."""
    try:
        return await read
    except errors.ForbiddenError as error:
        return error


def explain(error: errors.ClientError) -> tuple[int, str, str]:
    """An error of REST: the status of the page, the headline and the next step."""
    match error:
        case errors.ForbiddenError():
            return 403, "You lack the rights for this page", "Ask a cluster administrator."
        case errors.NotFoundError():
            return 404, "Not found", "It may have been deleted."
        case errors.RejectedError() | errors.ConflictError():
            return 409, "This was refused", "Nothing was changed."
        case errors.UnavailableError() | errors.UnreachableError():
            return 503, "The server does not answer", "This page retries automatically."
        case _:
            return 502, "The server answered with an error", "Try again later."


def events_of(page: Any) -> list[job_details.EventRow]:
    """The Kubernetes Events that can be read; none without the right to them."""
    kubernetes_events = []
    if not isinstance(page, errors.ForbiddenError):
        for item in page.items:
            with contextlib.suppress(msgspec.DecodeError):
                kubernetes_events.append(decoding.from_json(item, KubernetesEvent))
    return job_details.events(kubernetes_events)
