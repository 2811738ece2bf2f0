"""Logins at an identity provider: what a browser, a provider and REST can do wrong.

The provider is a double that misbehaves on request, over https; ``tests/e2e/test_console_dex.py``
logs in at one of others.
"""

import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from litestar import Litestar, Request, Response, get

from stromboli.console import login_limits, service
from stromboli.console.oidc.errors import ProviderUnavailableError
from stromboli.console.oidc.id_tokens import IdToken
from stromboli.console.oidc.provider import AGAIN_AFTER_S, Provider, Tokens
from stromboli.console.sessions import RENEW_BEFORE_S
from stromboli.console.settings import ConsoleSettings
from stromboli.shared.runtime import http, runtime
from stromboli.testkit import records
from stromboli.testkit.doubles import identity_provider
from stromboli.testkit.doubles.identity_provider import CLIENT, IdentityProvider

PAGE = "/jobs/default/train/yaml"
FORM = {"to": "/jobs?q=train", "namespace": "vision"}


class Rest:
    """REST that accepts every token unless ``refuses``. ``tokens``: those that it received."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.refuses = False

    def app(self) -> Litestar:
        def answer(request: Request[Any, Any, Any], found: Any, status: int) -> Response[Any]:
            self.tokens.append(request.headers["authorization"].removeprefix("Bearer "))
            if self.refuses:
                found, status = {"title": "Unauthorized", "status": 401}, 401
            kind = "application/json" if status == httpx.codes.OK else "application/problem+json"
            return Response(found, status_code=status, media_type=kind)

        @get("/v1/me")
        async def me(request: Request[Any, Any, Any]) -> Response[Any]:
            return answer(request, {"name": "vera"}, 200)

        @get("/v1/namespaces/default/jobs/train")
        async def job(request: Request[Any, Any, Any]) -> Response[Any]:
            return answer(request, {"title": "Not found", "status": 404}, 404)

        return Litestar([me, job], openapi_config=None)


class Cell(msgspec.Struct):
    """A console at ``url`` between the provider and REST."""

    url: str
    provider: IdentityProvider
    rest: Rest
    settings: ConsoleSettings

    def browser(self) -> httpx.AsyncClient:
        # Loading the system's certificates, which http does not need, costs 25 ms of CPU.
        return httpx.AsyncClient(base_url=self.url, timeout=30, trust_env=False, verify=False)

    async def start(self, browser: httpx.AsyncClient, **form: str) -> str:
        """Begin a login; the address at the provider."""
        answer = await browser.post("/login/provider", data={**FORM, **form})
        assert answer.status_code == 200, answer.text
        return led_to(answer)

    async def at_provider(self, address: str) -> str:
        """Log in there; the callback."""
        authority = ssl.create_default_context(cafile=self.settings.oidc_ca_file)
        async with httpx.AsyncClient(
            verify=authority, trust_env=False, timeout=records.DEADLINE_S
        ) as http_client:
            answer = await http_client.get(address)
            return answer.headers["location"]

    async def login(self, browser: httpx.AsyncClient) -> httpx.Response:
        """The answer to the callback of a whole login."""
        return await browser.get(await self.at_provider(await self.start(browser)))


def led_to(answer: httpx.Response) -> str:
    """Where a page leads the browser."""
    match = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', answer.text)
    assert match is not None, answer.text
    return unescape(match[1])


@contextlib.asynccontextmanager
async def console(settings: ConsoleSettings) -> AsyncIterator[str]:
    bound = http.listen("127.0.0.1", 0)
    running = service.running(settings, runtime.utc_now, bound.getsockname()[1])
    async with running as app, http.serving(app, bound) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    rest = Rest()
    async with (
        identity_provider.serving(tmp_path) as provider,
        http.serving(rest.app(), http.listen("127.0.0.1", 0)) as port,
    ):
        settings = ConsoleSettings(
            server=f"http://127.0.0.1:{port}",
            oidc_issuer=provider.issuer,
            oidc_client_id=CLIENT,
            oidc_client_secret_file=str(tmp_path / "secret"),
            oidc_ca_file=str(tmp_path / "ca.pem"),
        )
        async with console(settings) as url:
            yield Cell(url, provider, rest, settings)


async def test_a_login_leads_to_the_page_with_the_id_token_for_rest(cell: Cell) -> None:
    async with cell.browser() as browser:
        answer = await cell.login(browser)
        assert led_to(answer) == "/jobs?q=train"
        assert (await browser.get(PAGE)).status_code == 404
        assert cell.rest.tokens[-1].count(".") == 2
        everything = answer.text + str(answer.headers) + str(browser.cookies)
        assert cell.rest.tokens[-1] not in everything
        cookies = answer.headers.get_list("set-cookie")
        assert any("httponly" in it.lower() and "samesite=strict" in it.lower() for it in cookies)


async def test_the_request_has_pkce_state_and_nonce_and_no_verifier(cell: Cell) -> None:
    async with cell.browser() as browser:
        address = await cell.start(browser)
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["code_challenge_method"] == "S256"
        assert len(query["code_challenge"]) == 43
        assert query["response_type"] == "code"
        assert "offline_access" in query["scope"].split()
        assert query["redirect_uri"] == f"{cell.url}/login/callback"
        again = parse_qs(urlsplit(await cell.start(browser)).query)
        for name in ("state", "nonce", "code_challenge"):
            assert again[name] != [query[name]]


async def test_a_callback_of_another_browser_starts_no_session(cell: Cell) -> None:
    """Login CSRF: a link that logs the victim in as the attacker."""
    async with cell.browser() as attacker, cell.browser() as victim:
        link = await cell.at_provider(await cell.start(attacker))
        answer = await victim.get(link)
        assert answer.status_code == 400
        assert "in another browser. Log in again." in answer.text
        await cell.start(victim)
        assert (await victim.get(link)).status_code == 400
        assert (await victim.get(PAGE)).status_code == 303


async def test_a_login_of_another_site_is_not_started(cell: Cell) -> None:
    async with cell.browser() as browser:
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            answer = await browser.post("/login/provider", data=FORM, headers=headers)
            assert answer.status_code == 403
            assert not browser.cookies


async def test_a_code_is_used_once(cell: Cell) -> None:
    async with cell.browser() as browser:
        callback = await cell.at_provider(await cell.start(browser))
        kept = dict(browser.cookies)
        assert (await browser.get(callback)).status_code == 200
        assert (await browser.get(callback)).status_code == 400  # its cookie is gone
        async with cell.browser() as thief:
            thief.cookies.update(kept)
            answer = await thief.get(callback)
            assert answer.status_code == 403
            assert "not valid any more" in answer.text


async def test_a_cookie_from_before_the_login_names_no_session(cell: Cell) -> None:
    """Session fixation."""
    async with cell.browser() as browser, cell.browser() as attacker:
        name = f"stromboli-console-{urlsplit(cell.url).port}"
        browser.cookies.set(name, "chosen-by-an-attacker", domain="127.0.0.1")
        await cell.login(browser)
        attacker.cookies.set(name, "chosen-by-an-attacker", domain="127.0.0.1")
        assert (await attacker.get(PAGE)).status_code == 303


@pytest.mark.parametrize("to", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_a_login_leads_to_no_other_site(cell: Cell, to: str) -> None:
    async with cell.browser() as browser:
        callback = await cell.at_provider(await cell.start(browser, to=to))
        assert led_to(await browser.get(callback)) == "/"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "of another login"}, "nonce"),
        ({"aud": "another"}, "aud"),
        ({"exp": 1}, "expired"),
    ],
)
async def test_a_token_that_is_not_for_this_login_opens_no_session(
    cell: Cell, claims: dict[str, Any], why: str
) -> None:
    cell.provider.claims = claims
    async with cell.browser() as browser:
        answer = await cell.login(browser)
        assert answer.status_code == 403
        assert why in answer.text
        assert cell.rest.tokens == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("access_denied", "denied access: no &lt;b&gt;"),
        ("invalid_scope", "STROM_CONSOLE_OIDC_SCOPES"),
        ("server_error", "rejected the login (server_error)"),
    ],
)
async def test_a_refusal_of_the_provider_says_what_to_do(cell: Cell, error: str, said: str) -> None:
    async with cell.browser() as browser:
        state = parse_qs(urlsplit(await cell.start(browser)).query)["state"][0]
        query = {"state": state, "error": error, "error_description": "no <b>"}
        answer = await browser.get("/login/callback", params=query)
        assert answer.status_code == 403
        assert said in answer.text


async def test_a_wrong_client_is_named_as_a_setting(cell: Cell) -> None:
    cell.provider.refuses = "invalid_client"
    async with cell.browser() as browser:
        assert "STROM_CONSOLE_OIDC_CLIENT_ID" in (await cell.login(browser)).text


async def test_a_provider_that_is_away_is_reported_and_may_come_back(cell: Cell) -> None:
    cell.provider.is_away = True
    async with cell.browser() as browser:
        answer = await browser.post("/login/provider", data=FORM)
        assert answer.status_code == 503
        assert "identity provider does not answer" in answer.text
        cell.provider.is_away = False
        assert (await cell.login(browser)).status_code == 200


async def test_another_issuer_behind_the_address_is_refused(cell: Cell) -> None:
    cell.provider.extra = {"issuer": "https://evil.example"}
    async with cell.browser() as browser:
        answer = await browser.post("/login/provider", data=FORM)
        assert answer.status_code == 503
        assert "it names the issuer https://evil.example" in unescape(answer.text)


async def test_an_answer_of_another_issuer_is_refused(cell: Cell) -> None:
    """RFC 9207: of two providers one could present the other one's codes."""
    async with cell.browser() as browser:
        callback = await cell.at_provider(await cell.start(browser))
        answer = await browser.get(f"{callback}&iss=https%3A%2F%2Fevil.example")
        assert answer.status_code == 403
        assert "Another identity provider" in answer.text


