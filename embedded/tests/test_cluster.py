"""What the embedded cluster guarantees beyond the contract: durability, continuous versions,
unsupported features, and its own bookkeeping.
"""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port
from stromboli.testkit import builders, objects, records

CONFIG_MAPS = kinds.CONFIG_MAPS
PODS = kinds.PODS
ROLES = kinds.Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", meta.Object)

WRITER = """
import asyncio, sys
from pathlib import Path
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds
from stromboli.testkit import objects

async def main():
    async with EmbeddedCluster(Path(sys.argv[1])) as cluster:
        for number in range(10_000):
            body = objects.config_map(f"c{number}")
            stored = objects.read(await cluster.create(kinds.CONFIG_MAPS, "default", body))
            metadata = stored["metadata"]
            sys.stdout.write(f"{metadata['name']} {metadata['uid']}\\n")
            sys.stdout.flush()

asyncio.run(main())
"""


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = builders.NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(tmp_path / "cluster", Clock()) as opened:
        yield opened


# --- durability ------------------------------------------------------------------------------


async def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    """Killed in the middle of creating, right behind an answer."""
    path = tmp_path / "cluster"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    answered = {}
    async for line in process.stdout:
        name, uid = line.decode().split()
        answered[name] = uid
        if len(answered) == 50:
            process.kill()
            break
    await process.wait()
    async with EmbeddedCluster(path) as cluster:
        listing = await cluster.list(CONFIG_MAPS, "default")
        kept = {
            document["metadata"]["name"]: document["metadata"]["uid"]
            for document in map(objects.read, listing.items)
        }
        assert answered.items() <= kept.items()


async def test_versions_and_watches_continue_after_a_restart(tmp_path: Path) -> None:
    """A watch resumes from its version and receives a deletion from before the restart."""
    path = tmp_path / "cluster"
    async with EmbeddedCluster(path) as before:
        version = (await before.list(CONFIG_MAPS)).resource_version
        await before.create(CONFIG_MAPS, "default", objects.config_map("a"))
        await before.create(CONFIG_MAPS, "default", objects.config_map("b"))
        await before.delete(CONFIG_MAPS, "default", "b")
    async with EmbeddedCluster(path) as after:
        await after.create(CONFIG_MAPS, "default", objects.config_map("c"))
        changes = await objects.changes(
            after, CONFIG_MAPS, version, "default", lambda changes: len(changes) == 4
        )
        reported = [(change.type, change.document["metadata"]["name"]) for change in changes]
        assert reported == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "b"), ("ADDED", "c")]
        assert int(changes[2].version) < int(changes[3].version)
        assert (await after.list(CONFIG_MAPS)).resource_version == changes[3].version


async def test_a_version_of_another_cluster_is_expired(cluster: EmbeddedCluster) -> None:
    """The file was deleted and the log was kept: everything must be listed again."""
    with pytest.raises(errors.ExpiredError):
        await anext(cluster.watch(CONFIG_MAPS, "1000000"))


