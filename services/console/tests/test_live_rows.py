"""Lists that watches keep up to date: complete before they are shown, bounded, of one session."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from stromboli.client import AsyncClient, errors
from stromboli.console.live_rows import LiveLists, LiveRows, ticks
from stromboli.console.pages import watches
from stromboli.console.pages.watches import QueueEntry

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
    async with asyncio.timeout(10):
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
