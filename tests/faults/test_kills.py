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

import pytest

from stromboli.testkit.real_system import SERVICES
from tests.faults.support import kills
from tests.faults.support.observed_system import ObservedSystem

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]

QUIET_S, QUIET_WITHIN_S = 30.0, 90.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("service", SERVICES)
async def test_a_killed_service_continues_where_it_stopped(
    live_system: ObservedSystem, service: str, seed: int
) -> None:
    """Every job ends exactly once, no gang is split, no node overcommitted, no pod
    created twice.
    """
    namespace = await live_system.enter(f"kill-{service}-{seed}")
    live_system.namespaces.add(namespace)
    await kills.run(live_system, namespace, service, f"{service}-{seed}")
    assert live_system.broken(namespace) == []


async def test_no_invariant_is_violated_after_all_kills(live_system: ObservedSystem) -> None:
    """No gang is partly bound, nothing was undone later, over all runs before this one."""
    await live_system.history.quiet(QUIET_S, QUIET_WITHIN_S)
    assert live_system.broken(*live_system.namespaces) == []
