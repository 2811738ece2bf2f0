"""Measures parts of a session. The core has no clock: it states where a part begins and ends, and
its decisions do not depend on the measurement.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

Timed = Callable[[str, str], AbstractContextManager[None]]
"""(part, name) -> context manager around the part. Parts: ``OPENING`` (without a name),
``PLUGIN_OPENS`` and ``PLUGIN_CLOSES`` by plugin, ``ACTION`` by action.
"""
OPENING, PLUGIN_OPENS, PLUGIN_CLOSES, ACTION = "open", "OnSessionOpen", "OnSessionClose", "action"


_NOTHING = contextlib.nullcontext()


def no_timing(part: str, name: str) -> AbstractContextManager[None]:
    """Measures nothing."""
    return _NOTHING
