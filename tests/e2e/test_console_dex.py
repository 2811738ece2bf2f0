"""Logins to the console at Dex, an identity provider of others, in a real Chromium.

REST trusts the issuer as an API server with ``--oidc-issuer-url`` does, which the embedded accounts
do not: ``IssuerAccounts`` stands in for its TokenReview, with the keys that Dex publishes.
"""

import contextlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
import pytest_asyncio
import trustme
from joserfc import errors as jose
from joserfc import jwt
from joserfc.jwk import KeySet

from stromboli.console.sessions import RENEW_BEFORE_S
from stromboli.console.settings import ConsoleSettings
from stromboli.shared.cluster.accounts import Accounts, Right, UnknownToken, User
from stromboli.shared.runtime import http
from stromboli.testkit import records
from stromboli.testkit.parts.tools import OperatorTool
from tests.e2e.support import browser, console_system
from tests.e2e.support.browser import Page
from tests.e2e.support.console_system import ConsoleSystem
from tests.e2e.support.dex import CLIENT, PASSWORD, SECRET, Dex, DexOptions

pytestmark = [
    pytest.mark.operators,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
WITHIN_S = 120.0
OPEN_FOR_S = 280.0
VERA = "vera@example.com"
LIFE_S = RENEW_BEFORE_S + 5
"""Life of an ID token: it is renewed 5 s after it was made."""
TEXT = "(document.body?.innerText ?? '')"
"""Empty while a page loads."""


class IssuerAccounts:
    """Accounts that know the users of an issuer by their tokens, and the others as before. The name
    of a user is the part of the e-mail address before the @."""

    def __init__(self, dex: Dex, otherwise: Accounts) -> None:
        self._dex = dex
        self._otherwise = otherwise
        self.seen: set[str] = set()
        """Tokens that were accepted."""

    async def authenticate(self, token: str, audiences: Sequence[str]) -> User | UnknownToken:
        """The user of a valid token."""
        if token.count(".") != 2:
            return await self._otherwise.authenticate(token, audiences)
        authority = ssl.create_default_context(cafile=str(self._dex.ca_file))
        async with httpx.AsyncClient(
            verify=authority, trust_env=False, timeout=records.DEADLINE_S
        ) as client:
            keys = KeySet.import_key_set((await client.get(f"{self._dex.issuer}/keys")).json())
        rules = jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": self._dex.issuer},
            aud={"essential": True, "value": CLIENT},
            exp={"essential": True},
        )
        try:
            claims = jwt.decode(token, keys, algorithms=["RS256"]).claims
            rules.validate(claims)
        except (jose.JoseError, ValueError) as error:
            return UnknownToken(str(error))
        self.seen.add(token)
        return User(name=claims["email"].partition("@")[0])

    async def is_allowed(self, user: User, right: Right) -> bool:
        """By the rules of the other accounts."""
        return await self._otherwise.is_allowed(user, right)

    async def own_username(self) -> str:
        """That of the other accounts."""
        return await self._otherwise.own_username()


class Cell(msgspec.Struct):
    """A console whose users log in at Dex."""

    made: ConsoleSystem
    dex: Dex
    accounts: IssuerAccounts
    settings: ConsoleSettings


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cell(
    operator_tools: dict[str, OperatorTool], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cell]:
    """Dex, the system and the console."""
    folder = tmp_path_factory.mktemp("dex")
    bound = http.listen("127.0.0.1", 0)
    callback = f"http://127.0.0.1:{bound.getsockname()[1]}/login/callback"
    options = DexOptions([callback], id_tokens=f"{LIFE_S:.0f}s")
    dex = Dex(operator_tools["dex"], folder / "dex", trustme.CA(), options)
    await dex.start()
    try:
        (folder / "secret").write_text(SECRET)
        settings = ConsoleSettings(
            oidc_issuer=dex.issuer,
            oidc_client_id=CLIENT,
            oidc_client_secret_file=str(folder / "secret"),
            oidc_ca_file=str(dex.ca_file),
            oidc_name="Dex",
        )
        made_accounts: list[IssuerAccounts] = []

        def trusting(accounts: Accounts) -> Accounts:
            made_accounts.append(IssuerAccounts(dex, accounts))
            return made_accounts[0]

        running = console_system.running(
            folder,
            has_accounts=True,
            nodes=1,
            settings=settings,
            authenticate=trusting,
            bound=bound,
        )
        async with running as made:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}
            await made.client.apply([space])
            await made.client.submit(
                console_system.job("of-vera", namespace="vision"), namespace="vision"
            )
            chosen = msgspec.structs.replace(settings, server=made.server)
            yield Cell(made, dex, made_accounts[0], chosen)
    finally:
        await dex.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def page(cell: Cell, tmp_path: Path) -> AsyncIterator[Page]:
    """A browser of its own, without a session anywhere."""
    trusting = ("--ignore-certificate-errors",)  # of Dex, whose authority the browser lacks
    async with browser.opened("about:blank", tmp_path, OPEN_FOR_S, trusting) as opened:
        await opened.call("Page.enable")
        await opened.resize(1280, 860)
        yield opened