async def test_a_cluster_belongs_to_one_instance(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    with pytest.raises(errors.PermanentError, match="has it open"):
        await EmbeddedCluster(tmp_path / "cluster").__aenter__()
    assert await cluster.is_reachable()


async def test_a_closed_cluster_is_an_error_and_its_watches_end(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(tmp_path / "cluster")
    async with cluster:
        stream = cluster.watch(CONFIG_MAPS, (await cluster.list(CONFIG_MAPS)).resource_version)
        watching = asyncio.ensure_future(anext(stream, None))
        await asyncio.wait([watching], timeout=0)
    assert await watching is None
    assert not await cluster.is_reachable()
    with pytest.raises(errors.UnavailableError):
        await cluster.create(CONFIG_MAPS, "default", objects.config_map("c"))
    with pytest.raises(errors.UnavailableError):
        await cluster.get(CONFIG_MAPS, "default", "c")
    with pytest.raises(errors.UnavailableError):
        await cluster.list(CONFIG_MAPS)


# --- watching --------------------------------------------------------------------------------


async def test_a_silent_watch_sends_bookmarks(tmp_path: Path) -> None:
    """While other kinds change, too: its version is good to resume from."""
    async with EmbeddedCluster(tmp_path / "cluster", bookmark_after_s=0.02) as cluster:
        version = (await cluster.list(PODS)).resource_version
        await cluster.create(CONFIG_MAPS, "default", objects.config_map("c"))
        stream = cluster.watch(PODS, version)
        event = await anext(stream)
        assert event.type == "BOOKMARK"
        assert event == port.WatchEvent(
            "BOOKMARK",
            objects.make(PODS, "", {"resourceVersion": str(int(version) + 1)}),
        )
        await stream.aclose()


async def test_a_bookmark_can_be_requested(cluster: EmbeddedCluster) -> None:
    """After all events that were sent before."""
    stream = cluster.watch(CONFIG_MAPS, (await cluster.list(CONFIG_MAPS)).resource_version)
    created = await cluster.create(CONFIG_MAPS, "default", objects.config_map("c"))
    waiting = asyncio.ensure_future(_two(stream))
    await asyncio.wait([waiting], timeout=0)
    cluster.bookmark()
    async with asyncio.timeout(records.DEADLINE_S):
        change, bookmark = await waiting
    assert (change.type, bookmark.type) == ("ADDED", "BOOKMARK")
    version = objects.read(created)["metadata"]["resourceVersion"]
    assert objects.read(bookmark.object)["metadata"]["resourceVersion"] == version


async def _two(stream: AsyncIterator[port.WatchEvent]) -> tuple[port.WatchEvent, port.WatchEvent]:
    return await anext(stream), await anext(stream)


# --- what it does not do -----------------------------------------------------------------------


async def test_an_unsupported_request_is_named(cluster: EmbeddedCluster) -> None:
    """The error contains the verb and the kind."""
    with pytest.raises(errors.UnsupportedError, match="list Role"):
        await cluster.list(ROLES)
    with pytest.raises(errors.UnsupportedError, match="create Role default"):
        await cluster.create(ROLES, "default", b"{}")
    with pytest.raises(errors.UnsupportedError, match="delete Namespace default"):
        await cluster.delete(kinds.NAMESPACES, "", "default")
    await cluster.create(CONFIG_MAPS, "default", objects.config_map("c"))
    with pytest.raises(errors.UnsupportedError, match="Foreground"):
        await cluster.delete(CONFIG_MAPS, "default", "c", propagation="Foreground")
    move = objects.operations(("move", "/data/a", "1"))
    with pytest.raises(errors.UnsupportedError, match="JSON patch move"):
        await cluster.patch(CONFIG_MAPS, "default", "c", move, patch_type="json")
    with pytest.raises(errors.UnsupportedError, match="watch ConfigMap"):
        await anext(cluster.watch(CONFIG_MAPS, ""))


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (CONFIG_MAPS, objects.make(PODS, "c"), "kind is 'Pod', not 'ConfigMap'"),
        (CONFIG_MAPS, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":3}', "is not an object"),
        (CONFIG_MAPS, objects.config_map("c", {"resourceVersion": "1"}), "must not be set"),
        (CONFIG_MAPS, objects.config_map("c", {"labels": {"a": 1}}), "labels"),
        (PODS, objects.make(PODS, "p"), "spec.containers: at least one"),
        (PODS, objects.pod("p", priority=7), "its priority class has 0"),
        (PODS, objects.pod("p", nodeSelector="n1"), "nodeSelector"),
        (
            PODS,
            objects.pod("p", {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "u"}]}),
            "apiVersion",
        ),
    ],
)
async def test_a_rejection_names_the_violation(
    cluster: EmbeddedCluster, kind: port.AnyKind, body: bytes, said: str
) -> None:
    with pytest.raises(errors.InvalidError, match=said):
        await cluster.create(kind, "default", body)


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": None},
        {"metadata": {"name": "other"}},
        {"metadata": {"namespace": "other"}},
        {"kind": "Pod"},
        {"data": {"a": {"b": "c"}}, "metadata": {"labels": {"a": [1]}}},
    ],
    ids=str,
)
async def test_a_patch_cannot_change_the_identity_of_an_object(
    cluster: EmbeddedCluster, patch: objects.Document
) -> None:
    await cluster.create(CONFIG_MAPS, "default", objects.config_map("c"))
    with pytest.raises(errors.InvalidError):
        await cluster.patch(CONFIG_MAPS, "default", "c", objects.merge(**patch), patch_type="merge")


