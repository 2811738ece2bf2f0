"""The monitor on a log and a cluster: its records, and its readiness."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from services.monitor.tests import shell
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import envelope, errors, keys, snapshot, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import cluster as messages
from stromboli.shared.messages import log
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, cpu_time, objects, records
from stromboli.testkit.doubles import virtual_time

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_existing_objects_are_published_before_readiness(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    await cluster.create(kinds.JOBS, "default", objects.job("j1"))
    async with shell.monitoring(bus, cluster):
        cached, sync = snapshot.Snapshot(), snapshot.Sync()
        for record in await shell.said(bus, *topics.SNAPSHOTS.values(), topics.SYNC):
            cached.apply(record)
            sync.apply(record)
    assert [job.metadata.key for job in cached.objects(kinds.JOBS)] == ["default/j1"]
    assert sync.is_whole(kinds.WATCHED)


class Partial(EmbeddedCluster):
    """An API server that does not serve some kinds."""

    unserved: frozenset[cluster_port.AnyKind] = frozenset()

    async def list(
        self,
        kind: cluster_port.AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> cluster_port.Listing:
        if kind in self.unserved:
            raise errors.NotFoundError(f"list {kind.plural}", "no such resource")
        return await super().list(kind, namespace, labels)

    async def watch(
        self, kind: cluster_port.AnyKind, resource_version: str
    ) -> AsyncGenerator[cluster_port.WatchEvent, None]:
        if kind in self.unserved:
            raise errors.NotFoundError(f"watch {kind.plural}", "no such resource")
        async for event in super().watch(kind, resource_version):
            yield event


async def test_a_kind_that_is_not_served_has_no_objects(bus: bus_port.Bus, tmp_path: Path) -> None:
    """Devices and shards are not part of every cluster: no service waits for them. Objects seen
    before are deleted.
    """
    async with Partial(tmp_path / "cluster.db") as cluster:
        await cluster.create(kinds.DEVICE_CLASSES, "", objects.make(kinds.DEVICE_CLASSES, "gpu"))
        async with shell.monitoring(bus, cluster):
            pass
        cluster.unserved = kinds.OPTIONAL
        async with shell.monitoring(bus, cluster):
            sync = snapshot.Sync()
            for record in await shell.said(bus, topics.SYNC):
                sync.apply(record)
    assert sync.is_whole(kinds.WATCHED)
    assert (await shell.said(bus, topics.DEVICE_CLASSES))[-1].value is None


class Expired(EmbeddedCluster):
    """An API server that keeps no version of queues for long enough to watch them, four times."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.listed_at: list[float] = []

    async def list(
        self,
        kind: cluster_port.AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> cluster_port.Listing:
        if kind is kinds.QUEUES:
            self.listed_at.append(asyncio.get_running_loop().time())
        return await super().list(kind, namespace, labels)

    async def watch(
        self, kind: cluster_port.AnyKind, resource_version: str
    ) -> AsyncGenerator[cluster_port.WatchEvent, None]:
        if kind is kinds.QUEUES and len(self.listed_at) < 5:
            raise errors.ExpiredError("watch queues", "too old resource version")
        async for event in super().watch(kind, resource_version):
            yield event


def test_each_watch_that_expires_immediately_increases_the_backoff(tmp_path: Path) -> None:
    """A list is the most expensive request for the API server: its success does not reset the
    backoff.
    """

    async def until_ready() -> list[float]:
        async with (
            EmbeddedBus(tmp_path / "log.db") as bus,
            Expired(tmp_path / "cluster.db") as cluster,
            shell.monitoring(bus, cluster),
        ):
            return cluster.listed_at

    listed_at = virtual_time.run(until_ready())
    pauses = [after - before for before, after in itertools.pairwise(listed_at)]
    least = [0.8 * 2**number * runtime.FIRST_PAUSE_S for number in range(4)]
    assert all(pause >= short for pause, short in zip(pauses, least, strict=True))


async def test_each_change_is_published_and_a_deletion_is_a_tombstone(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    async with shell.monitoring(bus, cluster):
        created = kinds.JOBS.decode(await cluster.create(kinds.JOBS, "default", objects.job("j1")))
        patch = objects.merge(spec={"minAvailable": 2})
        await cluster.patch(kinds.JOBS, "default", "j1", patch, patch_type="merge")
        await cluster.delete(kinds.JOBS, "default", "j1")
        found = await shell.until(bus, topics.JOBS, shell.count(3))
    assert [record.value is None for record in found] == [False, False, True]
    assert found[2].headers["ce_objectuid"] == created.metadata.uid
    assert int(found[2].headers["ce_objectversion"]) > created.metadata.version


async def test_the_trace_of_an_object_continues(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    async with shell.monitoring(bus, cluster):
        body = objects.job("j1", {"annotations": {keys.TRACEPARENT: TRACE}})
        await cluster.create(kinds.JOBS, "default", body)
        (record,) = await shell.until(bus, topics.JOBS, shell.count(1))
    assert record.traceparent == TRACE


async def test_a_restart_resumes_and_repeats_nothing(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    for name in ("j1", "j2"):
        await cluster.create(kinds.JOBS, "default", objects.job(name))
    async with shell.monitoring(bus, cluster):
        pass
    before = await shell.said(bus, *topics.SNAPSHOTS.values())
    await cluster.delete(kinds.JOBS, "default", "j1")
    async with shell.monitoring(bus, cluster):
        await shell.until(bus, topics.JOBS, shell.count(3))
    news = shell.news(await shell.said(bus, *topics.SNAPSHOTS.values()), before)
    assert [(record.key, record.value) for record in news] == [("default/j1", None)]
    states = [
        message.state
        for record in await shell.said(bus, topics.SYNC)
        if isinstance(message := envelope.decode(record), messages.KindSynced)
    ]
    assert states.count("listing") == len(kinds.WATCHED)


async def test_an_idle_cluster_has_heartbeats(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    async with shell.monitoring(bus, cluster):
        before = len(await shell.said(bus, topics.SYNC))
        await shell.until(bus, topics.SYNC, shell.count(before + 2 * len(kinds.WATCHED)))


async def test_records_hidden_by_a_replaced_monitor_are_published_again(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    """Also of deleted objects."""
    paused = await bus.open_writer("monitor", "paused")
    await cluster.create(kinds.QUEUES, "", objects.make(kinds.QUEUES, "q1", spec={"weight": 3}))
    async with shell.monitoring(bus, cluster):
        (first,) = [r for r in await shell.said(bus, topics.QUEUES) if r.key == "q1"]
        await paused.append(
            builders.snapshot_of(builders.make_queue("q1", weight=1)),
            builders.snapshot_of(builders.make_queue("q2")),
        )
        found: list[envelope.Record] = []
        async with asyncio.timeout(records.DEADLINE_S):
            while not {"q1", "q2"} <= {r.key for r in found if r.offset > first.offset}:
                found = await shell.said(bus, topics.QUEUES)
    assert envelope.decode(found[-1]) is None or found[-1].key == "q1"
    by_key = {record.key: record for record in found}
    assert by_key["q1"].value == first.value
    assert by_key["q2"].value is None


async def test_the_later_of_two_monitors_without_a_lease_stays(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    """They do not replace one another repeatedly: the first becomes a standby and reports the next
    step.
    """
    async with shell.monitoring(bus, cluster) as first, shell.monitoring(bus, cluster) as second:
        async with asyncio.timeout(records.DEADLINE_S):
            while "lease" not in first.health.problems:  # noqa: ASYNC110 - it tells readiness only
                await asyncio.sleep(0)
        assert "STROM_LEASE_ENABLED" in first.health.problems["lease"]
        assert second.health.is_ready
    opened = [r for r in await shell.said(bus, topics.SYNC) if r.type == log.OPENED]
    assert len(opened) == 2


PODS = 5000
HELD_S = 0.5


class Crowded(EmbeddedCluster):
    """An API server with many pods."""

    pods: tuple[bytes, ...] = ()

    async def list(
        self,
        kind: cluster_port.AnyKind,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> cluster_port.Listing:
        listing = await super().list(kind, namespace, labels)
        if kind is not kinds.PODS:
            return listing
        return cluster_port.Listing(self.pods, listing.resource_version)


def pod(number: int) -> dict[str, object]:
    """A pod as an API server lists it."""
    metadata = {"name": f"p{number}", "namespace": "default"}
    metadata |= {"uid": f"u{number}", "resourceVersion": "1"}
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"metadata": metadata, "spec": spec}


async def test_probes_are_answered_within_a_second_while_many_pods_are_listed(
    tmp_path: Path,
) -> None:
    """In CPU time of the event loop, with a margin of two: other processes do not count."""
    pods = tuple(json.dumps(pod(number)).encode() for number in range(PODS))
    folders = map(str, itertools.count())

    async def listed() -> None:
        folder = tmp_path / next(folders)
        folder.mkdir()
        cluster = Crowded(folder / "crowded")
        cluster.pods = pods
        async with (
            EmbeddedBus(folder / "log.db") as bus,
            cluster,
            shell.monitoring(bus, cluster),
        ):
            read, _ = await records.read(bus, topics.PODS)
            assert len(read) == PODS

    _, longest_s = await cpu_time.longest_turn_s(listed, enough_s=HELD_S)
    assert longest_s <= HELD_S
