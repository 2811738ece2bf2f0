"""The login page, log in with a token, log out."""

import math
from urllib.parse import urlsplit

from litestar import get, post
from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException
from litestar.response import Response
from litestar.types import ControllerRouterHandler

from stromboli.client import errors
from stromboli.console import login_limits
from stromboli.console.login_limits import TooManyLoginsError
from stromboli.console.pages.requests import (
    Console,
    Page,
    Web,
    form_of,
    lead_to,
    query_of,
    redirect,
)
from stromboli.console.security import is_foreign_navigation
from stromboli.console.sessions import Session

COME_BACK = (
    b'<!doctype html><html lang="en"><title>Stromboli</title>'
    b'<meta http-equiv="refresh" content="0"><p>Opening the console.</p></html>'
)
"""The answer to a link on another site, for which the browser omitted the strict cookie: this page
loads the same address again, and then the browser sends the cookie."""
SERVER_ERRORS = 500
"""Statuses from this one on are errors of the server: they do not count as failed logins."""
MOST_PATH_CHARACTERS = 1000
MOST_TOKEN_CHARACTERS = 16 * 1024
"""Tokens of service accounts have about 1 KB; servers refuse larger headers."""


def come_back_or_login(request: Web) -> Page:
    """The answer to a request without a session."""
    if request.method == "GET" and is_foreign_navigation(request.headers):
        return Response(
            COME_BACK,
            media_type="text/html",
            headers={"cache-control": "no-store"},
        )
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return redirect("/login", **({} if path == "/" or request.method != "GET" else {"to": path}))


def own_path(path: str) -> str:
    """A path of this console to continue at after the login; the start page for anything else."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\"))
    is_safe = is_own and len(path) <= MOST_PATH_CHARACTERS and path.isprintable()
    return path if is_safe and not path.startswith("/log") else "/"


def check_token(token: str) -> None:
    """Raises ClientError for a text that no header can carry."""
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise errors.ClientError("token", "it is empty, or contains spaces or non-ASCII characters")
    if len(token) > MOST_TOKEN_CHARACTERS:
        raise errors.ClientError("token", f"it has more than {MOST_TOKEN_CHARACTERS} characters")


def session_cookie(console: Console, value: str, max_age_s: int) -> Cookie:
    """The cookie that names a session. ``max_age_s`` 0 deletes it: browsers delete a ``__Host-``
    cookie only with the attributes that it was set with."""
    return Cookie(
        console.cookie,
        value=value,
        httponly=True,
        samesite="strict",
        secure=console.is_secure,
        path="/",
        max_age=max_age_s,
    )


def login_page(
    console: Console, status: int = 200, *, to: str = "/", error: str = "", namespace: str = ""
) -> Page:
    """The page with the ways to log in. ``error``: why the last attempt failed."""
    settings = console.settings
    name = settings.oidc_name or urlsplit(settings.oidc_issuer).hostname or ""
    return console.page(
        None,
        "login.html",
        status,
        to=to,
        error=error,
        namespace=namespace,
        provider=name if console.provider is not None else "",
        token_login=settings.token_login,
    )


def logged_in(console: Console, session: Session, answer: Page) -> Page:
    """The answer, with the cookie of a new session. Each session has a new value: a value that was
    in the browser before the login names no session (session fixation)."""
    life_s = int(console.settings.session_hours * 3600)
    answer.set_cookie(session_cookie(console, session.id, life_s))
    return answer


def address_of(console: Console, request: Web) -> str:
    """The client address that a login counts for."""
    peer = request.client.host if request.client else ""
    is_behind_proxy = console.is_behind_proxy
    return login_limits.address_of(peer, request.headers, is_behind_proxy=is_behind_proxy)


def too_many(console: Console, error: TooManyLoginsError, to: str) -> Page:
    """The response to a login above the rate limit."""
    wait_s = math.ceil(error.wait_s)
    why = f"Too many logins, or too many failed ones from your network: try again in {wait_s} s."
    answer = login_page(console, 429, to=to, error=why)
    answer.headers["retry-after"] = str(wait_s)
    return answer


def routes(console: Console) -> list[ControllerRouterHandler]:
    """Log in with a token; log out."""

    @get("/login")
    async def page(request: Web) -> Page:
        return login_page(console, to=own_path(query_of(request).get("to", "/")))

    @post("/login", status_code=200)
    async def login(request: Web) -> Page:
        if not console.settings.token_login:
            detail = "this console does not accept tokens; log in with the identity provider"
            raise HTTPException(detail, status_code=403)
        form = await form_of(request)
        to, namespace = own_path(form.get("to", "/")), form.get("namespace", "").strip()
        token = "" if console.settings.open_to_all else form.get("token", "").strip()
        address = address_of(console, request)
        try:
            with console.limits.login(address):
                if not console.settings.open_to_all:
                    check_token(token)
                session = await console.sessions.open(token, namespace)
        except TooManyLoginsError as error:
            return too_many(console, error, to)
        except errors.ClientError as error:
            status, why = failure(error)
            if status < SERVER_ERRORS:
                console.limits.failed(address)
            return login_page(console, status, to=to, error=why, namespace=namespace)
        await console.sessions.close(request.cookies.get(console.cookie, ""))
        return logged_in(console, session, redirect(to))

    @post("/logout", status_code=200)
    async def logout(request: Web) -> Page:
        session = console.session(request)
        answer = redirect("/login")
        if session.accepts((await form_of(request)).get("csrf", "")):
            await console.sessions.close(session.id)
            if session.login is not None and console.provider is not None:
                own = f"{'https' if console.is_secure else 'http'}://{request.headers['host']}"
                address = await console.provider.end(session.login.tokens, f"{own}/login")
                answer = lead_to(address) if address else answer
        answer.set_cookie(session_cookie(console, "", 0))
        return answer

    return [page, login, logout]


def failure(error: errors.ClientError) -> tuple[int, str]:
    """The status of the login page, and why the login failed."""
    match error:
        case errors.UnauthenticatedError() | errors.ForbiddenError():
            return 403, f"The server does not accept this token: {error.reason}"
        case errors.UnavailableError() | errors.UnreachableError():
            return 503, f"The server does not answer: {error.reason}. Try again."
        case errors.UnsafeTokenError():
            return 500, f"{error}: ask an administrator to set STROM_CONSOLE_SERVER to https"
        case _:
            return 400, str(error)
