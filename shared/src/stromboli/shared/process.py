"""Runs a service as its own process: settings from the environment, telemetry, health, the log."""

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from stromboli.shared import errors
from stromboli.shared.bus import port as bus_port
from stromboli.shared.bus.kafka import KafkaBus, KafkaSettings
from stromboli.shared.runtime import http, runtime, telemetry
from stromboli.shared.runtime import settings as settings_reader

S = TypeVar("S", bound=msgspec.Struct)
PROBE_EVERY_S = 2.0
"""Interval of the health checks of broker and API server, which take less than a millisecond."""

ALLOCATIONS_BETWEEN_LOOKS = 20_000
"""Python's garbage collector runs every 700 allocations by default, which takes a tenth of a
service's time when thousands of pods arrive. Our objects have few cycles, and a run over this many
takes 1 ms.
"""


def start(
    service: str, struct: type[S], main: Callable[[S, runtime.Health], Awaitable[None]]
) -> None:
    """Read the settings and run ``main`` until a signal.

    Exits with a line for each bad setting, and with one where a configuration that a setting names
    leads nowhere.
    """
    telemetry.set_up(service, os.environ)
    try:
        settings = settings_reader.load(struct, service, os.environ)
    except settings_reader.SettingsError as error:
        sys.exit(str(error))
    telemetry.log.info("settings", service=service, **settings_reader.shown(settings))

    gc.set_threshold(ALLOCATIONS_BETWEEN_LOOKS)

    async def run() -> None:
        await main(settings, runtime.Health(service))

    try:
        runtime.run(run)
    except errors.ConfigurationError as error:
        sys.exit(str(error))
    finally:
        telemetry.shut_down()


@contextlib.asynccontextmanager
async def serve_health(health: runtime.Health, host: str, port: int) -> AsyncIterator[None]:
    """``/livez``, ``/readyz`` and ``/metrics`` while inside."""
    bound = http.listen(host, port)
    async with http.serving(http.health_app(health), bound) as taken:
        telemetry.log.info("listening", health=f"http://{host}:{taken}")
        yield


@contextlib.asynccontextmanager
async def connect_bus(
    settings: KafkaSettings, health: runtime.Health
) -> AsyncIterator[bus_port.Bus]:
    """The log while inside. Waits while the broker is unavailable, and reports not ready then. It
    also reports a broker that becomes unavailable later, which a reader does not notice because it
    just waits.
    """
    health.set("log", "connecting")
    bus = KafkaBus(settings)
    await runtime.retry_until_available(bus.__aenter__, "log", health)
    try:
        async with watch_dependency(bus, "broker", health):
            yield bus
    finally:
        await bus.__aexit__(None, None, None)


class Dependency(Protocol):
    """An external system that may be unavailable."""

    async def is_reachable(self) -> bool:
        """Whether it answers now."""


@contextlib.asynccontextmanager
async def watch_dependency(
    outside: Dependency, fact: str, health: runtime.Health
) -> AsyncIterator[None]:
    """While inside, ``fact`` is a problem whenever ``outside`` does not answer."""

    async def ask() -> None:
        while True:
            health.set(fact, None if await outside.is_reachable() else "does not answer")
            await asyncio.sleep(PROBE_EVERY_S)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.wait([asking])
