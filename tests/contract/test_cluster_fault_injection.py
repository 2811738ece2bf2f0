"""A cluster in disorder is still a cluster: late, and its watches end early, but what it answers
holds. See ``embedded/tests/test_fault_injection.py`` for what it refuses and loses."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.fault_injection import FaultRates, FaultyCluster
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts import cluster

LATE = FaultRates(
    longest_delay_s=0.002, closed=0.3, expired=0.0, conflict=0.0, unavailable=0.0, lost=0.0
)
EVENTS_KEPT = 100


@pytest.mark.parametrize("seed", range(2))
class TestFaultInjectedCluster(cluster.ClusterContract):
    @pytest.fixture
    async def open_cluster(self, tmp_path: Path, seed: int) -> AsyncIterator[port.Cluster]:
        embedded = EmbeddedCluster(tmp_path / "cluster", events_kept=EVENTS_KEPT)
        async with FaultyCluster(embedded, seed, LATE) as opened:
            yield opened

    async def expired_version(self, open_cluster: port.Cluster) -> str:
        version = (await open_cluster.list(kinds.CONFIG_MAPS)).resource_version
        for number in range(2 * EVENTS_KEPT):
            body = objects.config_map(f"c{number}")
            await open_cluster.create(kinds.CONFIG_MAPS, "default", body)
        return version
