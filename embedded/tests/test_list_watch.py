"""Following a kind on an API server that denies watches."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.nodes.list_watch import list_and_watch
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import runtime
from stromboli.testkit.doubles import virtual_time


class ExpiredWatchCluster(EmbeddedCluster):
    """Keeps no version of nodes for long enough to watch them from it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.listed_at: list[float] = []

    async def list(
        self,
        kind: cluster_port.AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> cluster_port.Listing:
        self.listed_at.append(asyncio.get_running_loop().time())
        return await super().list(kind, namespace, labels)

    async def watch(
        self, kind: cluster_port.AnyKind, resource_version: str
    ) -> AsyncGenerator[cluster_port.WatchEvent, None]:
        if kind is kinds.NODES:
            raise errors.ExpiredError("watch nodes", "too old resource version")
        async for event in super().watch(kind, resource_version):
            yield event


def test_each_watch_that_expires_immediately_increases_the_backoff(tmp_path: Path) -> None:
    """A list is the most expensive request for the API server: its success does not reset the
    backoff.
    """

    async def five_lists() -> list[float]:
        async with ExpiredWatchCluster(tmp_path / "cluster.db") as cluster:
            async for _ in list_and_watch(cluster, kinds.NODES):
                if len(cluster.listed_at) == 5:
                    break
        return cluster.listed_at

    listed_at = virtual_time.run(five_lists())
    pauses = [after - before for before, after in itertools.pairwise(listed_at)]
    least = [0.8 * 2**number * runtime.FIRST_PAUSE_S for number in range(4)]
    assert all(pause >= short for pause, short in zip(pauses, least, strict=True))
