"""Plugins by name. Each is a module with a class ``Plugin`` (see ``framework.session.Plugin``)."""

import importlib
from collections.abc import Callable, Collection, Mapping

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session

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
        "maintenance",
        "reservation",
        "eviction-limits",
        "extender",
        "network-topology-aware",
        "numa-aware",
        "deviceshare",
        "task-topology",
    }
)


GUARDS = frozenset({"cdp", "conformance", "eviction-limits", "pdb"})
"""Those in ``eviction_guards``: they only protect victims."""

FOLDERS = frozenset(
    {
        "capacity",
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
"""Those of several modules, in a folder of their name."""


MUTUALLY_EXCLUSIVE = ("proportion", "capacity")
"""Both share the cluster out among queues: together neither's promises hold, so one is heard."""


def find(
    name: str, already_open: Collection[str]
) -> Callable[[configuration.PluginOptions], session.Plugin]:
    """What makes a plugin. Raises LookupError if there is none, or a rival is open already."""
    if name not in NAMES:
        raise LookupError("there is no such plugin")
    for rival in MUTUALLY_EXCLUSIVE:
        if name in MUTUALLY_EXCLUSIVE and rival in already_open:
            raise LookupError(f"{rival} comes first and shares out queues already")
    module = importlib.import_module(f"{__name__}.{_module_of(name)}")
    make: Callable[[configuration.PluginOptions], session.Plugin] = module.Plugin
    return make


def _module_of(name: str) -> str:
    """A plugin's module below this package: of its name, or in a folder of its name or group."""
    module = name.replace("-", "_")
    if name in GUARDS:
        return f"eviction_guards.{module}"
    return f"{module}.{module}" if name in FOLDERS else module


class Registry:
    """Our plugins and those of others, by name."""

    def __init__(self, others: Mapping[str, Callable[[], session.PluginFactory]] = {}) -> None:
        """``others``: name -> what gives the plugin's class; no name of ours is among them."""
        self._others = others
        self.names = NAMES | others.keys()

    def find(self, name: str, already_open: Collection[str]) -> session.PluginFactory:
        """What makes a plugin. Raises LookupError as ``find`` does."""
        give = self._others.get(name)
        return find(name, already_open) if give is None else give()