async def to_provider(page: Page, cell: Cell, path: str) -> None:
    """From a page of the console over its login page to that of Dex."""
    await page.call("Page.navigate", url=cell.made.url + path)
    await page.until(
        "document.querySelector('form[action=\"/login/provider\"]') !== null", WITHIN_S
    )
    await page.run("document.getElementById('provider-namespace').value = 'vision'")
    await page.run("document.querySelector('form[action=\"/login/provider\"] button').click()")
    await page.until(f"location.href.startsWith('{cell.dex.issuer}')", WITHIN_S)
    await page.until("document.querySelector('#login') !== null", WITHIN_S)


async def give_password(page: Page) -> None:
    """Log in at Dex; it asks for consent then."""
    await page.run(f"document.getElementById('login').value = '{VERA}'")
    await page.run(f"document.getElementById('password').value = '{PASSWORD}'")
    await page.run("document.getElementById('submit-login').click()")
    await page.until(f"{TEXT}.includes('Grant Access')", WITHIN_S)


async def log_in(page: Page, cell: Cell, path: str = "/jobs") -> None:
    """A whole login."""
    await to_provider(page, cell, path)
    await give_password(page)
    await page.run("document.querySelector('button.theme-btn--success').click()")
    await page.until(f"location.href === '{cell.made.url + path}'", WITHIN_S)
    await page.until("document.querySelector('form[action=\"/logout\"]') !== null", WITHIN_S)


async def cookies(page: Page) -> dict[str, str]:
    """Name -> value of the browser's cookies of the console."""
    found = (await page.call("Storage.getCookies"))["cookies"]
    return {it["name"]: it["value"] for it in found if it["name"].startswith("stromboli")}


async def test_a_login_at_dex_shows_what_the_users_rights_show(page: Page, cell: Cell) -> None:
    await log_in(page, cell)
    await page.until(f"{TEXT}.includes('of-vera')", WITHIN_S)
    assert await page.run("document.querySelector('.user').innerText") == "vera"
    html = await page.run("document.documentElement.outerHTML")
    kept = await cookies(page)
    assert not any(token in html for token in cell.accounts.seen)
    assert not any(token in value for token in cell.accounts.seen for value in kept.values())
    assert not [name for name in kept if name.endswith("-login")]
    await page.go(f"{cell.made.url}/jobs/default/x", WITHIN_S)
    assert "You lack the rights" in await page.run(TEXT)


async def test_tokens_are_renewed_and_pages_go_on_beyond_their_end(page: Page, cell: Cell) -> None:
    """The first token has expired at the end, and a new login was never needed. The page of the
    specification asks REST each time: lists of jobs are read from a stream, which keeps the token
    that it began with until REST ends it."""
    await log_in(page, cell)
    known = set(cell.accounts.seen)
    first_ends_at = time.monotonic() + LIFE_S
    while not cell.accounts.seen - known or time.monotonic() < first_ends_at:
        await page.go(f"{cell.made.url}/jobs/vision/of-vera/yaml", WITHIN_S)
        assert "of-vera" in await page.run(TEXT)


async def test_a_user_who_is_removed_at_dex_is_logged_out(page: Page, cell: Cell) -> None:
    """And a Dex that restarted has new keys: logins work with them."""
    await log_in(page, cell)
    await cell.dex.stop()
    cell.dex.options.users = ()
    await cell.dex.start()
    try:
        while await page.run("location.pathname") != "/login":
            # Not `go`: it waits for the address that it opened, and this one leads to the login.
            await page.call("Page.navigate", url=f"{cell.made.url}/jobs")
            await page.until("document.readyState === 'complete'", WITHIN_S)
    finally:
        await cell.dex.stop()
        cell.dex.options.users = (VERA,)
        await cell.dex.start()
    await log_in(page, cell)


async def test_a_user_who_declines_at_dex_is_not_logged_in(page: Page, cell: Cell) -> None:
    """Dex reports it on its own page and does not return to the console, whose next login works.
    ``test_provider_logins`` has the answer of providers that do."""
    await to_provider(page, cell, "/jobs")
    await give_password(page)
    await page.run("document.querySelector('button.theme-btn-provider').click()")
    await page.until(f"{TEXT}.includes('Approval rejected')", WITHIN_S)
    await log_in(page, cell)
    await page.until(f"{TEXT}.includes('of-vera')", WITHIN_S)