# --- pods ------------------------------------------------------------------------------------


async def test_a_default_class_sets_the_priority_of_pods(cluster: EmbeddedCluster) -> None:
    """Those that name no class."""
    body = objects.make(kinds.PRIORITY_CLASSES, "usual", value=7, globalDefault=True)
    await cluster.create(kinds.PRIORITY_CLASSES, "", body)
    pod = objects.read(await cluster.create(PODS, "default", objects.pod("p")))
    assert (pod["spec"]["priority"], pod["spec"]["priorityClassName"]) == (7, "usual")


async def test_a_deletion_may_have_a_shorter_grace_period(cluster: EmbeddedCluster) -> None:
    """Not to take longer, and with a finalizer not to end."""
    body = objects.pod("p", {"finalizers": ["test.example/hold"]}, nodeName="n1")
    await cluster.create(PODS, "default", body)
    for requested, left in ((20, 20), (40, 20), (5, 5), (0, 0)):
        await cluster.delete(PODS, "default", "p", grace_seconds=requested)
        metadata = objects.read(await cluster.get(PODS, "default", "p"))["metadata"]
        assert metadata["deletionGracePeriodSeconds"] == left
        due = builders.NOON + timedelta(seconds=left)
        assert metadata["deletionTimestamp"] == due.strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_gated_pod_is_not_bound(cluster: EmbeddedCluster) -> None:
    body = objects.pod("p", schedulingGates=[{"name": "test.example/gate"}])
    pod = objects.read(await cluster.create(PODS, "default", body))
    with pytest.raises(errors.ConflictError, match="gates"):
        await cluster.bind("default", "p", uid=pod["metadata"]["uid"], node="n1", annotations={})


# --- garbage ---------------------------------------------------------------------------------


async def test_garbage_of_an_earlier_process_is_collected(tmp_path: Path) -> None:
    """Killed between an owner's end and its dependents'."""
    path = tmp_path / "cluster"
    async with EmbeddedCluster(path) as before:
        owner = objects.read(
            await before.create(CONFIG_MAPS, "default", objects.config_map("owner"))
        )
        owned = {"ownerReferences": [objects.owner(CONFIG_MAPS, owner)]}
        await before.create(CONFIG_MAPS, "default", objects.config_map("owned", owned))
        await before.delete(CONFIG_MAPS, "default", "owner")
        # Closed immediately: the collector has not run, or had nothing to do.
    async with EmbeddedCluster(path) as after:
        await objects.eventually_gone(after, CONFIG_MAPS, "default", "owned", records.DEADLINE_S)


async def test_a_quota_counts_pods_of_an_earlier_process(tmp_path: Path) -> None:
    """Also if that process ended before it could update the quota's status."""
    path = tmp_path / "cluster"
    quota = objects.make(kinds.RESOURCE_QUOTAS, "q", spec={"hard": {"pods": "1"}})
    async with EmbeddedCluster(path) as before:
        await before.create(kinds.RESOURCE_QUOTAS, "default", quota)
        await before.create(PODS, "default", objects.pod("p1"))
    async with EmbeddedCluster(path) as after:
        with pytest.raises(errors.InvalidError, match="exceeded quota: q, requested: pods=1"):
            await after.create(PODS, "default", objects.pod("p2"))
        await after.delete(PODS, "default", "p1")
        await after.create(PODS, "default", objects.pod("p2"))


