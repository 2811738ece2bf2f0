"""The plugins by name. Each is a module with a class ``Plugin`` (``interfaces.Plugin``)."""

import functools
import importlib
from collections.abc import Callable, Collection, Mapping

from stromboli.scheduler.core.framework import interfaces

NAMES = frozenset(
    {
        "gang",
        "priority",
        "conformance",
        "predicates",
        "nodeorder",
        "drf",
        "proportion",
        "capacity",
        "overcommit",
        "sla",
        "binpack",
        "resource-strategy-fit",
        "resourcequota",
        "nodegroup",
        "tdm",
        "pdb",
        "rescheduling",
        "usage",
        "cdp",
        "random-order",
        "queue-policy",
        "sharding",
        "shortest-remaining-service",
        "least-attained-service",
        "maintenance",
        "reservation",
        "eviction-limits",
        "extender",
        "network-topology-aware",
        "numa-aware",
        "deviceshare",
        "task-topology",
        "data-locality",
    }
)


GUARDS = frozenset({"cdp", "conformance", "eviction-limits", "pdb"})
"""Plugins in ``eviction_guards``, which only protect victims."""

FOLDERS = frozenset(
    {
        "capacity",
        "data-locality",
        "deviceshare",
        "drf",
        "extender",
        "numa-aware",
        "predicates",
        "queue-policy",
        "reservation",
        "task-topology",
        "tdm",
    }
)
"""Plugins of several modules, each in a folder of its name."""


MUTUALLY_EXCLUSIVE = ("proportion", "capacity")
"""Each of these divides the cluster among queues. Two divisions would contradict each other, so
only the first one configured is used."""


def find(name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
    """Return the factory of a plugin.

    Raises LookupError if there is no such plugin, or if one that excludes it is open.
    """
    if name not in NAMES:
        raise LookupError("there is no such plugin")
    for rival in MUTUALLY_EXCLUSIVE if name in MUTUALLY_EXCLUSIVE else ():
        if rival in already_open:
            raise LookupError(
                f"plugin {rival} is configured first and already divides the cluster among queues"
            )
    return _factory(name)


@functools.cache
def _factory(name: str) -> interfaces.PluginFactory:
    """Import the plugin at its first use."""
    module = importlib.import_module(f"{__name__}.{_module_of(name)}")
    make: interfaces.PluginFactory = module.Plugin
    return make


def _module_of(name: str) -> str:
    """Return the plugin's module: named like it, or in a folder of its name or group."""
    module = name.replace("-", "_")
    if name in GUARDS:
        return f"eviction_guards.{module}"
    return f"{module}.{module}" if name in FOLDERS else module


class Registry:
    """Built-in plugins, and plugins from entry points, by name."""

    def __init__(self, others: Mapping[str, Callable[[], interfaces.PluginFactory]] = {}) -> None:
        """``others``: name -> function that returns the plugin's class. No built-in name is among
        them."""
        self._others = others
        self.names = NAMES | others.keys()

    def find(self, name: str, already_open: Collection[str]) -> interfaces.PluginFactory:
        """Return the factory of a plugin. Raises LookupError like ``find``."""
        give = self._others.get(name)
        return find(name, already_open) if give is None else give()
