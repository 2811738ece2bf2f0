"""Polling with a deadline, for tests of systems that offer no event to wait for."""

import time
from collections.abc import Callable
from typing import Any

POLL_EVERY_S = 0.05


def until(read: Callable[[], Any], wanted: Callable[[Any], object], within_s: float) -> Any:
    """Poll until `wanted` accepts the value and return it; fail with the last value."""
    deadline = time.monotonic() + within_s
    while not wanted(value := read()):
        assert time.monotonic() < deadline, f"still {value!r} after {within_s:.0f} s"
        time.sleep(POLL_EVERY_S)
    return value
