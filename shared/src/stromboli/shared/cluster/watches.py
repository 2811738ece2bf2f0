"""Closes watches reliably, and delays retries of rejected ones."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from stromboli.shared.cluster import port
from stromboli.shared.runtime import runtime

SHORT_WATCH_S = 1.0
"""Seconds: a watch that the server ends sooner counts as rejected. Watches usually last five
minutes."""


@contextlib.asynccontextmanager
async def closing(
    events: AsyncGenerator[port.WatchEvent, None], backoff: runtime.Backoff
) -> AsyncIterator[AsyncGenerator[port.WatchEvent, None]]:
    """The events of a watch, closed on exit. After a watch that the server ended immediately, the
    exit waits for the backoff, so that the caller does not retry in a tight loop. Errors pass
    through without a wait.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with contextlib.aclosing(events):
        yield events
    if loop.time() - began < SHORT_WATCH_S:
        await asyncio.sleep(backoff.next_s())