async def test_a_token_that_rest_refuses_says_how_to_trust_the_issuer(cell: Cell) -> None:
    cell.rest.refuses = True
    async with cell.browser() as browser:
        answer = await cell.login(browser)
        assert answer.status_code == 403
        assert "STROM_ADMISSION_REST_AUDIENCES" in answer.text


async def test_new_keys_of_the_provider_are_read_at_once(cell: Cell) -> None:
    """Also right after the last reading: a provider that keeps its keys in memory restarts."""
    provider = Provider(cell.settings, now=lambda: 0.0)
    async with cell.browser() as browser:
        await cell.login(browser)
    tokens = Tokens(IdToken("", "vera", 0.0), cell.provider.last_refresh_token)
    for _ in range(3):
        tokens = await provider.refresh(tokens)
        assert tokens.id_token.subject == "vera"
        cell.provider.rotate()


async def test_a_key_that_is_not_published_is_not_looked_up_for_every_token(cell: Cell) -> None:
    clock = [0.0]
    provider = Provider(cell.settings, now=lambda: clock[0])
    async with cell.browser() as browser:
        await cell.login(browser)
    known = IdToken("", "vera", 0.0)

    async def refresh() -> Tokens:
        return await provider.refresh(Tokens(known, cell.provider.last_refresh_token))

    await refresh()
    cell.provider.sign_with_unpublished_key()
    read = cell.provider.keys_read
    for _ in range(3):
        with pytest.raises(ProviderUnavailableError, match="it lacks the key of an ID token"):
            await refresh()
    assert cell.provider.keys_read == read + 1
    cell.provider.rotate()
    clock[0] = AGAIN_AFTER_S + 1
    assert (await refresh()).id_token.subject == "vera"


