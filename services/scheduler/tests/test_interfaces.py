"""The extension points: what is registered, to which plugin a failure is attributed, the
documentation.
"""

import inspect
import re
from pathlib import Path

import pytest

from services.scheduler.tests.support import default_sessions
from stromboli.scheduler.core.framework import interfaces, session, session_interfaces
from stromboli.testkit import builders

PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()
WITHOUT_POINT = {"add_event_handler": interfaces.EVENT}
"""Methods without the name of their extension point."""


def conforms(ssn: session.Session) -> session_interfaces.SessionForActions:
    """A session has all that plugins and actions are promised: checked by mypy."""
    return ssn


def opened() -> session.Session:
    return default_sessions.opened(
        builders.make_node("n1"), *default_sessions.gang("a", 1), *default_sessions.gang("b", 1)
    )


def methods() -> dict[str, interfaces.Point]:
    return {
        name: WITHOUT_POINT.get(name) or interfaces.POINTS[name.removeprefix("add_")]
        for name, _ in inspect.getmembers(interfaces.Registry, inspect.isfunction)
        if name.startswith("add_")
    }


def test_every_extension_point_has_one_method_to_register() -> None:
    assert sorted(point.name for point in methods().values()) == sorted(interfaces.POINTS)


def test_the_page_about_plugins_lists_every_point_with_its_rule_and_flag() -> None:
    listed = dict(re.findall(r"^\| `(add_\w+)` \| ([^|]*\|[^|]*?) \|", PAGE, re.MULTILINE))
    assert {name: entry.strip() for name, entry in listed.items()} == {
        name: f"{point.combine.value} | {f'`{point.flag}`' if point.flag else ''}".strip()
        for name, point in methods().items()
    }


@pytest.mark.parametrize("point", ["add_job_order", "add_task_order"])
def test_an_order_is_a_key_or_a_comparison_and_never_both(point: str) -> None:
    register = getattr(opened(), point)
    with pytest.raises(TypeError, match="exactly one of compare and key"):
        register()
    with pytest.raises(TypeError, match="exactly one of compare and key"):
        register(lambda left, right: 0, key=lambda entry: 0)


def test_a_key_orders_pairs_as_it_sorts_lists() -> None:
    ssn = opened()
    with ssn.opening(0, 0):
        ssn.add_job_order(key=lambda job: job.name == "a")
    first, second = ssn.jobs["default/b"], ssn.jobs["default/a"]
    assert ssn.compare_jobs(first, second) < 0 < ssn.compare_jobs(second, first)
    assert ssn.ordered_jobs([second, first]) == [first, second]


def test_a_failing_key_belongs_to_the_plugin_that_registered_it() -> None:
    """Not to the function that derives the comparison, which all plugins share."""
    ssn = opened()

    def key(job: object) -> int:
        raise RuntimeError("odd")

    with ssn.opening(0, 1):
        ssn.add_job_order(key=key)
    name = ssn.configuration.tiers[0][1].name
    assert (key, name) in list(ssn.registered())
    assert "job_order" in ssn.points_of(name)
