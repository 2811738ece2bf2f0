"""Who measures how long parts of a session take. The core has no clock: it says where a part begins
and ends, and nothing that it decides hangs on it."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

Timed = Callable[[str, str], AbstractContextManager[None]]
"""(part, name) -> what is measured while inside. Parts: ``OPENING`` (no name), ``PLUGIN_OPENS`` and
``PLUGIN_CLOSES`` by plugin, ``ACTION`` by action."""
OPENING, PLUGIN_OPENS, PLUGIN_CLOSES, ACTION = "open", "OnSessionOpen", "OnSessionClose", "action"


def no_timing(part: str, name: str) -> AbstractContextManager[None]:
    """Nobody measures."""
    return contextlib.nullcontext()
