"""Process nodes to try pods on, in each view of the machine that is allowed here."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from local.tests.process_room import Room
from stromboli.local.cluster import EmbeddedCluster, Kubelet
from stromboli.local.processes import machine


@pytest.fixture(scope="session", params=["namespaces", "plain"])
def view(request: pytest.FixtureRequest) -> str:
    best, _ = asyncio.run(machine.view())
    if request.param == "plain":
        return "plain"
    if best == "plain":
        pytest.skip("this machine allows no namespaces")
    return best


@pytest.fixture
async def room(tmp_path: Path, view: str) -> AsyncIterator[Room]:
    kubelets: dict[str, Kubelet] = {}
    async with EmbeddedCluster(tmp_path / "cluster.db", kubelets=kubelets) as cluster:
        made = Room(cluster, kubelets, view)
        await made.start(tmp_path / "pods")
        try:
            yield made
        finally:
            await made.stop()
