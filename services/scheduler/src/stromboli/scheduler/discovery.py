"""Discovers plugins of other distributions by entry points, once at start."""

from collections import defaultdict
from importlib import metadata
from typing import Any

from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.framework import session
from stromboli.shared import entry_points

ENTRY_POINTS = "stromboli.scheduler.plugins"
"""Name in a configuration -> class with the protocol ``interfaces.Plugin``."""


class DiscoveryError(Exception):
    """Two distributions install a plugin of the same name."""


def discover_plugins(plugin_entry_points: metadata.EntryPoints | None = None) -> plugins.Registry:
    """The plugins of this environment: built-in plugins and plugins of other distributions.

    A plugin is imported when a configuration names it; an import error is an error of that
    configuration. Raises DiscoveryError if two plugins have the same name, because the choice would
    depend on the order of installation.
    """
    entries = (
        entry_points.of_group(ENTRY_POINTS) if plugin_entry_points is None else plugin_entry_points
    )
    by_name: dict[str, list[metadata.EntryPoint]] = defaultdict(list)
    for entry in entries:
        by_name[entry.name].append(entry)
    for name, named in sorted(by_name.items()):
        owners = [_distribution(entry) for entry in named]
        if name in plugins.NAMES:
            owners.insert(0, "stromboli-scheduler")
        if len(owners) > 1:
            raise DiscoveryError(
                f"the plugin {name} is in {' and in '.join(owners)}; uninstall one of them or "
                f"rename its entry point in the group {ENTRY_POINTS}"
            )
    return plugins.Registry({name: _LazyPlugin(entries[0]) for name, entries in by_name.items()})


class _LazyPlugin:
    """A plugin's class, imported at its first use."""

    def __init__(self, entry: metadata.EntryPoint) -> None:
        self._entry = entry

    def __call__(self) -> Any:
        try:
            return self._entry.load()
        except Exception as error:  # an import may raise anything
            raise session.PluginFailedError(
                self._entry.name,
                f"{self._entry.value} of {_distribution(self._entry)} cannot be imported: "
                f"{type(error).__name__}: {error}",
            ) from error


def _distribution(entry: metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist else "another distribution"
