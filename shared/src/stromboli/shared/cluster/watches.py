"""What all who watch for ever do with a watch."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from stromboli.shared.cluster import port
from stromboli.shared.runtime import runtime

SHORT_WATCH_S = 1.0
"""A watch that a server ends sooner is its way of saying no: usual are five minutes."""


@contextlib.asynccontextmanager
async def closing(
    events: AsyncGenerator[port.WatchEvent, None], backoff: runtime.Backoff
) -> AsyncIterator[AsyncGenerator[port.WatchEvent, None]]:
    """The events of a watch, which is closed behind them. One that ended at once is not to be asked
    for again at once: leaving takes a pause then. Errors pass through without one."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with contextlib.aclosing(events):
        yield events
    if loop.time() - began < SHORT_WATCH_S:
        await asyncio.sleep(backoff.next_s())
