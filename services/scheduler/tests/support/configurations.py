"""Common configurations, for rules that must hold with each of them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.tests.support.sessions import plugin
from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader, configuration

FIRST = [plugin("priority"), plugin("gang"), plugin("conformance")]
MILD = [
    plugin("priority"),
    plugin("gang", enablePreemptable=False),
    plugin("conformance"),
]
NODES = [plugin("predicates"), plugin("nodeorder")]
CAPACITY = [plugin("capacity"), *NODES]
TREE = [plugin("capacity", enableHierarchy=True), *NODES]
DEFAULT = [plugin("overcommit"), plugin("drf"), plugin("predicates"), plugin("proportion")]
EVERYTHING = "enqueue, allocate, preempt, reclaim, backfill"
GANGS = "enqueue, allocate, gangpreempt, gangreclaim, backfill"


def _configured(run: str, *tiers: list[dict[str, Any]], **of: Any) -> configuration.Configuration:
    document = {
        "actions": run,
        "tiers": [{"plugins": tier} for tier in tiers],
        "configurations": [
            {"name": name, "arguments": arguments} for name, arguments in of.items()
        ],
    }
    return config_reader.read_configuration(document, actions.NAMES, plugins.NAMES)


FLAT: Mapping[str, configuration.Configuration] = {
    "default": _configured("enqueue, allocate, backfill", FIRST, [*DEFAULT, plugin("nodeorder")]),
    "chart": _configured(
        "enqueue, allocate, backfill",
        MILD,
        [
            plugin("overcommit"),
            plugin("drf", enablePreemptable=False),
            plugin("predicates"),
            plugin("proportion"),
            plugin("nodeorder"),
            plugin("binpack"),
        ],
    ),
    "evicting": _configured(EVERYTHING, FIRST, [*DEFAULT, plugin("nodeorder")]),
    "proportion alone": _configured(
        EVERYTHING, FIRST, [plugin("proportion", enableReclaimable=True), *NODES]
    ),
    "capacity": _configured(EVERYTHING, FIRST, CAPACITY),
    "capacity decides": _configured(
        EVERYTHING,
        [plugin("priority"), plugin("gang", enableReclaimable=False)],
        CAPACITY,
    ),
    "dry runs": _configured(
        EVERYTHING, FIRST, CAPACITY, preempt={"enableTopologyAwarePreemption": True}
    ),
    "gangs": _configured(GANGS, FIRST, CAPACITY),
    "gangs and proportion": _configured(GANGS, FIRST, [plugin("proportion"), *NODES]),
    "one tier": _configured(EVERYTHING, [*FIRST, *CAPACITY]),
    "one tier and proportion": _configured(EVERYTHING, [*FIRST, plugin("proportion"), *NODES]),
    "drf tree": _configured(EVERYTHING, FIRST, [plugin("drf", enableHierarchy=True), *NODES]),
}
TREES: Mapping[str, configuration.Configuration] = {
    "tree": _configured(EVERYTHING, FIRST, TREE),
    "one tier and a tree": _configured(EVERYTHING, [*FIRST, *TREE]),
    "tree decides": _configured(
        EVERYTHING, [plugin("priority"), plugin("gang", enableReclaimable=False)], TREE
    ),
    "tree, a level up": _configured(
        EVERYTHING,
        [plugin("priority"), plugin("gang", enableReclaimable=False)],
        [
            plugin("capacity", {"ancestorReclaimLevel": 1}, enableHierarchy=True),
            *NODES,
        ],
    ),
    "gangs in a tree": _configured(GANGS, FIRST, TREE),
}
ALL = {**FLAT, **TREES}
EVICTING = sorted(name for name, each in ALL.items() if len(each.actions) > 3)
PROTECTED = [name for name in EVICTING if "tier" in name or "gangs" in name]
"""``gang`` takes part in every tier that chooses victims. In other configurations a later tier may
take tasks that the first one protects.
"""


def limited(name: str) -> configuration.Configuration:
    """The same with limits of evictions, so that no two jobs evict each other indefinitely."""
    chosen = ALL[name]
    limits = configuration.PluginOptions("eviction-limits", arguments={"cycle-window": "1000h"})
    return msgspec.structs.replace(chosen, tiers=((limits,), *chosen.tiers))
