"""``python -m stromboli.history``: runs the service as its own process."""

import contextlib

from stromboli.history.service import HistoryService
from stromboli.history.settings import Settings
from stromboli.shared import process
from stromboli.shared.runtime import runtime


async def main(settings: Settings, health: runtime.Health) -> None:
    """Keep the store up to date until stopped."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            process.serve_health(health, settings.health_host, settings.health_port)
        )
        bus = await stack.enter_async_context(process.connect_bus(settings.kafka, health))
        await HistoryService(settings, bus, runtime.utc_now, health.set, health.warn).run()


if __name__ == "__main__":
    process.start("history", Settings, main)