def spoil(path: Path, resource: str, name: str, was: str, found: str) -> None:
    """Put a text into a stored object that admission would reject."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        (raw,) = database.execute(
            "SELECT raw FROM objects WHERE resource = ? AND name = ?", (resource, name)
        ).fetchone()
        assert was.encode() in raw
        database.execute(
            "UPDATE objects SET raw = ? WHERE resource = ? AND name = ?",
            (raw.replace(was.encode(), found.encode()), resource, name),
        )


@pytest.mark.parametrize("wrong", ["many", 'x"}, "hard": {"cpu": [1]}, "y": {"z": "'])
async def test_an_unreadable_quota_of_an_older_file_rejects_pods(
    tmp_path: Path, wrong: str
) -> None:
    """The quota is named, everything else continues, and it can be corrected or deleted."""
    path = tmp_path / "cluster"
    quota = objects.make(kinds.RESOURCE_QUOTAS, "q", spec={"hard": {"cpu": "7777m"}})
    async with EmbeddedCluster(path) as before:
        await before.create(kinds.RESOURCE_QUOTAS, "default", quota)
    spoil(path, kinds.RESOURCE_QUOTAS.plural, "q", "7777m", wrong)
    async with EmbeddedCluster(path) as after:
        with pytest.raises(errors.InvalidError, match=r"quota q cannot be read: .*delete it"):
            await after.create(PODS, "default", objects.pod("p"))
        await after.create(PODS, "kube-system", objects.pod("p"))
        await after.delete(kinds.RESOURCE_QUOTAS, "default", "q")
        await after.create(PODS, "default", objects.pod("p"))


async def test_an_unreadable_pod_rejects_pods_under_a_quota(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cluster"
    quota = objects.make(kinds.RESOURCE_QUOTAS, "q", spec={"hard": {"pods": "9"}})
    asks = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "7777m"}}}
    async with EmbeddedCluster(path) as before:
        await before.create(PODS, "default", objects.pod("old", containers=[asks]))
    spoil(path, "pods", "old", "7777m", "many")
    async with EmbeddedCluster(path) as after:
        await after.create(PODS, "default", objects.pod("free"))
        await after.create(kinds.RESOURCE_QUOTAS, "default", quota)
        with pytest.raises(errors.InvalidError, match=r"pod old cannot be read: .*'many'"):
            await after.create(PODS, "default", objects.pod("p"))
        await after.delete(PODS, "default", "old")
        await after.create(PODS, "default", objects.pod("p"))


@pytest.mark.parametrize("name", ["services", "nvidia.com/gpu", "limits.nvidia.com/gpu", "p"])
async def test_a_quota_of_unsupported_resources_is_rejected(
    cluster: EmbeddedCluster, name: str
) -> None:
    """An API server counts services, and nothing at all under a device's name alone."""
    quota = objects.make(kinds.RESOURCE_QUOTAS, "q", spec={"hard": {name: "1"}})
    with pytest.raises(errors.InvalidError, match=rf"spec.hard\[{name}\]: is not counted by"):
        await cluster.create(kinds.RESOURCE_QUOTAS, "default", quota)


async def test_an_owner_of_an_unknown_kind_counts_as_existing(
    cluster: EmbeddedCluster,
) -> None:
    """Unknown never means deletable. Meanwhile, certain garbage is collected."""
    stranger = {"apiVersion": "apps.test/v1", "kind": "Stranger", "name": "d", "uid": "u"}
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "name": "d", "uid": "u"}
    for name, owner in (("kept", stranger), ("garbage", absent)):
        body = objects.config_map(name, {"ownerReferences": [owner]})
        await cluster.create(CONFIG_MAPS, "default", body)
    await objects.eventually_gone(cluster, CONFIG_MAPS, "default", "garbage", records.DEADLINE_S)
    await cluster.get(CONFIG_MAPS, "default", "kept")


