"""An embedded log and an embedded cluster for a monitor, empty at the start of a test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[bus_port.Bus]:
    async with EmbeddedBus(tmp_path / "log.db") as opened:
        yield opened


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[cluster_port.Cluster]:
    async with EmbeddedCluster(tmp_path / "cluster.db") as opened:
        yield opened