async def test_a_dex_that_is_down_is_reported(page: Page, cell: Cell) -> None:
    await cell.dex.stop()
    try:
        async with console_system.serving(cell.settings) as url:
            await page.go(f"{url}/login", WITHIN_S)
            await page.run(
                "document.querySelector('form[action=\"/login/provider\"] button').click()"
            )
            await page.until("document.querySelector('[role=alert]') !== null", WITHIN_S)
            assert "identity provider does not answer" in await page.run(TEXT)
    finally:
        await cell.dex.start()


async def answer_of_dex(cell: Cell, client: httpx.AsyncClient) -> str:
    """The callback of a login without a browser: forms of Dex are plain."""
    form = {"to": "/jobs", "namespace": "vision"}
    started = await client.post(f"{cell.made.url}/login/provider", data=form)
    match = re.search(r'content="0;url=([^"]+)"', started.text)
    assert match is not None, started.text
    answer = await client.get(unescape(match[1]), follow_redirects=True)
    answer = await client.post(
        str(answer.url), data={"login": VERA, "password": PASSWORD}, follow_redirects=True
    )
    query = parse_qs(urlsplit(str(answer.url)).query)
    approval = {"req": query["req"][0], "approval": "approve"}
    return (await client.post(str(answer.url), data=approval)).headers["location"]


@contextlib.asynccontextmanager
async def serving_at(cell: Cell, settings: ConsoleSettings) -> AsyncIterator[Cell]:
    """Another console, known to Dex."""
    bound = http.listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    cell.dex.options.redirects = [*cell.dex.options.redirects, f"{url}/login/callback"]
    await cell.dex.stop()
    await cell.dex.start()
    async with console_system.serving(settings, bound):
        made = msgspec.structs.replace(cell.made, url=url)
        yield msgspec.structs.replace(cell, made=made, settings=settings)


def http_client(cell: Cell) -> httpx.AsyncClient:
    authority = ssl.create_default_context(cafile=str(cell.dex.ca_file))
    return httpx.AsyncClient(verify=authority, timeout=60, trust_env=False)


async def test_dex_gives_tokens_for_a_code_once(cell: Cell) -> None:
    async with http_client(cell) as client, http_client(cell) as thief:
        callback = await answer_of_dex(cell, client)
        thief.cookies.update(dict(client.cookies))
        assert (await client.get(callback)).status_code == 200
        answer = await thief.get(callback)
        assert answer.status_code == 403
        assert "Log in again." in answer.text


async def test_a_code_without_its_verifier_is_refused_by_dex(cell: Cell) -> None:
    """PKCE: the code of a victim in the login of an attacker."""
    async with http_client(cell) as victim, http_client(cell) as attacker:
        stolen = parse_qs(urlsplit(await answer_of_dex(cell, victim)).query)["code"][0]
        own = urlsplit(await answer_of_dex(cell, attacker))
        state = parse_qs(own.query)["state"][0]
        query = {"code": stolen, "state": state}
        answer = await attacker.get(f"{cell.made.url}/login/callback", params=query)
        assert answer.status_code == 403


async def test_a_wrong_secret_is_named_as_a_setting(cell: Cell, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("another")
    settings = msgspec.structs.replace(cell.settings, oidc_client_secret_file=str(file))
    async with serving_at(cell, settings) as there, http_client(cell) as client:
        answer = await client.get(await answer_of_dex(there, client))
        assert "STROM_CONSOLE_OIDC_CLIENT_ID" in answer.text


async def test_two_replicas_share_no_memory_for_a_login(cell: Cell) -> None:
    """It starts at one and returns to the other; requests go on at that one."""
    async with console_system.serving(cell.settings) as other, http_client(cell) as client:
        callback = urlsplit(await answer_of_dex(cell, client))
        ports = [urlsplit(url).port for url in (cell.made.url, other)]
        pending = client.cookies[f"stromboli-console-{ports[0]}-login"]
        headers = {
            "host": callback.netloc,
            "cookie": f"stromboli-console-{ports[1]}-login={pending}",
        }
        async with httpx.AsyncClient(
            base_url=other, trust_env=False, timeout=records.DEADLINE_S
        ) as through:
            answer = await through.get(f"/login/callback?{callback.query}", headers=headers)
            assert answer.status_code == 200, answer.text


async def test_claims_that_dex_does_not_give_are_named(cell: Cell) -> None:
    """Its passwords have no groups."""
    settings = msgspec.structs.replace(cell.settings, oidc_required_claims=("groups",))
    async with serving_at(cell, settings) as there, http_client(cell) as client:
        answer = await client.get(await answer_of_dex(there, client))
        assert answer.status_code == 403
        assert "has no groups; it has" in answer.text