async def test_event_objects_are_deleted_after_an_hour(tmp_path: Path) -> None:
    """They are meant for present users; the log has the history."""
    clock = Clock()
    path = tmp_path / "cluster"
    async with EmbeddedCluster(path, clock) as before:
        await before.create(kinds.EVENTS, "default", objects.make(kinds.EVENTS, "old"))
        clock.now += timedelta(minutes=59)
        await before.create(kinds.EVENTS, "default", objects.make(kinds.EVENTS, "young"))
    clock.now += timedelta(minutes=2)
    async with EmbeddedCluster(path, clock) as after:
        await objects.eventually_gone(after, kinds.EVENTS, "default", "old", records.DEADLINE_S)
        await after.get(kinds.EVENTS, "default", "young")


async def test_generated_names_differ_though_ids_repeat(tmp_path: Path) -> None:
    """A taken name is never the answer."""
    ids = (f"id-{number // 2}" for number in range(1000))
    async with EmbeddedCluster(tmp_path / "cluster", Clock(), ids.__next__) as cluster:
        for _ in range(10):
            body = objects.config_map("", {"generateName": "gen-"})
            await cluster.create(CONFIG_MAPS, "default", body)
        assert len((await cluster.list(CONFIG_MAPS, "default")).items) == 10


async def test_an_abandoned_write_takes_effect(cluster: EmbeddedCluster) -> None:
    """Who waits no longer does not undo it; readers and watchers see it."""
    version = (await cluster.list(CONFIG_MAPS)).resource_version
    writing = asyncio.ensure_future(cluster.create(CONFIG_MAPS, "default", objects.config_map("c")))
    await asyncio.wait([writing], timeout=0)
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    (change,) = await objects.changes(cluster, CONFIG_MAPS, version, "default", bool)
    assert change.document["metadata"]["name"] == "c"
    assert await cluster.get(CONFIG_MAPS, "default", "c")


async def test_a_watch_of_a_closed_cluster_is_refused(tmp_path: Path) -> None:
    """A watch that ended immediately would be restarted indefinitely without pause."""
    cluster = EmbeddedCluster(tmp_path / "cluster.db")
    async with cluster:
        listing = await cluster.list(CONFIG_MAPS)
    with pytest.raises(errors.UnavailableError, match="closed"):
        await anext(cluster.watch(CONFIG_MAPS, listing.resource_version))


async def test_pages_are_in_order_while_objects_come_and_go(tmp_path: Path) -> None:
    """The order of names is kept from the first page on, and made again after a restart."""

    async def names(cluster: EmbeddedCluster) -> list[str]:
        found, after = [], ""
        while True:
            page = await cluster.page(CONFIG_MAPS, "default", limit=2, after=after)
            found += [objects.read(raw)["metadata"]["name"] for raw in page.items]
            if not (after := page.next):
                return found

    async with EmbeddedCluster(tmp_path / "cluster") as cluster:
        for name in ("d", "b"):
            await cluster.create(CONFIG_MAPS, "default", objects.config_map(name))
        assert await names(cluster) == ["b", "d"]
        for name in ("e", "a", "c"):
            await cluster.create(CONFIG_MAPS, "default", objects.config_map(name))
        await cluster.delete(CONFIG_MAPS, "default", "d")
        assert await names(cluster) == ["a", "b", "c", "e"]
        patch = b'{"data": {"k": "v"}}'
        await cluster.patch(CONFIG_MAPS, "default", "b", patch, patch_type="merge")
        await cluster.create(CONFIG_MAPS, "default", objects.config_map("d"))
        assert await names(cluster) == ["a", "b", "c", "d", "e"]
    async with EmbeddedCluster(tmp_path / "cluster") as cluster:
        assert await names(cluster) == ["a", "b", "c", "d", "e"]
