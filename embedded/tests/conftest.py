"""Process nodes to try pods on, in each view of the machine that is allowed here."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from embedded.tests.process_pods import ProcessCluster
from stromboli.embedded.cluster import EmbeddedCluster, Kubelet
from stromboli.embedded.processes import machine


@pytest.fixture(scope="session", params=["namespaces", "plain"])
def view(request: pytest.FixtureRequest) -> str:
    best, _ = asyncio.run(machine.view())
    if request.param == "plain":
        return "plain"
    if best == "plain":
        pytest.skip("this machine allows no namespaces")
    return best


@pytest.fixture
async def process_cluster(tmp_path: Path, view: str) -> AsyncIterator[ProcessCluster]:
    kubelets: dict[str, Kubelet] = {}
    async with EmbeddedCluster(tmp_path / "cluster.db", kubelets=kubelets) as cluster:
        made = ProcessCluster(cluster, kubelets, view)
        await made.start(tmp_path / "pods")
        try:
            yield made
        finally:
            await made.stop()