async def test_tokens_are_renewed_while_the_session_lives(cell: Cell) -> None:
    cell.provider.life_s = RENEW_BEFORE_S - 10
    async with cell.browser() as browser:
        await cell.login(browser)
        first = cell.rest.tokens[-1]
        cell.provider.life_s = 3600
        await browser.get(PAGE)
        renewed = cell.rest.tokens[-1]
        assert renewed != first
        await browser.get(PAGE)
        assert cell.rest.tokens[-1] == renewed
        grants = [it["grant_type"] for it in cell.provider.requests]
        assert grants == ["authorization_code", "refresh_token"]


async def test_a_user_whom_the_provider_refuses_is_logged_out(cell: Cell) -> None:
    cell.provider.life_s = RENEW_BEFORE_S - 10
    async with cell.browser() as browser:
        await cell.login(browser)
        cell.provider.refuses = "invalid_grant"
        answer = await browser.get(PAGE)
        assert answer.status_code == 303
        cell.provider.refuses = ""
        assert (await browser.get(PAGE)).status_code == 303


async def test_a_token_that_is_still_valid_outlives_an_absence_of_the_provider(cell: Cell) -> None:
    cell.provider.life_s = RENEW_BEFORE_S - 10
    async with cell.browser() as browser:
        await cell.login(browser)
        cell.provider.is_away = True
        assert (await browser.get(PAGE)).status_code == 404
        requests = len(cell.provider.requests)
        await browser.get(PAGE)
        assert len(cell.provider.requests) == requests  # it is left alone for a while


