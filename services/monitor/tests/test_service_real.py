"""The monitor between a real API server and a real broker."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.monitor.tests import shell
from stromboli.shared import envelope, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.bus import kafka
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.testkit import crds, objects, records
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]


def connect(parts: real.RealParts) -> KubernetesCluster:
    return KubernetesCluster(KubernetesSettings(kubeconfig=str(parts.kubeconfig)))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def definitions(real_parts: real.RealParts) -> None:
    async with connect(real_parts) as opened:
        await crds.apply_crds(opened)


@pytest.fixture
async def cluster(
    real_parts: real.RealParts, definitions: None
) -> AsyncIterator[cluster_port.Cluster]:
    async with connect(real_parts) as opened:
        yield opened


@pytest.fixture
async def bus(real_parts: real.RealParts) -> AsyncIterator[bus_port.Bus]:
    settings = kafka.KafkaSettings(
        bootstrap=(real_parts.kafka_bootstrap,), cluster_name=f"monitor-{uuid.uuid4().hex[:8]}"
    )
    async with kafka.KafkaBus(settings) as opened:
        yield opened


async def test_a_life_is_published_and_a_restart_repeats_nothing(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    name = objects.unique("life")
    async with shell.monitoring(bus, cluster):
        await cluster.create(kinds.JOBS, "default", objects.job(name))
        await shell.until(bus, topics.JOBS, lambda found: shell.last(found, name) is not None)
    before = await shell.said(bus, *topics.SNAPSHOTS.values())
    await cluster.delete(kinds.JOBS, "default", name, propagation="Background")
    async with shell.monitoring(bus, cluster):
        await shell.until(bus, topics.JOBS, lambda found: found[-1].value is None)
    news = shell.news(await shell.said(bus, *topics.SNAPSHOTS.values()), before)
    assert [(record.key, record.value) for record in news] == [(f"default/{name}", None)]


async def test_reading_resumes_after_an_outage_of_the_api_server(
    bus: bus_port.Bus, cluster: cluster_port.Cluster, real_parts: real.RealParts
) -> None:
    """It is not ready until then; changes during the outage are published afterwards."""
    name = objects.unique("away")
    await cluster.create(kinds.JOBS, "default", objects.job(name))
    async with shell.monitoring(bus, cluster) as monitor:
        await real_parts.api_server.stop()
        async with asyncio.timeout(records.DEADLINE_S):
            while monitor.health.is_ready:  # noqa: ASYNC110 - health tells only of getting ready
                await asyncio.sleep(0.01)
        await real_parts.api_server.start()
        patch = objects.merge(spec={"maxRetry": 7})
        await cluster.patch(kinds.JOBS, "default", name, patch, patch_type="merge")
        found = await shell.until(
            bus, topics.JOBS, lambda found: _max_retry(shell.last(found, name)) == 7
        )
        async with asyncio.timeout(records.DEADLINE_S):
            await monitor.health.ready()
    assert len([record for record in found if record.key == f"default/{name}"]) == 2
    await cluster.delete(kinds.JOBS, "default", name, propagation="Background")


def _max_retry(record: envelope.Record | None) -> int:
    message = None if record is None else envelope.decode(record)
    return message.spec.max_retry if isinstance(message, batch.Job) else 0
