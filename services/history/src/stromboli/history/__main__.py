"""``python -m stromboli.history``: runs the service as its own process."""

import contextlib
import sys
from pathlib import Path

from stromboli.history import query_server
from stromboli.history.service import HistoryService
from stromboli.history.settings import Settings
from stromboli.shared import loopback_token, process
from stromboli.shared.runtime import http, runtime, telemetry


async def main(settings: Settings, health: runtime.Health) -> None:
    """Keep the store up to date and answer queries until stopped."""
    token = read_token(settings)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.serve_health(health, settings.health_host, settings.health_port)
        )
        bus = await stack.enter_async_context(process.connect_bus(settings.kafka, health))
        history = HistoryService(settings, bus, runtime.utc_now, health.set, health.warn)
        server = http.serving(
            query_server.app(history, token),
            http.listen(settings.queries_host, settings.queries_port),
            certificate_file=settings.queries_certificate_file,
            key_file=settings.queries_key_file,
        )
        port = await stack.enter_async_context(server)
        telemetry.log.info("listening", queries=port, token=bool(token))
        await history.run()


def read_token(settings: Settings) -> str:
    """The bearer token that queries require. Exits if the service listens outside loopback without
    one."""
    if not settings.queries_token_file:
        if settings.queries_host not in loopback_token.HOSTS:
            sys.exit(
                f"STROM_HISTORY_QUERIES_HOST={settings.queries_host}: outside loopback queries "
                "require a token; set STROM_HISTORY_QUERIES_TOKEN_FILE"
            )
        return ""
    try:
        token = Path(settings.queries_token_file).read_text(encoding="utf-8").strip()
    except OSError as error:
        sys.exit(f"STROM_HISTORY_QUERIES_TOKEN_FILE={error.filename}: {error.strerror}")
    if not token:
        sys.exit(
            f"STROM_HISTORY_QUERIES_TOKEN_FILE={settings.queries_token_file}: the file is empty"
        )
    return token


if __name__ == "__main__":
    process.start("history", Settings, main)
