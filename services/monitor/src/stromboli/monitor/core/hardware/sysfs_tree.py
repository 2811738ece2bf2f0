"""Readings of ``/sys`` as data, and the list of files that are read.

Source: Linux, Documentation/ABI (sysfs-devices-system-cpu, sysfs-devices-node, sysfs-bus-pci).
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from stromboli.shared.messages import node_topology

T = TypeVar("T")

FILES = (
    "devices/system/cpu/online",
    "devices/system/cpu/offline",
    "devices/system/cpu/cpu[0-9]*/topology/physical_package_id",
    "devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list",
    "devices/system/node/online",
    "devices/system/node/node[0-9]*/cpulist",
    "devices/system/node/node[0-9]*/distance",
    "devices/system/node/node[0-9]*/meminfo",
    "devices/system/node/node[0-9]*/hugepages/hugepages-*/nr_hugepages",
    "devices/system/node/node[0-9]*/hugepages/hugepages-*/free_hugepages",
    "bus/pci/devices/*/class",
    "bus/pci/devices/*/numa_node",
    "class/net/*/operstate",
    "class/net/*/speed",
    "class/infiniband/*/ports/*/state",
    "class/infiniband/*/ports/*/rate",
    "class/infiniband/*/ports/*/link_layer",
)
"""Globs below ``/sys``."""
LINKS = (
    "bus/pci/devices/*",
    "bus/pci/devices/*/physfn",
    "class/net/*/device",
    "class/infiniband/*/device",
)
"""Globs of symbolic links, whose real path is read: it contains the bridges above a device."""


class SysfsTree(msgspec.Struct, frozen=True):
    """``texts``: path below the root -> content. ``links``: path -> real path below the root.
    ``failed``: path -> why it could not be read.
    """

    texts: Mapping[str, str]
    links: Mapping[str, str] = {}
    failed: Mapping[str, str] = {}

    def children(self, folder: str) -> list[str]:
        """Sorted names of the known entries of a directory. O(paths)."""
        start = folder + "/"
        return sorted(
            {
                path[len(start) :].partition("/")[0]
                for paths in (self.texts, self.links)
                for path in paths
                if path.startswith(start)
            }
        )


class SysfsReader:
    """Parses readings and collects failures; similar ones are merged into one line."""

    def __init__(self, tree: SysfsTree) -> None:
        self.tree = tree
        self._troubles: dict[tuple[str, str], list[str]] = {}

    def value(
        self, path: str, read: Callable[[str], T], what: str, of: str = "", *, quiet: bool = False
    ) -> T | None:
        """The parsed content of a path, or None. ``what`` and ``of`` name it in a failure;
        ``quiet``: its absence is not a failure.
        """
        text = self.tree.texts.get(path)
        if text is None:
            if not quiet or path in self.tree.failed:
                self.record_missing(what, self.tree.failed.get(path, "there is no such file"), of)
            return None
        try:
            return read(text)
        except (ValueError, IndexError):
            self.record_missing(what, f"{text[:40]!r} is invalid", of)
            return None

    def record_missing(self, what: str, why: str, of: str = "") -> None:
        """Record that ``what`` (of ``of``) could not be read, and why."""
        self._troubles.setdefault((what, why), []).append(of)

    @property
    def read_failures(self) -> tuple[node_topology.ReadFailure, ...]:
        """All recorded failures."""
        return tuple(
            node_topology.ReadFailure(what=_with_whose(what, whose), why=why)
            for (what, why), whose in self._troubles.items()
        )


SHOWN = 8
"""Names listed in one failure; a machine has hundreds of CPUs."""


def _with_whose(what: str, whose: list[str]) -> str:
    named = [each for each in whose if each]
    if not named:
        return what
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return f"{what} of {', '.join(named[:SHOWN])}{more}"
