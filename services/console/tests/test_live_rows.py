"""Lists that watches keep up to date: complete before they are shown, bounded, of one session."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence

import httpx
import msgspec
import pytest

from stromboli.client import AsyncClient, errors
from stromboli.console import live_rows
from stromboli.console.live_rows import MOST_OF_SESSION, LiveLists, LiveRows, ticks
from stromboli.console.pages import watches
from stromboli.console.pages.watches import QueueEntry
from stromboli.shared.api import scheduling
from stromboli.testkit import records

GOLD = b'event: added\ndata: {"metadata": {"name": "gold"}}\n\n'
SILVER = b'event: added\ndata: {"metadata": {"name": "silver"}}\n\n'
UNREADABLE = b'event: added\ndata: {"metadata": {"name": "bad"}, "spec": {"weight": "x"}}\n\n'
GOLD_IS_DELETED = b'event: deleted\ndata: {"metadata": {"name": "gold"}}\n\n'
SYNCED = b"event: synced\ndata: {}\n\n"
RESET = b"event: reset\ndata: {}\n\n"


class Stream(httpx.AsyncByteStream):
    """What a server sends: chunks now, then those that a test puts."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self.later: asyncio.Queue[bytes] = asyncio.Queue()
        for chunk in chunks:
            self.later.put_nowait(chunk)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.later.get()

    async def aclose(self) -> None:
        """Nothing to close."""


class Server(httpx.AsyncBaseTransport):
    """Answers each watch with the next stream, or refuses it."""

    def __init__(self, *streams: Stream | int) -> None:
        self.streams = list(streams)
        self.requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        answer = self.streams.pop(0)
        if isinstance(answer, int):
            headers = {"content-type": "application/problem+json"}
            return httpx.Response(answer, headers=headers, content=b'{"detail": "no right"}')
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=answer)


def client_of(server: Server) -> AsyncClient:
    return AsyncClient("http://127.0.0.1:1", token="t", transport=server)


async def changed_to(rows: LiveRows[QueueEntry], *names: str) -> None:
    """Wait until the list has exactly these rows."""
    async with asyncio.timeout(records.DEADLINE_S):
        while sorted(rows.rows) != sorted(names):
            await rows.changed(rows.version)


async def test_a_list_is_shown_once_it_is_complete_and_then_follows() -> None:
    stream = Stream([GOLD, SILVER, SYNCED])
    lists = LiveLists(5)
    rows = await lists.open("s", client_of(Server(stream)), watches.queues())
    assert sorted(rows.rows) == ["gold", "silver"]
    stream.later.put_nowait(GOLD_IS_DELETED)
    await changed_to(rows, "silver")
    await lists.close_all()


async def test_a_page_may_show_a_part_of_a_large_list_that_is_new() -> None:
    """A list of 100,000 jobs takes seconds; the first page of it should not."""
    stream = Stream([GOLD])
    lists, client = LiveLists(5), client_of(Server(stream))
    rows = await lists.open("s", client, watches.queues(), may_be_partial=True)
    assert (list(rows.rows), rows.is_loading) == (["gold"], True)
    for chunk in (SILVER, SYNCED):
        stream.later.put_nowait(chunk)
    assert await lists.open("s", client, watches.queues()) is rows
    assert (sorted(rows.rows), rows.is_loading) == (["gold", "silver"], False)
    await lists.close_all()


async def test_a_part_of_a_list_is_not_shown_before_the_right_to_it_is_known() -> None:
    lists = LiveLists(5)
    with pytest.raises(errors.ForbiddenError):
        await lists.open("s", client_of(Server(403)), watches.queues(), may_be_partial=True)
    await lists.close_all()


async def test_a_reset_replaces_the_rows_only_when_the_new_ones_are_complete() -> None:
    """Otherwise a page would be empty for a moment."""
    stream = Stream([GOLD, SYNCED])
    lists = LiveLists(5)
    rows = await lists.open("s", client_of(Server(stream)), watches.queues())
    version = rows.version
    for chunk in (RESET, SILVER):
        stream.later.put_nowait(chunk)
    assert (sorted(rows.rows), rows.version) == (["gold"], version)
    stream.later.put_nowait(SYNCED)
    await changed_to(rows, "silver")
    await lists.close_all()


async def test_an_object_that_cannot_be_decoded_hides_no_other_one() -> None:
    lists = LiveLists(5)
    server = Server(Stream([UNREADABLE, GOLD, SYNCED]))
    rows = await lists.open("s", client_of(server), watches.queues())
    assert list(rows.rows) == ["gold"]
    await lists.close_all()


async def test_a_refused_list_is_an_error_and_is_tried_again_by_the_next_page() -> None:
    server = Server(403, Stream([GOLD, SYNCED]))
    lists, client = LiveLists(5), client_of(server)
    with pytest.raises(errors.ForbiddenError):
        await lists.open("s", client, watches.queues())
    assert len(lists) == 0
    assert list((await lists.open("s", client, watches.queues())).rows) == ["gold"]
    await lists.close_all()


