"""Logins at an identity provider: their start and their callback.

A page that leads to another site uses a refresh, not a redirect: the policy ``form-action`` also
applies to redirects of forms. So does the answer to the callback: a browser omits the session's
strict cookie from redirects that began at another site.
"""

import structlog
from litestar import get, post
from litestar.datastructures import Cookie
from litestar.types import ControllerRouterHandler

from stromboli.client import errors
from stromboli.console.login_limits import TooManyLoginsError
from stromboli.console.oidc import pending
from stromboli.console.oidc.errors import LoginRefusedError, ProviderUnavailableError
from stromboli.console.oidc.pending import PendingLogin
from stromboli.console.oidc.provider import Provider, Tokens
from stromboli.console.pages import login
from stromboli.console.pages.requests import Console, Page, Web, form_of, lead_to, query_of
from stromboli.console.sessions import Session

CALLBACK = "/login/callback"
STALE = "This login was started over ten minutes ago, or in another browser. Log in again."
_log = structlog.get_logger(__name__)


def callback_address(console: Console, request: Web) -> str:
    """The address at which the provider returns the browser; its ``Host`` was checked."""
    return f"{'https' if console.is_secure else 'http'}://{request.headers['host']}{CALLBACK}"


def routes(console: Console) -> list[ControllerRouterHandler]:
    """The start and the callback of a login; no routes without a provider."""
    if console.provider is None:
        return []
    provider = console.provider

    def cookie(value: str, max_age_s: int) -> Cookie:
        """The cookie of a pending login: ``lax``, since a page of the provider leads here."""
        return Cookie(
            f"{console.cookie}-login",
            value=value,
            httponly=True,
            samesite="lax",
            secure=console.is_secure,
            path="/",
            max_age=max_age_s,
        )

    @post("/login/provider", status_code=200)
    async def start(request: Web) -> Page:
        form = await form_of(request)
        to = login.own_path(form.get("to", "/"))
        pending_login = pending.start(
            to, form.get("namespace", "").strip(), console.clock().timestamp()
        )
        try:
            with console.limits.login(login.address_of(console, request)):
                address = await provider.authorization_url(
                    pending_login, callback_address(console, request)
                )
        except TooManyLoginsError as error:
            return login.too_many(console, error, to)
        except ProviderUnavailableError as error:
            return _away(console, error, to)
        answer = lead_to(address)
        answer.set_cookie(cookie(pending.encode(pending_login), pending.VALID_S))
        return answer

    @get(CALLBACK)
    async def callback(request: Web) -> Page:
        answer = await _callback(console, provider, request)
        answer.set_cookie(cookie("", 0))
        return answer

    return [start, callback]


async def _callback(console: Console, provider: Provider, request: Web) -> Page:
    """Opens a session and continues; a login page with the reason if that fails."""
    query = query_of(request)
    waiting = pending.decode(request.cookies.get(f"{console.cookie}-login", ""))
    if waiting is None or not waiting.matches(query.get("state", ""), console.clock().timestamp()):
        return login.login_page(console, 400, error=STALE)
    to = login.own_path(waiting.to)
    address = login.address_of(console, request)
    try:
        with console.limits.login(address):
            tokens = await provider.exchange(query, waiting, callback_address(console, request))
            session = await _session(console, tokens, waiting)
    except TooManyLoginsError as error:
        return login.too_many(console, error, to)
    except LoginRefusedError as error:
        console.limits.failed(address)
        _log.info("login refused", reason=error.reason)
        return login.login_page(console, 403, error=str(error), to=to)
    except ProviderUnavailableError as error:
        return _away(console, error, to)
    except errors.ClientError as error:
        console.limits.failed(address)
        status, why = _not_accepted(console, error)
        return login.login_page(console, status, error=why, to=to)
    await console.sessions.close(request.cookies.get(console.cookie, ""))
    return login.logged_in(console, session, lead_to(to))


async def _session(console: Console, tokens: Tokens, waiting: PendingLogin) -> Session:
    return await console.sessions.open("", waiting.namespace, tokens)


def _away(console: Console, error: ProviderUnavailableError, to: str) -> Page:
    _log.warning("the identity provider does not answer", error=str(error))
    why = f"The identity provider does not answer: {error}. Try again."
    return login.login_page(console, 503, error=why, to=to)


def _not_accepted(console: Console, error: errors.ClientError) -> tuple[int, str]:
    """The status of the login page, and why REST does not accept the ID token."""
    if isinstance(error, errors.UnauthenticatedError):
        return 403, (
            f"You logged in, but the server does not accept the token: {error.reason}. Ask "
            "an administrator to let the API server trust "
            f"{console.settings.oidc_issuer}, and to add one of the API server's audiences to "
            "STROM_ADMISSION_REST_AUDIENCES."
        )
    return login.failure(error)
