"""A watch that a server ends immediately is not restarted immediately."""

from collections.abc import AsyncGenerator

import pytest

from stromboli.shared import errors
from stromboli.shared.cluster import port, watches
from stromboli.shared.runtime import runtime


async def ends(error: Exception | None = None) -> AsyncGenerator[port.WatchEvent, None]:
    yield port.WatchEvent("BOOKMARK", b"{}")
    if error is not None:
        raise error


async def follow(events: AsyncGenerator[port.WatchEvent, None], backoff: runtime.Backoff) -> int:
    async with watches.closing(events, backoff) as seen:
        return len([event async for event in seen])


async def test_each_watch_that_ends_immediately_increases_the_backoff() -> None:
    backoff = runtime.Backoff(now=lambda: 0.0)
    assert [await follow(ends(), backoff) for _ in range(3)] == [1, 1, 1]
    assert backoff.next_s() >= 0.8 * 2**3 * runtime.FIRST_PAUSE_S


async def test_an_error_passes_through_and_its_pause_is_the_callers() -> None:
    backoff, expired = runtime.Backoff(), ends(errors.ExpiredError("WATCH pods", "too old"))
    with pytest.raises(errors.ExpiredError):
        await follow(expired, backoff)
    assert backoff.next_s() <= 1.2 * runtime.FIRST_PAUSE_S


async def test_a_reader_that_stops_closes_the_watch() -> None:
    events = ends()
    async with watches.closing(events, runtime.Backoff()) as seen:
        await anext(seen)
    assert [event async for event in events] == []
