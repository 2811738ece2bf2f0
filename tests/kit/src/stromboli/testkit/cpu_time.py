"""Measures CPU time of the event loop, without the garbage of earlier tests."""

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def frozen_objects() -> Iterator[None]:
    """Keep the objects of earlier tests from the collector, which would take seconds of CPU."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def longest_turn_s(until: asyncio.Future[Any]) -> float:
    """The longest CPU time of the event loop between two iterations: a probe waits that long."""
    with frozen_objects():
        longest, before = 0.0, time.thread_time()
        while not until.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now
        return longest
