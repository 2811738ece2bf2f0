"""``kill -9`` of each service during its work loses nothing and repeats nothing.

Each run submits twenty jobs, with restarts, policies, claims and a flow among them. When ten are
unfinished and a decision has no outcome, the service is killed and restarted while four more jobs
are submitted. A kill whose decision got its outcome just before does not count, and another job is
submitted for the next attempt.

The checker reads the history from the API server's own watches. It runs after each run, and for all
runs together after 30 seconds of quiet at the end: waiting 30 seconds after each of the twenty runs
would detect nothing more.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from stromboli.testkit.real_system import SERVICES
from tests.faults.support import decision_log, workload
from tests.faults.support.observed_system import ObservedSystem

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

JOBS, UNFINISHED, LATE = 20, 10, 4
GANGS = JOBS - workload.KINDS
TRIES = 5
"""Kills until one hits an unanswered decision: a decision is answered within some 20 ms."""
ENDED_WITHIN_S = 60.0
QUIET_S, QUIET_WITHIN_S = 30.0, 90.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("service", SERVICES)
async def test_a_killed_service_continues_where_it_stopped(
    live_system: ObservedSystem, service: str, seed: int
) -> None:
    """Every job ends exactly once, no gang is split, no node overcommitted, no pod
    created twice.
    """
    rng = random.Random(f"{service}-{seed}")
    namespace = await live_system.enter(f"kill-{service}-{seed}")
    live_system.namespaces.add(namespace)
    url = live_system.system.url
    documents = workload.jobs(rng, GANGS + LATE + TRIES)
    first, late = documents[:GANGS], documents[GANGS : GANGS + LATE]
    spare = documents[GANGS + LATE :]

    assert await live_system.submit_every_kind(namespace, first) == JOBS
    enough = JOBS - UNFINISHED
    await live_system.history.until(
        lambda: live_system.finished(namespace) >= enough, ENDED_WITHIN_S
    )
    count = JOBS + LATE
    async with asyncio.TaskGroup() as group:
        coming = [group.create_task(workload.submit(url, namespace, late))]
        tries = 1
        while not await _kill(live_system, service, namespace, rng.randint(0, 2)):
            assert tries < TRIES, "no kill has hit an unanswered decision"
            coming.append(
                group.create_task(workload.submit(url, namespace, spare[tries : tries + 1]))
            )
            tries, count = tries + 1, count + 1
    await live_system.all_end(namespace, count, ENDED_WITHIN_S)
    assert live_system.broken(namespace) == []


async def _kill(live_system: ObservedSystem, service: str, namespace: str, after: int) -> bool:
    """Kill and start it; whether a decision was unanswered at that moment."""
    part = live_system.system.services[service]
    decision = await live_system.decisions.next_unanswered(namespace, after)
    at = decision_log.clock()
    await part.kill()
    await part.start()
    return await live_system.decisions.was_unanswered(decision, at)


@pytest.mark.timeout(180)
async def test_no_invariant_is_violated_after_all_kills(live_system: ObservedSystem) -> None:
    """No gang is partly bound, nothing was undone later, over all runs before this one."""
    await live_system.history.quiet(QUIET_S, QUIET_WITHIN_S)
    assert live_system.broken(*live_system.namespaces) == []
