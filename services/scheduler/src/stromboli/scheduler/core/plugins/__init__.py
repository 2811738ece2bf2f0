"""Plugins by name. Each is a module with a class ``Plugin`` (see ``framework.session.Plugin``)."""

import importlib
from collections.abc import Callable, Collection

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
        "queue-policy",
        "sharding",
    }
)


RIVALS = ("proportion", "capacity")
"""Both share the cluster out among queues: together neither's promises hold, so one is heard."""


def find(
    name: str, already_open: Collection[str]
) -> Callable[[configuration.PluginOptions], session.Plugin]:
    """What makes a plugin. Raises LookupError if there is none, or a rival is open already."""
    if name not in NAMES:
        raise LookupError("there is no such plugin")
    for rival in RIVALS:
        if name in RIVALS and rival in already_open:
            raise LookupError(f"{rival} comes first and shares out queues already")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    make: Callable[[configuration.PluginOptions], session.Plugin] = module.Plugin
    return make
