"""What the embedded cluster keeps of its changes for watches."""

import asyncio
import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from stromboli.embedded.cluster import EmbeddedCluster, state
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.testkit import objects, records

CONFIG_MAPS = kinds.CONFIG_MAPS
PODS = kinds.PODS
ROOT = Path(__file__).resolve().parents[2]


async def test_history_is_bounded_over_restarts(tmp_path: Path) -> None:
    """What is older than the bound is expired, what is younger is not."""
    path = tmp_path / "cluster"
    async with EmbeddedCluster(path, events_kept=10) as before:
        old = (await before.list(CONFIG_MAPS)).resource_version
        for number in range(40):
            await before.create(CONFIG_MAPS, "default", objects.config_map(f"c{number}"))
    async with EmbeddedCluster(path, events_kept=10) as after:
        with pytest.raises(errors.ExpiredError):
            await anext(after.watch(CONFIG_MAPS, old))
        version = int((await after.list(CONFIG_MAPS)).resource_version)
        first = await anext(after.watch(CONFIG_MAPS, str(version - 10)))
        assert objects.read(first.object)["metadata"]["name"] == "c30"


async def test_a_watch_that_falls_behind_is_expired(tmp_path: Path) -> None:
    """It may not skip a change silently."""
    async with EmbeddedCluster(tmp_path / "cluster", events_kept=10) as cluster:
        stream = cluster.watch(CONFIG_MAPS, (await cluster.list(CONFIG_MAPS)).resource_version)
        await cluster.create(CONFIG_MAPS, "default", objects.config_map("c"))
        await anext(stream)
        for number in range(40):
            await cluster.create(CONFIG_MAPS, "default", objects.config_map(f"c{number}"))
        with pytest.raises(errors.ExpiredError):
            await anext(stream)


async def test_a_quiet_watch_does_not_expire_while_other_kinds_change(tmp_path: Path) -> None:
    """It is woken rarely, but before the events at which it waits are dropped."""
    async with EmbeddedCluster(tmp_path / "cluster", events_kept=10) as cluster:
        stream = cluster.watch(PODS, (await cluster.list(PODS)).resource_version)
        waiting = asyncio.ensure_future(anext(stream))
        for number in range(100):
            await cluster.create(CONFIG_MAPS, "default", objects.config_map(f"c{number}"))
        cluster.bookmark()
        async with asyncio.timeout(records.DEADLINE_S):
            assert (await waiting).type == "BOOKMARK"
        await stream.aclose()


async def test_history_is_bounded_in_bytes(tmp_path: Path) -> None:
    """A few large jobs whose status changes often may not fill the memory."""
    found = state.State(tmp_path / "cluster", events_kept=1_000, bytes_kept=10_000)
    await found.open()
    key = state.key_of(CONFIG_MAPS, "default", "c")
    quiet = asyncio.ensure_future(found.growth("pods"))
    await asyncio.wait([quiet], timeout=0)  # it has begun to wait
    for change in range(50):
        document = objects.read(objects.config_map("c"))
        document["metadata"]["uid"] = "u1"
        document["data"] = {"large": "x" * 1_000}
        await found.change(key, "MODIFIED" if change else "ADDED", document, "update")
    assert sum(len(event.stored.raw) for event in found.events) <= 10_000
    assert found.events[-1].version == found.version == 50
    assert found.oldest == found.events[0].version - 1
    assert found.events_from(found.index_behind(found.oldest)) == found.events
    await quiet  # woken before its events were dropped
    await found.close()


async def test_versions_of_an_object_share_their_metadata(tmp_path: Path) -> None:
    """The history has many versions of each job; they differ in their bytes."""

    def version(step: int, group: str = "g") -> dict[str, Any]:
        document = objects.read(objects.config_map("c"))
        labels = {"group": group}
        document["metadata"]["namespace"] = "default"
        document["metadata"] |= {"uid": "u1", "labels": labels, "ownerReferences": [{"uid": "o1"}]}
        return document | {"data": {"step": str(step)}}

    kept = state.State(tmp_path / "cluster", events_kept=1_000)
    await kept.open()
    for step in range(3):
        key = state.key_of(CONFIG_MAPS, "default", "c")
        await kept.change(key, "MODIFIED" if step else "ADDED", version(step), "update")
    await kept.change(state.key_of(CONFIG_MAPS, "default", "c"), "MODIFIED", version(3, "h"), "u")
    await kept.close()
    again = state.State(tmp_path / "cluster", events_kept=1_000)
    await again.open()
    for opened in (kept, again):
        events = opened.events
        assert [it.stored.labels["group"] for it in events] == ["g", "g", "g", "h"]
        for shared in ("key", "uid", "owners"):
            assert len({id(getattr(it.stored, shared)) for it in events}) == 1
        assert all(it.key is it.stored.key for it in events)
        assert opened.get(events[-1].key) is events[-1].stored
    assert len({id(it.stored.labels) for it in kept.events}) == 2
    await again.close()


def test_a_version_takes_its_bytes_and_little_more(tmp_path: Path) -> None:
    """A job of one pod leaves 14 versions; an encoder's result may be half unused."""
    # In a process of its own: systems of other tests, in threads of this one, take memory, too.
    program = (
        "import asyncio, pathlib, sys; from embedded.tests import test_cluster_history as tests;"
        "print(asyncio.run(tests.bytes_beyond_objects(pathlib.Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "cluster")]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert int(ran.stdout) < 200 * 400


async def bytes_beyond_objects(path: Path) -> int:
    """The bytes that 200 versions of an object take beyond their JSON."""
    kept = state.State(path, events_kept=1_000)
    await kept.open()
    key = state.key_of(CONFIG_MAPS, "default", "c")
    await kept.change(key, "ADDED", _document(0), "create")
    tracemalloc.start()
    for step in range(1, 201):
        key = state.key_of(CONFIG_MAPS, "default", "c")
        await kept.change(key, "MODIFIED", _document(step), "update")
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await kept.close()
    return taken - sum(len(event.stored.raw) for event in kept.events[1:])


def _document(step: int) -> dict[str, Any]:
    document = objects.read(objects.config_map("c"))
    document["metadata"] |= {
        "namespace": "default",
        "uid": "u1",
        "labels": {f"label-{number}": "x" * 30 for number in range(5)},
        "ownerReferences": [{"uid": "o1"}],
    }
    return document | {"data": {"step": str(step), "x": "x" * 900}}


async def test_a_change_wakes_only_the_watches_of_its_resource(tmp_path: Path) -> None:
    """Each service watches thirty kinds, and most changes are of three of them."""
    found = state.State(tmp_path / "cluster", events_kept=1_000)
    await found.open()
    key = state.key_of(CONFIG_MAPS, "default", "c")
    waiting = {it: asyncio.ensure_future(found.growth(it)) for it in (key.resource, "pods")}
    await asyncio.wait(waiting.values(), timeout=0)  # all have begun to wait
    document = objects.read(objects.config_map("c"))
    document["metadata"]["uid"] = "u1"
    await found.change(key, "ADDED", document, "create")
    await waiting[key.resource]
    assert not waiting["pods"].done()
    found.wake()
    await waiting["pods"]
    await found.close()
