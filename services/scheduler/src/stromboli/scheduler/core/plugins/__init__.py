"""Plugins by name. Each is a module with a class ``Plugin`` (see ``framework.session.Plugin``)."""

import importlib
from collections.abc import Callable

from stromboli.scheduler.core.framework import configuration, session

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
    }
)


def find(name: str) -> Callable[[configuration.PluginOptions], session.Plugin] | None:
    """What makes a plugin of this name; None if there is no such plugin."""
    if name not in NAMES:
        return None
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    make: Callable[[configuration.PluginOptions], session.Plugin] = module.Plugin
    return make
