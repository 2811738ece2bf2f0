"""The embedded cluster keeps the cluster's promises, with and without webhooks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stromboli.embedded.cluster import EmbeddedCluster, Webhook
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts import admission, cluster

EVENTS_KEPT = 100
"""More than any test but one makes."""


class TestEmbeddedCluster(cluster.ClusterContract):
    @pytest.fixture
    async def open_cluster(self, tmp_path: Path) -> AsyncIterator[port.Cluster]:
        async with EmbeddedCluster(tmp_path / "cluster", events_kept=EVENTS_KEPT) as opened:
            yield opened

    async def expired_version(self, open_cluster: port.Cluster) -> str:
        version = (await open_cluster.list(kinds.CONFIG_MAPS)).resource_version
        for number in range(2 * EVENTS_KEPT):
            body = objects.config_map(f"c{number}")
            await open_cluster.create(kinds.CONFIG_MAPS, "default", body)
        return version


class TestEmbeddedAdmission(admission.AdmissionContract):
    @pytest.fixture
    def hooks(self) -> list[Webhook]:
        return []

    @pytest.fixture
    async def open_cluster(
        self, tmp_path: Path, hooks: list[Webhook]
    ) -> AsyncIterator[port.Cluster]:
        self.hooks_before_it = hooks
        async with EmbeddedCluster(tmp_path / "cluster", hooks=hooks) as opened:
            yield opened

    async def install(self, *hooks: Webhook) -> None:
        self.hooks_before_it[:] = hooks
