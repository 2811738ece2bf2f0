"""``python -m stromboli.console``: runs the console as its own process."""

import asyncio
import contextlib
import sys

from stromboli.client.errors import ClientError
from stromboli.console import service, sessions
from stromboli.console.settings import Settings
from stromboli.shared import loopback_token, process
from stromboli.shared.runtime import http, runtime, telemetry

PROBE_EVERY_S = 10.0


async def main(settings: Settings, health: runtime.Health) -> None:
    """Serve the pages until stopped."""
    check(settings)
    is_secure = bool(settings.certificate_file) or settings.behind_https
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.serve_health(health, settings.health_host, settings.health_port)
        )
        running = service.running(settings, runtime.utc_now, settings.port, is_secure=is_secure)
        app = await stack.enter_async_context(running)
        server = http.serving(
            app,
            http.listen(settings.host, settings.port),
            certificate_file=settings.certificate_file,
            key_file=settings.key_file,
        )
        port = await stack.enter_async_context(server)
        telemetry.log.info("listening", console=port, server=settings.server)
        await watch_server(settings, health)


def check(settings: Settings) -> None:
    """Exits with the setting that is missing beyond loopback."""
    if settings.host in loopback_token.HOSTS or settings.open_to_all:
        return
    if not settings.certificate_file and not settings.behind_https:
        sys.exit(
            f"STROM_CONSOLE_HOST={settings.host}: beyond loopback tokens are typed into pages over "
            "https only; set STROM_CONSOLE_CERTIFICATE_FILE, or STROM_CONSOLE_BEHIND_HTTPS=true "
            "behind a proxy that terminates https"
        )
    if not settings.hosts:
        sys.exit(
            f"STROM_CONSOLE_HOST={settings.host}: name the console's host in STROM_CONSOLE_HOSTS"
        )


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