async def test_an_expired_token_during_an_absence_is_an_error_that_retries(cell: Cell) -> None:
    cell.provider.life_s = -30  # within the leeway of the clocks
    async with cell.browser() as browser:
        await cell.login(browser)
        cell.provider.is_away = True
        answer = await browser.get(PAGE)
        assert answer.status_code == 503
        assert "cannot be renewed" in answer.text
        assert "data-retry" in answer.text


async def test_a_logout_revokes_the_tokens_and_ends_the_login_at_the_provider(cell: Cell) -> None:
    issuer = cell.provider.issuer
    cell.provider.extra = {
        "end_session_endpoint": f"{issuer}/logout",
        "revocation_endpoint": f"{issuer}/revoke",
    }
    async with cell.browser() as browser:
        await cell.login(browser)
        page = await browser.get(PAGE)
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert csrf is not None
        answer = await browser.post("/logout", data={"csrf": csrf[1]})
        address = urlsplit(led_to(answer))
        assert f"{address.scheme}://{address.netloc}{address.path}" == f"{issuer}/logout"
        assert parse_qs(address.query) == {
            "client_id": [CLIENT],
            "post_logout_redirect_uri": [f"{cell.url}/login"],
        }
        assert cell.provider.requests[-1]["token_type_hint"] == "refresh_token"
        assert (await browser.get(PAGE)).status_code == 303


async def test_a_login_may_return_to_another_replica(cell: Cell) -> None:
    """What the browser waits with is in its cookie; the session is where it returned to."""
    async with console(cell.settings) as other, cell.browser() as browser:
        port = urlsplit(cell.url).port
        callback = urlsplit(await cell.at_provider(await cell.start(browser)))
        pending = browser.cookies[f"stromboli-console-{port}-login"]
        name = f"stromboli-console-{urlsplit(other).port}-login"
        headers = {"host": callback.netloc, "cookie": f"{name}={pending}"}
        async with httpx.AsyncClient(
            base_url=other, trust_env=False, timeout=records.DEADLINE_S
        ) as through:
            answer = await through.get(f"/login/callback?{callback.query}", headers=headers)
            assert answer.status_code == 200
            assert led_to(answer) == "/jobs?q=train"


async def test_failed_logins_of_an_address_are_bounded(cell: Cell) -> None:
    async with cell.browser() as browser:
        for _ in range(login_limits.FAILURES):
            assert (await browser.post("/login", data={"token": "a b"})).status_code == 400
        answer = await browser.post("/login", data={"token": "good"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0


async def test_the_login_page_offers_both_ways_and_tokens_can_be_left_out(cell: Cell) -> None:
    async with cell.browser() as browser:
        both = (await browser.get("/login?to=/jobs")).text
        assert 'action="/login/provider"' in both
        assert 'name="token"' in both
    without = msgspec.structs.replace(cell.settings, token_login=False, oidc_name="Example")
    async with (
        console(without) as url,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=records.DEADLINE_S) as browser,
    ):
        page = (await browser.get("/login")).text
        assert "Log in with Example" in page
        assert 'name="token"' not in page
        assert (await browser.post("/login", data={"token": "good"})).status_code == 403
