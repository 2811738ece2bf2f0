"""Leases over the embedded cluster and the embedded log."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.leader_election import cluster_lease, log_lease
from stromboli.shared.runtime import runtime
from stromboli.testkit.contracts import leases


class TestEmbeddedClusterLeaseStore(leases.ObjectLeaseContract):
    @pytest.fixture
    async def stores(self, tmp_path: Path) -> AsyncIterator[leases.LeaseStores]:
        async with EmbeddedCluster(tmp_path / "cluster") as cluster:
            where = (cluster, "default", "stromboli-a-monitor", runtime.utc_now)
            yield cluster_lease.ClusterLeaseStore(*where), cluster_lease.ClusterLeaseStore(*where)

    async def test_one_of_two_concurrent_holders_is_rejected(
        self, stores: leases.LeaseStores
    ) -> None:
        first, second = stores
        for position in stores:
            await position.read()
        await first.acquire("a", leases.TERMS)
        with pytest.raises(errors.AlreadyExistsError):
            await second.acquire("b", leases.TERMS)
        for position in stores:
            await position.read()
        await second.acquire("b", leases.TERMS)
        with pytest.raises(errors.ConflictError):
            await first.acquire("a", leases.TERMS)


class TestEmbeddedLogLeaseStore(leases.LeaseContract):
    @pytest.fixture
    async def stores(self, tmp_path: Path) -> AsyncIterator[leases.LeaseStores]:
        async with (
            EmbeddedBus(tmp_path / "log") as bus,
            log_lease.LogLeaseStore(
                bus, "a", runtime.utc_now, runtime.Health("scheduler")
            ) as first,
            log_lease.LogLeaseStore(
                bus, "b", runtime.utc_now, runtime.Health("scheduler")
            ) as second,
        ):
            yield first, second
