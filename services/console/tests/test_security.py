"""Requests of other sites and to other names are refused; settings beyond loopback are complete."""

from pathlib import Path

import pytest
import trustme

from stromboli.client import errors
from stromboli.console import __main__ as process
from stromboli.console import security
from stromboli.console.live_rows import LiveLists
from stromboli.console.login_limits import LoginLimits
from stromboli.console.pages import login
from stromboli.console.pages.requests import Console
from stromboli.console.sessions import Sessions
from stromboli.console.settings import ConsoleSettings, Settings
from stromboli.shared.runtime import runtime

OWN = {"host": "127.0.0.1:8487"}


@pytest.mark.parametrize(
    ("method", "headers", "is_refused"),
    [
        ("GET", {}, False),
        ("POST", {"origin": "http://127.0.0.1:8487", "sec-fetch-site": "same-origin"}, False),
        ("POST", {}, False),
        ("GET", {"host": "evil.example"}, True),
        ("GET", {"host": "console.example:8487"}, False),
        ("GET", {"host": "[::1]:8487"}, False),
        ("GET", {"host": "127.0.0.1.evil.example"}, True),
        ("GET", {"host": "["}, True),
        ("POST", {"origin": "http://evil.example"}, True),
        ("POST", {"origin": "http://127.0.0.1:9999"}, True),
        ("POST", {"origin": "null"}, True),
        ("POST", {"sec-fetch-site": "cross-site"}, True),
        ("POST", {"sec-fetch-site": "same-site"}, True),
        ("DELETE", {"sec-fetch-site": "cross-site"}, True),
        ("GET", {"sec-fetch-site": "cross-site"}, False),
    ],
)
def test_a_request_of_another_site_or_to_another_name_is_refused(
    method: str, headers: dict[str, str], is_refused: bool
) -> None:
    why = security.refusal(method, {**OWN, **headers}, ("console.example",))
    assert bool(why) is is_refused


def test_the_policy_allows_no_inline_script_or_style_and_no_other_host() -> None:
    assert "unsafe" not in security.POLICY
    assert "http" not in security.POLICY
    assert security.POLICY.startswith("default-src 'none'")


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:1",
        "/a\nb",
        "",
        "/login",
    ],
)
def test_a_login_never_leads_to_another_site(path: str) -> None:
    assert login.own_path(path) == "/"


def test_a_login_leads_back_to_the_page() -> None:
    assert login.own_path("/jobs?q=train&page=2") == "/jobs?q=train&page=2"


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "\u00e4", "x" * 20_000])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(errors.ClientError, match="token: it"):
        login.check_token(token)


@pytest.mark.parametrize("max_age_s", [3600, 0])
def test_a_cookie_over_https_is_set_and_deleted_for_https_alone(max_age_s: int) -> None:
    """Browsers ignore the deletion of a ``__Host-`` cookie without these attributes."""
    settings = ConsoleSettings()
    lists = LiveLists(1)
    console = Console(
        settings=settings,
        sessions=Sessions(settings, lists),
        lists=lists,
        clock=runtime.utc_now,
        cookie="__Host-it",
        is_secure=True,
        provider=None,
        limits=LoginLimits(),
        is_behind_proxy=False,
    )
    cookie = login.session_cookie(console, "", max_age_s).to_header().lower()
    assert f"max-age={max_age_s}" in cookie
    assert "secure" in cookie
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (Settings(host="0.0.0.0"), "STROM_CONSOLE_CERTIFICATE_FILE"),
        (Settings(host="0.0.0.0", behind_https=True), "STROM_CONSOLE_HOSTS"),
    ],
)
def test_beyond_loopback_https_and_a_name_are_required(settings: Settings, missing: str) -> None:
    with pytest.raises(SystemExit, match=missing):
        process.check(settings)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (Settings(token_login=False), "STROM_CONSOLE_OIDC_ISSUER"),
        (Settings(oidc_issuer="http://login.example.com"), "https"),
        (Settings(oidc_issuer="https://login.example.com"), "STROM_CONSOLE_OIDC_CLIENT_ID"),
        (
            Settings(oidc_issuer="https://login.example.com", open_to_all=True),
            "STROM_CONSOLE_OPEN_TO_ALL",
        ),
        (
            Settings(
                oidc_issuer="https://login.example.com", oidc_client_id="c", oidc_scopes=("email",)
            ),
            "openid",
        ),
    ],
)
def test_settings_of_logins_that_cannot_work_are_reported(settings: Settings, missing: str) -> None:
    with pytest.raises(SystemExit, match=missing):
        process.check(settings)


@pytest.mark.parametrize("address", ["javascript:alert(1)", "grafana.example"])
def test_a_link_to_grafana_is_an_address_of_a_web_server(address: str) -> None:
    with pytest.raises(SystemExit, match="STROM_CONSOLE_GRAFANA_URL"):
        process.check(Settings(grafana_url=address))
    process.check(Settings(grafana_url="https://grafana.example"))


def test_on_loopback_and_behind_https_the_settings_suffice() -> None:
    process.check(Settings())
    process.check(Settings(host="0.0.0.0", behind_https=True, hosts=("console.example",)))


def test_a_console_that_is_open_to_all_is_so_by_a_setting_alone() -> None:
    """As REST: a container's port is published on loopback by who starts it."""
    assert Settings().open_to_all is False
    process.check(Settings(host="0.0.0.0", open_to_all=True, server="http://admission:8480"))


def test_the_token_of_a_local_server_is_not_open_to_the_network() -> None:
    """The client finds that token in a file of its user."""
    with pytest.raises(SystemExit, match="token of the user who runs"):
        process.check(Settings(host="0.0.0.0", open_to_all=True))


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    """And the earlier one while the file is not complete."""
    file = tmp_path / "tls.pem"
    settings = Settings(certificate_file=str(file))
    with pytest.raises(SystemExit, match="STROM_CONSOLE_CERTIFICATE_FILE"):
        process.certificate(settings)
    authority = trustme.CA()
    authority.issue_cert("console.example").private_key_and_cert_chain_pem.write_to_path(str(file))
    tls = process.certificate(settings)
    assert tls is not None
    file.write_text("half of it")
    assert "tls.pem" in (process.load_certificate(tls, settings) or "")
    authority.issue_cert("console.example").private_key_and_cert_chain_pem.write_to_path(str(file))
    assert process.load_certificate(tls, settings) is None
