"""The actions of a session, by name. Each is a module with ``run(ssn)``."""

import functools
import importlib
from collections.abc import Callable

from stromboli.scheduler.core.framework import session

NAMES = frozenset(
    {
        "enqueue",
        "allocate",
        "backfill",
        "preempt",
        "reclaim",
        "gangpreempt",
        "gangreclaim",
        "shuffle",
    }
)


def find(name: str) -> Callable[[session.Session], None]:
    """Return the function that runs the action. Raises LookupError if there is no such action."""
    if name not in NAMES:
        raise LookupError(f"there is no action {name}")
    return _run_of(name)


@functools.cache
def _run_of(name: str) -> Callable[[session.Session], None]:
    """Import the action at its first use."""
    run: Callable[[session.Session], None] = importlib.import_module(f"{__name__}.{name}").run
    return run