async def test_pages_of_a_session_share_a_list_and_sessions_do_not() -> None:
    server = Server(*(Stream([GOLD, SYNCED]) for _ in range(2)))
    lists, client = LiveLists(5), client_of(server)
    first, again = await asyncio.gather(
        *(lists.open("one", client, watches.queues()) for _ in range(2))
    )
    other = await lists.open("two", client, watches.queues())
    assert first is again
    assert other is not first
    assert server.requests == 2
    await lists.close_all()


async def test_the_list_unused_for_longest_is_closed_for_a_new_one() -> None:
    server = Server(*(Stream([SYNCED]) for _ in range(4)))
    lists, client = LiveLists(2), client_of(server)
    first = await lists.open("s", client, watches.jobs("one"))
    await lists.open("s", client, watches.jobs("two"))
    assert await lists.open("s", client, watches.jobs("one")) is first
    await lists.open("s", client, watches.jobs("three"))
    assert len(lists) == 2
    assert await lists.open("s", client, watches.jobs("one")) is first
    await lists.close_all()


async def test_a_closed_session_has_no_lists() -> None:
    server = Server(*(Stream([SYNCED]) for _ in range(2)))
    lists, client = LiveLists(5), client_of(server)
    await lists.open("one", client, watches.queues())
    await lists.open("two", client, watches.queues())
    await lists.close("one")
    assert len(lists) == 1
    await lists.close_all()


async def test_changes_at_the_same_time_are_one_tick() -> None:
    stream = Stream([SYNCED])
    lists = LiveLists(5)
    rows = await lists.open("s", client_of(Server(stream)), watches.queues())
    found = ticks([rows])
    waiting = asyncio.ensure_future(anext(found))
    for chunk in (GOLD, SILVER):
        stream.later.put_nowait(chunk)
    assert await waiting is True
    assert sorted(rows.rows) == ["gold", "silver"]
    await lists.close_all()


def test_a_change_after_a_quiet_time_is_reported_sooner_than_the_next_one() -> None:
    """So a page shows it within half a second, and has at most four updates in a second."""
    assert live_rows.collecting_s(60.0) == live_rows.FIRST_TOGETHER_S
    assert live_rows.collecting_s(0.0) == live_rows.TOGETHER_S
    assert live_rows.collecting_s(0.1) == pytest.approx(live_rows.TOGETHER_S - 0.1)


async def test_a_list_that_a_page_follows_is_not_the_one_unused_for_longest() -> None:
    """A page that stays open reads its list once, and follows it for hours."""
    server = Server(*(Stream([SYNCED]) for _ in range(3)))
    lists, client = LiveLists(2), client_of(server)
    followed = await lists.open("s", client, watches.jobs("followed"))
    await lists.open("s", client, watches.jobs("left"))
    waiting = asyncio.ensure_future(anext(ticks([followed])))
    await asyncio.sleep(0)  # the follower has begun to wait
    await lists.open("s", client, watches.jobs("new"))
    assert await lists.open("s", client, watches.jobs("followed")) is followed
    waiting.cancel()
    await asyncio.wait([waiting])
    await lists.close_all()


async def test_a_closed_list_ends_the_streams_of_its_followers() -> None:
    """Otherwise its page would be shown as live, and never change."""
    lists = LiveLists(1)
    client = client_of(Server(*(Stream([SYNCED]) for _ in range(2))))
    followed = ticks([await lists.open("s", client, watches.jobs("first"))])
    waiting = asyncio.ensure_future(anext(followed))
    await asyncio.sleep(0)
    await lists.open("s", client, watches.jobs("second"))
    async with asyncio.timeout(records.DEADLINE_S):
        await waiting
        assert [tick async for tick in followed] == []
    await lists.close_all()


async def test_a_list_may_be_closed_by_two_at_a_time() -> None:
    """A session ends while its unused lists are closed: neither may fail."""
    server = Server(*(Stream([SYNCED]) for _ in range(2)))
    lists, client = LiveLists(5), client_of(server)
    for name in ("one", "two"):
        (await lists.open("s", client, watches.jobs(name))).used_at = -math.inf
    await asyncio.gather(lists.close_unused(), lists.close("s"))
    assert len(lists) == 0


async def test_a_session_has_a_bounded_number_of_lists() -> None:
    """One viewer closes the lists of no other one, and keeps connections for requests."""
    count = MOST_OF_SESSION + 1
    server = Server(*(Stream([SYNCED]) for _ in range(count + 1)))
    lists, client = LiveLists(1000), client_of(server)
    other = await lists.open("other", client, watches.queues())
    for number in range(count):
        await lists.open("s", client, watches.jobs(f"space-{number}"))
    assert len(lists) == MOST_OF_SESSION + 1
    assert await lists.open("other", client, watches.queues()) is other
    await lists.close_all()


async def test_an_object_without_a_row_by_a_defect_hides_no_other_one() -> None:
    def row(queue: scheduling.Queue) -> QueueEntry:
        if queue.metadata.name == "silver":
            raise AssertionError("defect")
        return QueueEntry(queue)

    lists = LiveLists(5)
    watched = msgspec.structs.replace(watches.queues(), row=row)
    client = client_of(Server(Stream([GOLD, SILVER, SYNCED])))
    assert list((await lists.open("s", client, watched)).rows) == ["gold"]
    await lists.close_all()
