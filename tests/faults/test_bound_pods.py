"""Kills of services that create pods with their nodes: the same promises as with pending pods.

A decision of such a gang admits it and creates its pods, so a kill while it has no outcome is
between the admission, the creates and their responses. What the killed controller did not create
is created without a node by its successor, and bound by a later session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stromboli.testkit.parts import tools
from tests.faults.support import kills
from tests.faults.support import observed_system as scenes

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]
QUIET_S, QUIET_WITHIN_S = 12.0, 90.0
SETTINGS = {"STROM_CONTROLLER_BOUND_PODS": "true"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bound_system(
    real_tools: tools.Tools, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[scenes.ObservedSystem]:
    """A system whose controller creates pods with their nodes."""
    state = tmp_path_factory.mktemp("bound")
    async with scenes.start_observed_system(state, SETTINGS) as live_system:
        yield live_system


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("service", ["controller", "scheduler"])
async def test_a_killed_service_creates_each_pod_once(
    bound_system: scenes.ObservedSystem, service: str, seed: int
) -> None:
    namespace = await bound_system.enter(f"bound-{service}-{seed}")
    bound_system.namespaces.add(namespace)
    await kills.run(bound_system, namespace, service, f"bound-{service}-{seed}")
    assert bound_system.broken(namespace) == []
    assert _created_with_nodes(bound_system, namespace)


async def test_no_invariant_is_violated_after_all_kills(
    bound_system: scenes.ObservedSystem,
) -> None:
    await bound_system.history.quiet(QUIET_S, QUIET_WITHIN_S)
    assert bound_system.broken(*bound_system.namespaces) == []


def _created_with_nodes(live_system: scenes.ObservedSystem, namespace: str) -> list[str]:
    """Names of pods that had a node when they were created."""
    return [
        event["object"]["metadata"]["name"]
        for event in live_system.history.ordered(frozenset({namespace}))
        if event["type"] == "ADDED"
        and event["object"]["kind"] == "Pod"
        and event["object"]["spec"].get("nodeName")
    ]
