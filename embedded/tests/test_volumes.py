"""Who plays volume controller never takes what it has not seen for what is not there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.volume_controller import VolumeController
from stromboli.shared.api import kinds, storage
from stromboli.shared.cluster import port


class LateListCluster:
    """A cluster that lists one kind only when told to, and records its requests."""

    def __init__(self, cluster: EmbeddedCluster, kind: kinds.Kind[Any]) -> None:
        self._cluster = cluster
        self._kind = kind
        self.seen = asyncio.Event()
        self.watched: set[str] = set()

    async def list(self, kind: kinds.Kind[Any]) -> port.Listing:
        if kind is self._kind:
            await self.seen.wait()
        return await self._cluster.list(kind)

    def watch(self, kind: kinds.Kind[Any], version: str) -> Any:
        self.watched.add(kind.plural)
        return self._cluster.watch(kind, version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(tmp_path / "cluster.db") as embedded_cluster:
        yield embedded_cluster


@contextlib.asynccontextmanager
async def played(cluster: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(VolumeController(cluster).run())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def claim(cluster: EmbeddedCluster, name: str, of: str) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": of,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    await make(cluster, kinds.PERSISTENT_VOLUME_CLAIMS, name, "default", spec=spec)


async def make(
    cluster: EmbeddedCluster, kind: kinds.Kind[Any], name: str, namespace: str = "", **fields: Any
) -> None:
    known = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
    await cluster.create(kind, namespace, msgspec.json.encode(known | fields))


async def bound(cluster: EmbeddedCluster, name: str) -> storage.PersistentVolumeClaim:
    """The claim, once it is bound."""
    while True:
        raw = await cluster.get(kinds.PERSISTENT_VOLUME_CLAIMS, "default", name)
        persistent_volume_claim = kinds.PERSISTENT_VOLUME_CLAIMS.decode(raw)
        if persistent_volume_claim.status.phase == "Bound":
            return persistent_volume_claim
        await asyncio.sleep(0.001)


async def volumes(cluster: EmbeddedCluster) -> set[str]:
    listing = await cluster.list(kinds.PERSISTENT_VOLUMES)
    return {kinds.metadata_of(item).name for item in listing.items}


FOLLOWED = (kinds.STORAGE_CLASSES, kinds.PERSISTENT_VOLUMES, kinds.PERSISTENT_VOLUME_CLAIMS)


async def begin_without(cluster: EmbeddedCluster, kind: kinds.Kind[Any]) -> None:
    """Start while one kind's list is late, until a new claim has its volume."""
    late, others = (
        LateListCluster(cluster, kind),
        {each.plural for each in FOLLOWED if each is not kind},
    )
    async with played(late):
        while not late.watched >= others:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        for _ in range(50):  # whatever follows from them alone has its turn
            await asyncio.sleep(0)
        late.seen.set()
        await claim(cluster, "last", "any")
        await bound(cluster, "last")


async def test_volumes_stay_while_claims_have_not_been_seen(cluster: EmbeddedCluster) -> None:
    """As after a restart, when the list of volumes arrives first."""
    async with played(cluster):
        await claim(cluster, "first", "any")
        volume = (await bound(cluster, "first")).spec.volume_name
    await begin_without(cluster, kinds.PERSISTENT_VOLUME_CLAIMS)
    assert volume in await volumes(cluster)


async def test_a_class_that_was_not_seen_yet_is_waited_for(cluster: EmbeddedCluster) -> None:
    """It may name another provisioner, or wait for the first consumer."""
    fields = {"volumeBindingMode": storage.LATE, "provisioner": "disks.example.com"}
    await make(cluster, kinds.STORAGE_CLASSES, "late", **fields)
    await claim(cluster, "waits", "late")
    await begin_without(cluster, kinds.STORAGE_CLASSES)
    raw = await cluster.get(kinds.PERSISTENT_VOLUME_CLAIMS, "default", "waits")
    assert kinds.PERSISTENT_VOLUME_CLAIMS.decode(raw).spec.volume_name == ""


async def test_a_volume_is_deleted_with_its_claim(cluster: EmbeddedCluster) -> None:
    async with played(cluster):
        for name in ("kept", "gone"):
            await claim(cluster, name, "any")
        kept, gone = [(await bound(cluster, it)).spec.volume_name for it in ("kept", "gone")]
        await cluster.delete(kinds.PERSISTENT_VOLUME_CLAIMS, "default", "gone")
        while gone in (left := await volumes(cluster)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        assert left == {kept}
