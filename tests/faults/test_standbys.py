"""``kill -9`` of all leaders, each with a standby, and no restart: the standbys take over within
seconds, and every job ends exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import UTC, datetime

import aiohttp
import pytest

from stromboli.testkit.real_system import Service
from tests.faults.support import workload
from tests.faults.support.observed_system import ObservedSystem

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]

REPLICATED = ("monitor", "scheduler", "controller")
JOBS, UNFINISHED = 6, 4
ENDED_WITHIN_S = 120.0
ROLE_WITHIN_S = 90.0
ACTIVE = '"role":"active"'


async def test_standbys_take_over_when_every_leader_is_killed(live_system: ObservedSystem) -> None:
    """Afterwards the killed replicas return as standbys, and lead again when the others stop."""
    namespace = await live_system.enter("standbys")
    live_system.namespaces.add(namespace)
    services = live_system.system.services
    standbys = {name: live_system.system.standby(name) for name in REPLICATED}
    try:
        await asyncio.gather(*(standby.start() for standby in standbys.values()))
        pairs = [(services[name], standbys[name]) for name in REPLICATED]
        ordered = [await _leader_and_standby(pair) for pair in pairs]
        documents = workload.jobs(random.Random("standbys"), JOBS)
        await workload.submit(live_system.system.url, namespace, documents)
        enough = JOBS - UNFINISHED
        await live_system.history.until(
            lambda: live_system.finished(namespace) >= enough, ENDED_WITHIN_S
        )
        await asyncio.gather(*(leader.kill() for leader, _ in ordered))
        await live_system.all_end(namespace, JOBS, ENDED_WITHIN_S)
        assert live_system.broken(namespace) == []
        for _, standby in ordered:
            await _until(standby, ACTIVE)
    finally:
        await asyncio.gather(*(services[name].start() for name in REPLICATED))
        await asyncio.gather(*(standby.stop() for standby in standbys.values()))
    for name in REPLICATED:
        await _until(services[name], ACTIVE)
        await _ready(services[name])


async def test_no_replica_acts_while_another_system_holds_the_lease(
    live_system: ObservedSystem,
) -> None:
    """The lease is the one that Volcano's scheduler holds; every job ends afterwards."""
    namespace = await live_system.enter("rivals")
    live_system.namespaces.add(namespace)
    await live_system.enter("volcano-system")
    path = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases"
    spec = {
        "holderIdentity": "vc-scheduler-7",
        "leaseDurationSeconds": 3600,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    services = live_system.system.services
    async with live_system.system.parts.client() as api:
        await api.create(path, {"metadata": {"name": "volcano"}, "spec": spec})
        try:
            for name in ("scheduler", "controller", "admission"):
                await _until(services[name], "held by vc-scheduler-7")
            # Admission, too, is not ready: it answers all the same.
            await workload.submit(live_system.system.url, namespace, [workload.short_job("waits")])
        finally:
            await api.delete(f"{path}/volcano")
    await live_system.all_end(namespace, 1, ENDED_WITHIN_S)
    for service in services.values():
        await _ready(service)


async def _ready(service: Service) -> None:
    """Return when it is ready: a new leader first reads what the previous leader had read."""
    async with asyncio.timeout(ROLE_WITHIN_S):
        while not await service.is_ready():  # noqa: ASYNC110 - it can only be asked
            await asyncio.sleep(0.1)


async def _leader_and_standby(pair: tuple[Service, Service]) -> tuple[Service, Service]:
    """The replicas, the leader first, once both report their roles. On a slow machine the leader
    may have missed its renewals while the other replica started."""
    roles: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ROLE_WITHIN_S), _session() as session:
            while True:
                roles = [await _readiness(session, replica) for replica in pair]
                for leader, standby in (pair, pair[::-1]):
                    expected = {leader: ACTIVE, standby: f'"role":"standby of {leader.state.name}"'}
                    if all(expected[it] in role for it, role in zip(pair, roles, strict=True)):
                        return leader, standby
                await asyncio.sleep(0.1)
    raise AssertionError(f"no leader and standby: {roles}")


async def _until(service: Service, said: str) -> None:
    """Return when its own port reports this."""
    readiness = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ROLE_WITHIN_S), _session() as session:
            while said not in readiness:
                await asyncio.sleep(0.1)
                readiness = await _readiness(session, service)
            return
    raise AssertionError(f"{service.state.name}: no {said} in {readiness}")


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2))


async def _readiness(session: aiohttp.ClientSession, service: Service) -> str:
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with session.get(f"{service.url}/readyz") as answer:
            return await answer.text()
    return ""
