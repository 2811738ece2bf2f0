"""Entry points of the installed distributions, searched once per process.

A search reads a file of each installed distribution, which takes 30 ms of CPU for two hundred of
them. A process with all services has several searches, and the tests thousands.
"""

import functools
import sys
from importlib import metadata


def of_group(group: str) -> metadata.EntryPoints:
    """All entry points of a group. Distributions that are installed later are not among them,
    unless ``sys.path`` has changed."""
    return _search(group, tuple(sys.path))


@functools.cache
def _search(group: str, path: tuple[str, ...]) -> metadata.EntryPoints:
    return metadata.entry_points(group=group)
