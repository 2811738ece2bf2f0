"""The events for readers of changes, on the embedded cluster and without HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from stromboli.admission.review.watch_cache import ObjectSelector, WatchCaches, WatchEvent
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects, records

KIND = kinds.CONFIG_MAPS
ALL = ObjectSelector()
SOON_S = 0.01


class CountingCluster(EmbeddedCluster):
    """Counts the watches that were started."""

    watches = 0

    def watch(self, kind: port.AnyKind, resource_version: str) -> Any:
        """As ever."""
        self.watches += 1
        return super().watch(kind, resource_version)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[CountingCluster]:
    async with CountingCluster(tmp_path / "cluster.db", events_kept=20) as counting_cluster:
        yield counting_cluster


async def put(cluster: EmbeddedCluster, *names: str, namespace: str = "default") -> int:
    """Create objects; the version of the last."""
    version = 0
    for name in names:
        stored = await cluster.create(KIND, namespace, objects.config_map(name))
        version = kinds.metadata_of(stored).version
    return version


async def reported(follow: AsyncGenerator[WatchEvent, None], until: str) -> list[str]:
    """The events up to the first one of that type or of an object with that name."""
    found: list[str] = []
    async with asyncio.timeout(records.DEADLINE_S):
        async for each in follow:
            name = kinds.metadata_of(each.object).name if each.object else ""
            found.append(f"{each.type} {name}".strip())
            if until in (each.type, name):
                return found
    return [*found, "end"]


async def test_a_reader_gets_all_objects_and_then_changes(cluster: CountingCluster) -> None:
    await put(cluster, "a", "b")
    async with WatchCaches(cluster, 60) as watch_caches:
        follow = watch_caches.follow(KIND, ALL)
        assert await reported(follow, "synced") == ["added a", "added b", "synced"]
        await put(cluster, "c")
        await cluster.delete(KIND, "default", "a")
        assert await reported(follow, "a") == ["added c", "deleted a"]


async def test_a_reader_of_a_namespace_name_or_label_gets_no_more(cluster: CountingCluster) -> None:
    await cluster.create(KIND, "default", objects.config_map("red", {"labels": {"of": "us"}}))
    await put(cluster, "red", namespace="kube-system")
    async with WatchCaches(cluster, 60) as watch_caches:
        for chosen in (
            ObjectSelector(namespace="default", name="red"),
            ObjectSelector(namespace="default", labels={"of": "us"}),
        ):
            follow = watch_caches.follow(KIND, chosen)
            assert await reported(follow, "synced") == ["added red", "synced"]
            await follow.aclose()
        follow = watch_caches.follow(KIND, ObjectSelector(namespace="default"))
        await reported(follow, "synced")
        await put(cluster, "theirs", namespace="kube-system")
        await put(cluster, "ours")
        assert await reported(follow, "ours") == ["added ours"]


async def test_a_resumed_reader_gets_only_missed_changes(cluster: CountingCluster) -> None:
    """Also where a restarted server has never seen the reader."""
    await put(cluster, "a")
    seen = await put(cluster, "b")
    await put(cluster, "c")
    for _ in ("first", "restarted"):
        async with WatchCaches(cluster, 60) as watch_caches:
            assert await reported(watch_caches.follow(KIND, ALL, seen), "c") == ["added c"]


async def test_an_expired_or_unknown_version_resets_the_reader(
    cluster: CountingCluster,
) -> None:
    seen = await put(cluster, "a")
    last = await put(cluster, *(f"n{index:02d}" for index in range(50)))
    async with WatchCaches(cluster, 60) as watch_caches:
        for strange in (seen, last + 1_000_000):
            found = await reported(watch_caches.follow(KIND, ALL, strange), "synced")
            assert (found[:2], found[-1], len(found)) == (["reset", "added a"], "synced", 53)


async def test_a_reader_that_falls_behind_is_reset(
    cluster: CountingCluster,
) -> None:
    """It retains no memory: only a limited number of changes is kept, whoever has read them."""
    async with WatchCaches(cluster, SOON_S, events_kept=4) as watch_caches:
        slow, quick = watch_caches.follow(KIND, ALL), watch_caches.follow(KIND, ALL)
        await reported(slow, "synced")
        await reported(quick, "synced")
        for index in range(12):
            await put(cluster, f"n{index:02d}")
            await reported(quick, f"n{index:02d}")
        found = await reported(slow, "synced")
        assert found[0] == "reset"
        assert len(found) == 1 + 12 + 1


async def test_many_readers_are_one_watch_that_ends_with_the_last(cluster: CountingCluster) -> None:
    async with WatchCaches(cluster, SOON_S) as watch_caches:
        readers = [watch_caches.follow(KIND, ALL) for _ in range(10)]
        for reader in readers:
            await reported(reader, "synced")
        await put(cluster, "a")
        for reader in readers:
            await reported(reader, "a")
        assert cluster.watches == 1
        for reader in readers:
            await reader.aclose()
        assert watch_caches.watched == 0


async def test_silence_is_broken_with_a_version_to_resume_from(cluster: CountingCluster) -> None:
    async with WatchCaches(cluster, SOON_S) as watch_caches:
        follow = watch_caches.follow(KIND, ALL)
        await reported(follow, "synced")
        alive = await anext(follow)
        assert (alive.type, alive.version > 0) == ("alive", True)


async def test_closing_ends_every_stream_soon(cluster: CountingCluster) -> None:
    async with contextlib.AsyncExitStack() as stack:
        watch_caches = await stack.enter_async_context(WatchCaches(cluster, 60))
        follow = watch_caches.follow(KIND, ALL)
        await reported(follow, "synced")
        ending = asyncio.create_task(reported(follow, "never"))
        await asyncio.sleep(0)
        await stack.aclose()
        assert await ending == ["end"]
    with pytest.raises(errors.TransientError, match="stop"):
        await anext(watch_caches.follow(KIND, ALL))


async def test_a_stream_ends_when_its_time_is_over(cluster: CountingCluster) -> None:
    async with WatchCaches(cluster, 60) as watch_caches:
        follow = watch_caches.follow(KIND, ALL, lasts_s=SOON_S)
        assert (await reported(follow, "never"))[-1] == "end"


@pytest.mark.parametrize("seen", [0, 1_000_000], ids=["new", "unknown version"])
async def test_a_stream_does_not_end_before_its_initial_list(
    cluster: CountingCluster, seen: int
) -> None:
    """A reader whose streams are shorter than its list takes would never get it."""
    await put(cluster, "a", "b")
    async with WatchCaches(cluster, 60) as watch_caches:
        found = await reported(watch_caches.follow(KIND, ALL, seen, lasts_s=0.0), "never")
    assert found == [*["reset"] * bool(seen), "added a", "added b", "synced", "end"]


@pytest.mark.parametrize("lasts_s", [SOON_S, 0.0303, 0.0304], ids=str)
def test_a_silent_stream_ends_with_one_heartbeat(tmp_path: Path, lasts_s: float) -> None:
    """On the loop that serves."""

    async def read() -> list[str]:
        async with (
            EmbeddedCluster(tmp_path / "cluster.db") as cluster,
            WatchCaches(cluster, 60) as watch_caches,
        ):
            return [
                line
                for _ in range(20)
                for line in await reported(watch_caches.follow(KIND, ALL, lasts_s=lasts_s), "never")
            ]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        lines = runner.run(read())
    assert lines.count("alive") <= lines.count("synced") == 20


async def test_readers_beyond_the_limit_are_rejected(cluster: CountingCluster) -> None:
    async with WatchCaches(cluster, 60, readers=1) as watch_caches:
        first = watch_caches.follow(KIND, ALL)
        await reported(first, "synced")
        with pytest.raises(errors.TransientError, match="limit"):
            await anext(watch_caches.follow(KIND, ALL))
        await first.aclose()
        await reported(watch_caches.follow(KIND, ALL), "synced")


async def test_a_user_at_the_stream_limit_does_not_block_others(
    cluster: EmbeddedCluster,
) -> None:
    """And gets another one as soon as one of them has ended."""
    async with WatchCaches(cluster, 60, readers=3, readers_of_one=1) as watch_caches:
        first = watch_caches.follow(kinds.JOBS, ObjectSelector(), user="ann")
        await anext(first)
        with pytest.raises(errors.RateLimitedError, match="you have reached the limit"):
            await anext(watch_caches.follow(kinds.JOBS, ObjectSelector(), user="ann"))
        other = watch_caches.follow(kinds.JOBS, ObjectSelector(), user="ben")
        await anext(other)
        await first.aclose()
        again = watch_caches.follow(kinds.JOBS, ObjectSelector(), user="ann")
        await anext(again)
        for each in (other, again):
            await each.aclose()
