"""Leases over a real API server and a real broker."""

import uuid
from collections.abc import AsyncIterator

import pytest

from stromboli.shared.api import kinds
from stromboli.shared.bus import kafka
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.leader_election import cluster_lease, log_lease
from stromboli.shared.runtime import runtime
from stromboli.testkit import objects
from stromboli.testkit.contracts import leases
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]


class TestKubernetesLeaseStore(leases.ObjectLeaseContract):
    @pytest.fixture
    async def stores(self, real_parts: real.RealParts) -> AsyncIterator[leases.LeaseStores]:
        kubernetes_settings = KubernetesSettings(kubeconfig=str(real_parts.kubeconfig))
        async with KubernetesCluster(kubernetes_settings) as cluster:
            where = (cluster, "default", objects.unique("lease"), runtime.utc_now)
            yield cluster_lease.ClusterLeaseStore(*where), cluster_lease.ClusterLeaseStore(*where)
            await cluster.delete(kinds.LEASES, *where[1:3])


class TestKafkaLeaseStore(leases.LeaseContract):
    @pytest.fixture
    async def stores(self, real_parts: real.RealParts) -> AsyncIterator[leases.LeaseStores]:
        settings = kafka.KafkaSettings(
            bootstrap=(real_parts.kafka_bootstrap,), cluster_name=uuid.uuid4().hex[:8]
        )
        async with (
            kafka.KafkaBus(settings) as bus,
            log_lease.LogLeaseStore(
                bus, "a", runtime.utc_now, runtime.Health("scheduler")
            ) as first,
            log_lease.LogLeaseStore(
                bus, "b", runtime.utc_now, runtime.Health("scheduler")
            ) as second,
        ):
            yield first, second
