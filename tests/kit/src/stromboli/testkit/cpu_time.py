"""Measures CPU time of the event loop, without the garbage of earlier tests."""

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def freeze_objects() -> None:
    """Exclude all existing objects from garbage collection, permanently.

    The process of a long test run has millions of them, so that one collection takes seconds of
    CPU. Frozen objects are still freed by their reference counts.
    """
    gc.collect()
    gc.freeze()


def measured(call: Callable[[], T]) -> tuple[T, float]:
    """The result of the call, and its CPU seconds in this thread without garbage collections."""
    gc.disable()
    try:
        began = time.thread_time()
        return call(), time.thread_time() - began
    finally:
        gc.enable()


async def longest_turn_s(until: asyncio.Future[Any]) -> float:
    """The longest CPU time of the event loop between two iterations: a probe waits that long."""
    freeze_objects()
    longest, before = 0.0, time.thread_time()
    while not until.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    return longest
