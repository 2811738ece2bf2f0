"""How scenarios wait: for a fact, and never longer than a promise may take."""

import time
from collections.abc import Callable
from typing import Any

LOOK_EVERY_S = 0.05


def until(seen: Callable[[], Any], wanted: Callable[[Any], object], within_s: float) -> Any:
    """The first picture that is wanted; fails with the last one."""
    deadline = time.monotonic() + within_s
    while not wanted(picture := seen()):
        assert time.monotonic() < deadline, f"still {picture!r} after {within_s:.0f} s"
        time.sleep(LOOK_EVERY_S)
    return picture
