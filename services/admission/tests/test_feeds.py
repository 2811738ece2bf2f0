"""What readers of changes are told, over the embedded cluster and without HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from stromboli.admission.review.feeds import Feeds, Selection, Told
from stromboli.local.cluster import EmbeddedCluster
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects

KIND = kinds.CONFIG_MAPS
ALL = Selection()
SOON_S = 0.01


class Counted(EmbeddedCluster):
    """Knows how many watches were begun."""

    watches = 0

    def watch(self, kind: port.AnyKind, resource_version: str) -> Any:
        """As ever."""
        self.watches += 1
        return super().watch(kind, resource_version)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Counted]:
    async with Counted(tmp_path / "cluster.db", events_kept=20) as made:
        yield made


async def put(cluster: EmbeddedCluster, *names: str, namespace: str = "default") -> int:
    """Create objects; the version of the last."""
    version = 0
    for name in names:
        stored = await cluster.create(KIND, namespace, objects.config_map(name))
        version = kinds.metadata_of(stored).version
    return version


async def told(follow: AsyncGenerator[Told, None], until: str) -> list[str]:
    """What is told, up to the first event of that type or object of that name."""
    found: list[str] = []
    async with asyncio.timeout(5):
        async for each in follow:
            name = kinds.metadata_of(each.object).name if each.object else ""
            found.append(f"{each.type} {name}".strip())
            if until in (each.type, name):
                return found
    return [*found, "end"]


async def test_a_reader_gets_what_is_and_then_what_changes(cluster: Counted) -> None:
    await put(cluster, "a", "b")
    async with Feeds(cluster, 60) as feeds:
        follow = feeds.follow(KIND, ALL)
        assert await told(follow, "synced") == ["added a", "added b", "synced"]
        await put(cluster, "c")
        await cluster.delete(KIND, "default", "a")
        assert await told(follow, "a") == ["added c", "deleted a"]


async def test_a_reader_of_a_namespace_name_or_label_gets_no_more(cluster: Counted) -> None:
    await cluster.create(KIND, "default", objects.config_map("red", {"labels": {"of": "us"}}))
    await put(cluster, "red", namespace="kube-system")
    async with Feeds(cluster, 60) as feeds:
        for chosen in (
            Selection(namespace="default", name="red"),
            Selection(namespace="default", labels={"of": "us"}),
        ):
            follow = feeds.follow(KIND, chosen)
            assert await told(follow, "synced") == ["added red", "synced"]
            await follow.aclose()
        follow = feeds.follow(KIND, Selection(namespace="default"))
        await told(follow, "synced")
        await put(cluster, "theirs", namespace="kube-system")
        await put(cluster, "ours")
        assert await told(follow, "ours") == ["added ours"]


async def test_resuming_tells_what_was_missed_and_no_more(cluster: Counted) -> None:
    """Also where a restarted server has never seen the reader."""
    await put(cluster, "a")
    seen = await put(cluster, "b")
    await put(cluster, "c")
    for _ in ("first", "restarted"):
        async with Feeds(cluster, 60) as feeds:
            assert await told(feeds.follow(KIND, ALL, seen), "c") == ["added c"]


async def test_a_version_that_is_forgotten_or_never_was_begins_again(cluster: Counted) -> None:
    seen = await put(cluster, "a")
    last = await put(cluster, *(f"n{index:02d}" for index in range(50)))
    async with Feeds(cluster, 60) as feeds:
        for strange in (seen, last + 1_000_000):
            found = await told(feeds.follow(KIND, ALL, strange), "synced")
            assert (found[:2], found[-1], len(found)) == (["reset", "added a"], "synced", 53)


async def test_a_reader_that_falls_behind_is_told_so_and_gets_everything(cluster: Counted) -> None:
    """It holds no memory meanwhile: only so many changes are kept, whoever has not read them."""
    async with Feeds(cluster, SOON_S, events_kept=4) as feeds:
        slow, quick = feeds.follow(KIND, ALL), feeds.follow(KIND, ALL)
        await told(slow, "synced")
        await told(quick, "synced")
        for index in range(12):
            await put(cluster, f"n{index:02d}")
            await told(quick, f"n{index:02d}")
        found = await told(slow, "synced")
        assert found[0] == "reset"
        assert len(found) == 1 + 12 + 1


async def test_many_readers_are_one_watch_that_ends_with_the_last(cluster: Counted) -> None:
    async with Feeds(cluster, SOON_S) as feeds:
        readers = [feeds.follow(KIND, ALL) for _ in range(10)]
        for reader in readers:
            await told(reader, "synced")
        await put(cluster, "a")
        for reader in readers:
            await told(reader, "a")
        assert cluster.watches == 1
        for reader in readers:
            await reader.aclose()
        assert feeds.watched == 0


async def test_silence_is_broken_with_a_version_to_resume_from(cluster: Counted) -> None:
    async with Feeds(cluster, SOON_S) as feeds:
        follow = feeds.follow(KIND, ALL)
        await told(follow, "synced")
        alive = await anext(follow)
        assert (alive.type, alive.version > 0) == ("alive", True)


async def test_closing_ends_every_stream_soon(cluster: Counted) -> None:
    async with contextlib.AsyncExitStack() as stack:
        feeds = await stack.enter_async_context(Feeds(cluster, 60))
        follow = feeds.follow(KIND, ALL)
        await told(follow, "synced")
        ending = asyncio.create_task(told(follow, "never"))
        await asyncio.sleep(0)
        await stack.aclose()
        assert await ending == ["end"]
    with pytest.raises(errors.TransientError, match="stop"):
        await anext(feeds.follow(KIND, ALL))


async def test_a_stream_ends_when_its_time_is_over(cluster: Counted) -> None:
    async with Feeds(cluster, 60) as feeds:
        follow = feeds.follow(KIND, ALL, lasts_s=SOON_S)
        assert (await told(follow, "never"))[-1] == "end"


@pytest.mark.parametrize("lasts_s", [SOON_S, 0.0303, 0.0304], ids=str)
def test_a_stream_says_once_that_it_was_silent_to_its_end(tmp_path: Path, lasts_s: float) -> None:
    """On the loop that serves."""

    async def read() -> list[str]:
        async with (
            EmbeddedCluster(tmp_path / "cluster.db") as cluster,
            Feeds(cluster, 60) as feeds,
        ):
            return [
                line
                for _ in range(20)
                for line in await told(feeds.follow(KIND, ALL, lasts_s=lasts_s), "never")
            ]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        lines = runner.run(read())
    assert lines.count("alive") <= lines.count("synced") == 20


async def test_readers_beyond_the_limit_are_sent_away(cluster: Counted) -> None:
    async with Feeds(cluster, 60, readers=1) as feeds:
        first = feeds.follow(KIND, ALL)
        await told(first, "synced")
        with pytest.raises(errors.TransientError, match="limit"):
            await anext(feeds.follow(KIND, ALL))
        await first.aclose()
        await told(feeds.follow(KIND, ALL), "synced")


async def test_a_user_who_has_all_streams_that_one_may_leaves_others_theirs(
    cluster: EmbeddedCluster,
) -> None:
    """And gets another one as soon as one of them has ended."""
    async with Feeds(cluster, 60, readers=3, readers_of_one=1) as feeds:
        first = feeds.follow(kinds.JOBS, Selection(), user="ann")
        await anext(first)
        with pytest.raises(errors.RateLimitedError, match="streams of yours"):
            await anext(feeds.follow(kinds.JOBS, Selection(), user="ann"))
        other = feeds.follow(kinds.JOBS, Selection(), user="ben")
        await anext(other)
        await first.aclose()
        again = feeds.follow(kinds.JOBS, Selection(), user="ann")
        await anext(again)
        for each in (other, again):
            await each.aclose()
