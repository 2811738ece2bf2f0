"""While the broker or the API server is unavailable, services wait, report it, and continue
afterwards.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from stromboli.testkit.parts.part import Part
from stromboli.testkit.real_system import SERVICES, Service
from tests.faults.support import workload
from tests.faults.support.observed_system import ObservedSystem

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]

JOBS, UNFINISHED = 10, 5
SAID_WITHIN_S = 90.0
BACK_WITHIN_S = 90.0
ENDED_WITHIN_S = 120.0
POLL_S = 0.1


async def _until(services: Sequence[Service], *, ready: bool, within_s: float) -> None:
    """Return when each service reports this on its own port, which can only be polled."""
    for service in services:
        try:
            async with asyncio.timeout(within_s):
                while True:
                    if await service.is_ready() is ready:
                        break
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            state = "not ready" if ready else "ready"
            raise AssertionError(f"{service.name} is still {state} after {within_s} s") from None


async def _go_through(
    live_system: ObservedSystem, namespace: str, part: Part, noticing: Sequence[str], *, crash: bool
) -> None:
    await live_system.enter(namespace)
    live_system.namespaces.add(namespace)
    gangs = workload.jobs(random.Random(namespace), JOBS - workload.KINDS)
    assert await live_system.submit_every_kind(namespace, gangs) == JOBS
    enough = JOBS - UNFINISHED
    await live_system.history.until(
        lambda: live_system.finished(namespace) >= enough, ENDED_WITHIN_S
    )
    services = live_system.system.services
    pids = {name: service.process.pid for name, service in services.items()}
    await (part.kill() if crash else part.stop())
    try:
        noticed = [services[name] for name in noticing]
        await _until(noticed, ready=False, within_s=SAID_WITHIN_S)
    finally:
        await part.start()
    await _until(list(services.values()), ready=True, within_s=BACK_WITHIN_S)
    await live_system.all_end(namespace, JOBS, ENDED_WITHIN_S)
    assert live_system.broken(namespace) == []
    assert {name: service.process.pid for name, service in services.items()} == pids
    assert all(service.process.is_running for service in services.values())


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
async def test_services_wait_for_an_unreachable_broker(
    live_system: ObservedSystem, crash: bool
) -> None:
    """All four report not ready and keep running, and every job ends as without the outage."""
    name = "broker-killed" if crash else "broker-stopped"
    await _go_through(live_system, name, live_system.system.parts.kafka, SERVICES, crash=crash)


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
async def test_services_wait_for_an_unreachable_api_server(
    live_system: ObservedSystem, crash: bool
) -> None:
    """Its clients report it; the scheduler uses only the log and may continue to decide."""
    name = "server-killed" if crash else "server-stopped"
    using = [service for service in SERVICES if service != "scheduler"]
    await _go_through(live_system, name, live_system.system.parts.api_server, using, crash=crash)
