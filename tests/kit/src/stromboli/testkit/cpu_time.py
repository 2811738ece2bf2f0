"""Measures CPU time, also of the event loop, without the garbage of earlier tests.

A virtual machine that is stopped for seconds may count them as CPU time of the thread that ran.
Like other processes it only adds to a measured time, so what takes longer than ``enough_s`` is
measured again, and the least of ``MEASUREMENTS`` counts.
"""

import asyncio
import gc
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

MEASUREMENTS = 3
T = TypeVar("T")


def freeze_objects() -> None:
    """Exclude all existing objects from garbage collection, permanently.

    The process of a long test run has millions of them, so that one collection takes seconds of
    CPU. Frozen objects are still freed by their reference counts.
    """
    gc.collect()
    gc.freeze()


def measured(call: Callable[[], T], enough_s: float = math.inf) -> tuple[T, float]:
    """The result of the call, and its CPU seconds in this thread without garbage collections."""
    gc.disable()
    try:
        least_s, measurements = math.inf, 0
        while True:
            began = time.thread_time()
            result = call()
            least_s = min(least_s, time.thread_time() - began)
            measurements += 1
            if least_s <= enough_s or measurements == MEASUREMENTS:
                return result, least_s
    finally:
        gc.enable()


async def longest_turn_s(
    work: Callable[[], Coroutine[Any, Any, T]], enough_s: float
) -> tuple[T, float]:
    """The result of the work, and the longest CPU time of the event loop between two iterations
    meanwhile: a probe waits that long."""
    freeze_objects()
    least_s, measurements = math.inf, 0
    while True:
        working = asyncio.ensure_future(work())
        longest_s, before = 0.0, time.thread_time()
        while not working.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest_s, before = max(longest_s, now - before), now
        least_s = min(least_s, longest_s)
        measurements += 1
        if least_s <= enough_s or measurements == MEASUREMENTS:
            return working.result(), least_s
