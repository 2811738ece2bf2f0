"""A run of the workload in which a service is killed while a decision has no outcome."""

from __future__ import annotations

import asyncio
import random

from tests.faults.support import decision_log, workload
from tests.faults.support.observed_system import ObservedSystem

JOBS, UNFINISHED, LATE = 20, 10, 4
GANGS = JOBS - workload.KINDS
TRIES = 20
"""Kills until one hits an unanswered decision. A decision is answered within some 20 ms: on a busy
machine this process often reads it later."""
ENDED_WITHIN_S = 120.0


async def run(live_system: ObservedSystem, namespace: str, service: str, seed: str) -> None:
    """Submit twenty jobs, kill and start the service while ten are unfinished and four more are
    submitted, and return when all jobs have ended as expected."""
    rng = random.Random(seed)
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


async def _kill(live_system: ObservedSystem, service: str, namespace: str, after: int) -> bool:
    """Kill and start it, unless this process has read the decision too late; whether a decision was
    unanswered at that moment."""
    part = live_system.system.services[service]
    decision = await live_system.decisions.next_unanswered(namespace, after)
    if not decision:
        return False
    at = decision_log.clock()
    await part.kill()
    await part.start()
    return await live_system.decisions.was_unanswered(decision, at)
