"""Log in with a token, log out."""

from litestar import get, post
from litestar.datastructures import Cookie
from litestar.response import Response
from litestar.types import ControllerRouterHandler

from stromboli.client import errors
from stromboli.console.pages.requests import Console, Page, Web, form_of, query_of, redirect
from stromboli.console.security import is_foreign_navigation

COME_BACK = (
    b'<!doctype html><html lang="en"><title>Stromboli</title>'
    b'<meta http-equiv="refresh" content="0"><p>Opening the console.</p></html>'
)
"""A link of another site led here, so the browser left the cookie out: it sends it when this page
loads the same address again."""
MOST_PATH_CHARACTERS = 1000
MOST_TOKEN_CHARACTERS = 16 * 1024
"""Tokens of service accounts have about 1 KB; servers refuse larger headers."""


def come_back_or_login(request: Web) -> Page:
    """The answer to a request without a session."""
    if request.method == "GET" and is_foreign_navigation(request.headers):
        return Response(
            COME_BACK,
            media_type="text/html; charset=utf-8",
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
        raise errors.ClientError("token", "it is empty, or contains other characters")
    if len(token) > MOST_TOKEN_CHARACTERS:
        raise errors.ClientError("token", f"it has more than {MOST_TOKEN_CHARACTERS} characters")


def session_cookie(console: Console, value: str, max_age_s: int) -> Cookie:
    """The cookie that names a session. One with no time deletes it: browsers accept that of a
    ``__Host-`` cookie only with the attributes that it was set with."""
    return Cookie(
        console.cookie,
        value=value,
        httponly=True,
        samesite="strict",
        secure=console.is_secure,
        path="/",
        max_age=max_age_s,
    )


def routes(console: Console) -> list[ControllerRouterHandler]:
    """Log in and out."""

    @get("/login")
    async def login_page(request: Web) -> Page:
        query = query_of(request)
        return console.page(
            None, "login.html", to=own_path(query.get("to", "/")), error="", namespace=""
        )

    @post("/login", status_code=200)
    async def login(request: Web) -> Page:
        form = await form_of(request)
        to, namespace = own_path(form.get("to", "/")), form.get("namespace", "").strip()
        token = "" if console.settings.open_to_all else form.get("token", "").strip()
        try:
            if not console.settings.open_to_all:
                check_token(token)
            session = await console.sessions.open(token, namespace)
        except errors.ClientError as error:
            status, why = _failure(error)
            return console.page(None, "login.html", status, to=to, error=why, namespace=namespace)
        await console.sessions.close(request.cookies.get(console.cookie, ""))
        answer = redirect(to)
        answer.set_cookie(
            session_cookie(console, session.id, int(console.settings.session_hours * 3600))
        )
        return answer

    @post("/logout", status_code=200)
    async def logout(request: Web) -> Page:
        session = console.session(request)
        if session.accepts((await form_of(request)).get("csrf", "")):
            await console.sessions.close(session.id)
        answer = redirect("/login")
        answer.set_cookie(session_cookie(console, "", 0))
        return answer

    return [login_page, login, logout]


def _failure(error: errors.ClientError) -> tuple[int, str]:
    """The status of the login page, and why the login failed."""
    match error:
        case errors.UnauthenticatedError() | errors.ForbiddenError():
            return 403, f"The server does not accept this token: {error.reason}"
        case errors.UnavailableError() | errors.UnreachableError():
            return 503, f"The server does not answer: {error.reason}. Try again."
        case errors.UnsafeTokenError():
            return 500, f"{error}: the administrator has to set STROM_CONSOLE_SERVER to https"
        case _:
            return 400, str(error)
