"""Arguments of plugins and actions with wrong values: the default applies, and one warning with the
argument's path says so. No value stops a plugin."""

from collections.abc import Iterator
from typing import Any

import pytest

from stromboli.scheduler.core import actions, config_dry_run, plugins, simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import config_reader
from stromboli.testkit import builders

ACTIONS = "enqueue, allocate, preempt, reclaim, gangpreempt, gangreclaim, backfill, shuffle"
NEVER_VALID = [["a"]]
"""A list of lists, which no argument accepts."""
VALUES: tuple[Any, ...] = (
    NEVER_VALID,
    None,
    5,
    -1,
    1.5,
    float("nan"),
    True,
    "x",
    [],
    {},
    [5],
    [{}],
    [{"name": 5}],
)


def of_plugin(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    tiers = [{"plugins": [{"name": name, "arguments": arguments}]}]
    return {"actions": ACTIONS, "tiers": tiers}


def of_action(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "actions": ACTIONS,
        "tiers": [],
        "configurations": [{"name": name, "arguments": arguments}],
    }


class _Recording(dict[str, Any]):
    """Arguments, all absent, that record which names are read."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return default


def arguments() -> Iterator[Any]:
    """Each argument that a plugin or an action reads."""
    components = [(of_plugin, name) for name in sorted(plugins.NAMES)]
    components += [(of_action, name) for name in sorted(actions.NAMES)]
    for document, component in components:
        recording = _Recording()
        read = config_reader.read_configuration(
            document(component, recording), actions.NAMES, plugins.NAMES
        )
        simulate.run(read, cluster_objects.Cluster(now=builders.NOON), plugins.find)
        for name in sorted(recording.names):
            yield pytest.param(document, component, name, id=f"{component}-{name}")


ARGUMENTS: tuple[Any, ...] = tuple(arguments())


def test_all_arguments_are_discovered() -> None:
    """The tests below would pass without any argument."""
    names = {parameters.id for parameters in ARGUMENTS}
    assert len(names) > 90
    assert {"rescheduling-strategies", "extender-extender.managedResources"} <= names
    assert "preempt-enableTopologyAwarePreemption" in names


@pytest.mark.parametrize(("document", "component", "name"), ARGUMENTS)
def test_a_value_of_another_type_is_one_warning_with_its_path(
    document: Any, component: str, name: str
) -> None:
    dry = config_dry_run.dry_run(document(component, {name: NEVER_VALID}))
    (warning,) = dry.warnings
    assert f".arguments.{name}" in warning.place
    assert "['a']" in warning.problem


@pytest.mark.parametrize(("document", "component", "name"), ARGUMENTS)
def test_no_value_stops_a_plugin_or_an_action(document: Any, component: str, name: str) -> None:
    """A dry run in which one raises is refused, and the scheduler would not start."""
    for value in VALUES:
        config_dry_run.dry_run(document(component, {name: value}))


def warnings_of(plugin: str, arguments: dict[str, Any]) -> list[str]:
    return [str(it) for it in config_dry_run.dry_run(of_plugin(plugin, arguments)).warnings]


def test_strategies_that_are_not_a_list_are_one_warning() -> None:
    """A text is no list of its letters."""
    place = "tiers[0].plugins[0].arguments.strategies: "
    (warning,) = warnings_of("rescheduling", {"strategies": "lowNodeUtilization"})
    assert warning.startswith(f"{place}'lowNodeUtilization' is not a list; [] is used")


def test_each_unknown_strategy_is_named_with_its_place() -> None:
    known = {"name": "lowNodeUtilization"}
    strategies = [{"name": "other"}, known, "lowNodeUtilization"]
    first, third = warnings_of("rescheduling", {"strategies": strategies})
    assert first.startswith("tiers[0].plugins[0].arguments.strategies[0]: {'name': 'other'} is ")
    assert third.startswith("tiers[0].plugins[0].arguments.strategies[2]: 'lowNodeUtilization' is ")
    assert "write: - name: lowNodeUtilization" in third


@pytest.mark.parametrize(
    ("plugin", "arguments", "problem"),
    [
        ("binpack", {"binpack.cpu": -1}, "binpack.cpu: -1 is not at least 0; 1 is used"),
        (
            "binpack",
            {"binpack.resources": "a/b", "binpack.resources.a/b": -2},
            "binpack.resources.a/b: -2 is not at least 0; 1 is used",
        ),
        (
            "network-topology-aware",
            {"hypernode.binpack.memory": -1},
            "hypernode.binpack.memory: -1 is not at least 0; 1 is used",
        ),
        ("overcommit", {"overcommit-factor": 0.9}, "overcommit-factor: 0.9 is not at least 1; 1.2"),
        (
            "overcommit",
            {"overcommit-factor": float("nan")},
            "overcommit-factor: nan is not at least 1; 1.2 is used",
        ),
        (
            "resource-strategy-fit",
            {"resources": {"cpu": {"weight": 0}}},
            "resources.cpu.weight: 0 is not at least 1; 1 is used",
        ),
        (
            "resource-strategy-fit",
            {"resources": {"cpu": {"type": "Most"}}},
            "resources.cpu.type: 'Most' is not LeastAllocated or MostAllocated; 'LeastAllocated'",
        ),
        (
            "resource-strategy-fit",
            {"sra": {"resources": "a/b", "resourceWeight": {"a/b": "5"}}},
            "sra.resourceWeight.a/b: '5' is not a whole number; 1 is used",
        ),
        (
            "resource-strategy-fit",
            {"proportional": {"resources": "a/b", "resourceProportion": {"a/b.cpu": "4"}}},
            "proportional.resourceProportion.a/b.cpu: '4' is not a number; 1.0 is used",
        ),
        (
            "rescheduling",
            {"strategies": [{"name": "lowNodeUtilization", "params": {"thresholds": {"cpu": ""}}}]},
            "strategies[0].params.thresholds.cpu: '' is not a whole number; 100 is used",
        ),
        ("rescheduling", {"interval": "soon"}, "interval: 'soon' is not a duration"),
        (
            "usage",
            {"thresholds": {"cpu": 101}},
            "thresholds.cpu: 101.0 is not from 0 to 100; 80 is used",
        ),
    ],
)
def test_a_value_out_of_range_is_named_with_its_path_and_the_default(
    plugin: str, arguments: dict[str, Any], problem: str
) -> None:
    """Also inside lists and mappings."""
    (warning,) = warnings_of(plugin, arguments)
    assert warning.startswith(f"tiers[0].plugins[0].arguments.{problem}")
