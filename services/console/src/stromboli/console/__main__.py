"""``python -m stromboli.console``: runs the console as its own process."""

import asyncio
import contextlib
import ssl
import sys
from urllib.parse import urlsplit

from stromboli.client.errors import ClientError
from stromboli.console import service, sessions
from stromboli.console.settings import Settings
from stromboli.shared import loopback_token, process
from stromboli.shared.runtime import http, runtime, telemetry

PROBE_EVERY_S = 10.0
RENEW_EVERY_S = 60.0
"""Interval at which the certificate is read again; issuers renew it days before its end."""


async def main(settings: Settings, health: runtime.Health) -> None:
    """Serve the pages until stopped."""
    check(settings)
    is_secure = bool(settings.certificate_file) or settings.behind_https
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.serve_health(health, settings.health_host, settings.health_port)
        )
        running = service.running(
            settings,
            runtime.utc_now,
            settings.port,
            is_secure=is_secure,
            is_behind_proxy=settings.behind_https,
        )
        app = await stack.enter_async_context(running)
        tls = certificate(settings)
        server = http.serving(app, http.listen(settings.host, settings.port), tls=tls)
        port = await stack.enter_async_context(server)
        telemetry.log.info("listening", console=port, server=settings.server)
        async with asyncio.TaskGroup() as group:
            group.create_task(watch_server(settings, health))
            if tls is not None:
                group.create_task(renew(tls, settings, health))


def check(settings: Settings) -> None:
    """Exits with a message that names the missing or wrong setting."""
    if problem := provider_problem(settings):
        sys.exit(problem)
    if settings.grafana_url and urlsplit(settings.grafana_url).scheme not in ("http", "https"):
        sys.exit(
            f"STROM_CONSOLE_GRAFANA_URL={settings.grafana_url}: the address must begin with "
            "https:// or http://"
        )
    if settings.host in loopback_token.HOSTS:
        return
    if settings.open_to_all:
        if urlsplit(settings.server).hostname in loopback_token.HOSTS:
            sys.exit(
                f"STROM_CONSOLE_OPEN_TO_ALL with STROM_CONSOLE_SERVER={settings.server}: every "
                "client on the network would act with the token of the user who runs the "
                "console; set STROM_CONSOLE_HOST=127.0.0.1"
            )
        return
    if not settings.certificate_file and not settings.behind_https:
        sys.exit(
            f"STROM_CONSOLE_HOST={settings.host}: outside loopback the login page requires https; "
            "set STROM_CONSOLE_CERTIFICATE_FILE, or STROM_CONSOLE_BEHIND_HTTPS=true behind a "
            "proxy that terminates https"
        )
    if not settings.hosts:
        sys.exit(
            f"STROM_CONSOLE_HOST={settings.host}: STROM_CONSOLE_HOSTS is empty; set it to the host "
            "names of the console"
        )


def provider_problem(settings: Settings) -> str:
    """The error in the settings of logins; empty if they are valid."""
    if not settings.oidc_issuer:
        if settings.token_login:
            return ""
        return "STROM_CONSOLE_TOKEN_LOGIN=false leaves no login: set STROM_CONSOLE_OIDC_ISSUER"
    if urlsplit(settings.oidc_issuer).scheme != "https":
        return (
            f"STROM_CONSOLE_OIDC_ISSUER={settings.oidc_issuer}: the address must begin with "
            "https://, which the API server requires, too"
        )
    if settings.open_to_all:
        return "STROM_CONSOLE_OPEN_TO_ALL and STROM_CONSOLE_OIDC_ISSUER are set: set one of them"
    if not settings.oidc_client_id:
        return "STROM_CONSOLE_OIDC_CLIENT_ID is empty: register the console with the provider"
    if "openid" not in settings.oidc_scopes:
        return "STROM_CONSOLE_OIDC_SCOPES lacks openid: providers issue ID tokens only with it"
    return ""


def certificate(settings: Settings) -> ssl.SSLContext | None:
    """The TLS context of the pages; None without a certificate. Exits if it cannot be read."""
    if not settings.certificate_file:
        return None
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if (problem := load_certificate(tls, settings)) is not None:
        sys.exit(f"STROM_CONSOLE_CERTIFICATE_FILE={problem}")
    return tls


def load_certificate(tls: ssl.SSLContext, settings: Settings) -> str | None:
    """Loads the certificate for new connections. Returns the error if it cannot be read, in which
    case the earlier certificate stays in use."""
    try:
        tls.load_cert_chain(settings.certificate_file, settings.key_file or None)
    except OSError as error:  # includes ssl.SSLError
        return f"{settings.certificate_file}: {error}"
    return None


async def renew(tls: ssl.SSLContext, settings: Settings, health: runtime.Health) -> None:
    """Loads the certificate regularly, since a renewal replaces its file."""
    while True:
        await asyncio.sleep(RENEW_EVERY_S)
        health.warn("certificate", load_certificate(tls, settings))


async def watch_server(settings: Settings, health: runtime.Health) -> None:
    """Warn while REST does not answer. The console stays ready: its pages report that, too."""
    health.set("server", None)
    async with sessions.connect(settings) as client:
        while True:
            try:
                await client.readiness()
                health.warn("server", None)
            except ClientError as error:
                health.warn("server", str(error))
            await asyncio.sleep(PROBE_EVERY_S)


if __name__ == "__main__":
    process.start("console", Settings, main)
