"""``kill -9`` of each service in the middle of its work loses nothing and does nothing twice.

Every run hands in twenty jobs of a seed. When ten are unfinished and a decision is unanswered, the
service is killed and started again while four more come in. A kill whose decision turns out to
have been answered a moment before does not count, and another job is handed in for the next try.

The checker reads what the API server's own watches told from the beginning. It is asked after
every run, and about all runs together after 30 seconds of quiet at the end: not each for itself,
since twenty times 30 seconds would show nothing more.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from stromboli.testkit.real_system import SERVICES
from tests.faults import decisions, workload
from tests.faults.scene import Scene

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

JOBS, UNFINISHED, LATE = 20, 10, 4
TRIES = 5
"""Kills until one hits an unanswered decision: a decision is answered within some 20 ms."""
ENDED_WITHIN_S = 60.0
QUIET_S, QUIET_WITHIN_S = 30.0, 90.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("service", SERVICES)
async def test_a_killed_service_goes_on_where_it_was(scene: Scene, service: str, seed: int) -> None:
    """Every job comes to its end once, no gang is split, no node overfull, no pod made twice."""
    rng = random.Random(f"{service}-{seed}")
    namespace = await scene.enter(f"kill-{service}-{seed}")
    scene.namespaces.add(namespace)
    url = scene.system.url
    documents = workload.jobs(rng, JOBS + LATE + TRIES)
    first, late = documents[:JOBS], documents[JOBS : JOBS + LATE]
    spare = documents[JOBS + LATE :]

    await workload.submit(url, namespace, first)
    enough = JOBS - UNFINISHED
    await scene.history.until(lambda: scene.finished(namespace) >= enough, ENDED_WITHIN_S)
    count = JOBS + LATE
    async with asyncio.TaskGroup() as group:
        coming = [group.create_task(workload.submit(url, namespace, late))]
        tries = 1
        while not await _kill(scene, service, namespace, rng.randint(0, 2)):
            assert tries < TRIES, "no kill has hit an unanswered decision"
            coming.append(
                group.create_task(workload.submit(url, namespace, spare[tries : tries + 1]))
            )
            tries, count = tries + 1, count + 1
    await scene.all_end(namespace, count, ENDED_WITHIN_S)
    assert scene.broken(namespace) == []


async def _kill(scene: Scene, service: str, namespace: str, after: int) -> bool:
    """Kill and start it; whether a decision was unanswered at that moment."""
    part = scene.system.services[service]
    decision = await scene.decisions.next_unanswered(namespace, after)
    at = decisions.clock()
    await part.kill()
    await part.start()
    return await scene.decisions.was_unanswered(decision, at)


@pytest.mark.timeout(180)
async def test_after_all_kills_and_a_time_of_quiet_every_promise_was_kept(scene: Scene) -> None:
    """No gang is partly bound, nothing was undone later, over all runs before this one."""
    await scene.history.quiet(QUIET_S, QUIET_WITHIN_S)
    assert scene.broken(*scene.namespaces) == []
