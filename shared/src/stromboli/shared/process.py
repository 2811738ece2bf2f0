"""Runs a service as a separate process: reads settings from the environment, and sets up telemetry,
health and the log."""

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
"""Seconds between two health checks of broker and API server, which take less than a
millisecond."""

ALLOCATIONS_BETWEEN_LOOKS = 20_000
"""Number of allocations between two runs of Python's garbage collector. With the default of 700, it
takes a tenth of a service's time when thousands of pods arrive. Our objects have few cycles, and a
run over this many takes 1 ms.
"""


def start(
    service: str, struct: type[S], main: Callable[[S, runtime.Health], Awaitable[None]]
) -> None:
    """Read the settings and run ``main`` until a signal.

    Exits with a line for each invalid setting, or with the message of a ConfigurationError that
    ``main`` raises.
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
    """Serve ``/livez``, ``/readyz`` and ``/metrics`` during the block."""
    bound = http.listen(host, port)
    async with http.serving(http.health_app(health), bound) as bound_port:
        telemetry.log.info("listening", health=f"http://{host}:{bound_port}")
        yield


@contextlib.asynccontextmanager
async def connect_bus(
    settings: KafkaSettings, health: runtime.Health
) -> AsyncIterator[bus_port.Bus]:
    """Connect to the log during the block. While the broker is unavailable, waits and reports not
    ready. Also reports a broker that becomes unavailable later, which a reader does not report
    because it only waits.
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
        """Whether the system responds now."""


@contextlib.asynccontextmanager
async def watch_dependency(
    outside: Dependency, fact: str, health: runtime.Health
) -> AsyncIterator[None]:
    """During the block, report ``fact`` as a problem of ``health`` whenever ``outside`` does not
    respond."""

    async def ask() -> None:
        while True:
            health.set(fact, None if await outside.is_reachable() else "does not respond")
            await asyncio.sleep(PROBE_EVERY_S)

    asking = asyncio.create_task(ask())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.wait([asking])
