"""A plugin that fails: what the session decides without it, and what it says."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from services.scheduler.tests import sessions, usual
from stromboli.scheduler.core import actions, plugins, simulate
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.scheduler.core.framework import plugin_isolation, session
from stromboli.scheduler.core.model import entities
from stromboli.shared.api import meta
from stromboli.testkit import builders

NODES = [builders.make_node("n1", cpu="4"), builders.make_node("n2", cpu="4")]


def failing(*given: Any) -> Any:
    raise RuntimeError("odd")


class Odd:
    """A plugin that registers what it is told to."""

    def __init__(self, register: Callable[[session.Session], None]) -> None:
        self._register = register

    def __call__(self, options: configuration.PluginOptions) -> "Odd":
        return self

    def open(self, within: session.Session) -> None:
        self._register(within)

    def close(self, within: session.Session) -> None:
        """Nothing stays."""


def held(
    register: Callable[[session.Session], None],
    *objects: meta.Object,
    run: str = "enqueue, allocate, backfill, preempt",
    troubles: plugin_isolation.Troubles | None = None,
    seconds: int = 0,
) -> session.Session:
    """A session with the usual plugins and one that is called odd."""
    registry = plugins.Registry({"odd": lambda: Odd(register)})
    document = {
        "actions": run,
        "tiers": [{"plugins": [*usual.TIER, {"name": "odd"}]}],
    }
    configured = config_reader.configured(document, actions.NAMES, registry.names)
    now = builders.NOON + timedelta(seconds=seconds)
    given = sessions.given([builders.make_queue(), *NODES, *objects], now)
    return simulate.run(configured, given, registry.find, troubles)


@pytest.mark.parametrize("point", ["add_job_order", "add_queue_order", "add_task_order"])
def test_without_an_order_others_order(point: str) -> None:
    """Orders and scores allow nothing, so placing goes on."""
    gangs = [*usual.gang("a", 2), *usual.gang("b", 2)]
    closed = held(
        lambda within: getattr(within, point)(failing),
        builders.make_queue("other"),
        *gangs,
        *sessions.gang("c", "other", 1),
    )
    assert closed.failures == {"odd": "RuntimeError: odd"}
    assert len(closed.decisions.binds) == 5
    assert "plugin odd failed: RuntimeError: odd: this session goes on without it" in (
        closed.complaints
    )


def test_without_a_score_others_score() -> None:
    def register(within: session.Session) -> None:
        within.add_node_order(failing)

    closed = held(register, *[each for at in range(5) for each in usual.gang(f"g{at}", 1)])
    assert len(closed.decisions.binds) == 5
    assert list(closed.failures) == ["odd"]


def test_a_job_on_which_a_predicate_fails_is_held_back_and_others_are_placed() -> None:
    """One odd pod stops neither the cluster nor the plugin, and is not placed unchecked."""

    def register(within: session.Session) -> None:
        def check(task: entities.Task, *_: Any) -> Any:
            return failing() if task.job == "default/odd" else []

        within.add_predicate(check)

    closed = held(register, *usual.gang("odd", 1), *usual.gang("fine", 2))
    assert sorted(usual.binds(closed)) == ["fine-0", "fine-1"]
    assert closed.failures == {}
    said = simulate.outcome("", closed).explanations["default/odd"]
    assert "plugin odd failed: RuntimeError: odd" in said


def test_a_predicate_that_fails_on_many_jobs_is_out_and_nothing_is_placed() -> None:
    """Unknown never means that a node may take a task; the explanation says why."""

    def register(within: session.Session) -> None:
        within.add_predicate(failing)

    gangs = [
        each for at in range(plugin_isolation.JOBS_HELD + 2) for each in usual.gang(f"g{at}", 1)
    ]
    closed = held(register, *gangs)
    assert closed.decisions.binds == {}
    assert closed.failures == {"odd": "RuntimeError: odd"}
    explained = simulate.outcome("", closed).explanations
    assert all("plugin odd failed: RuntimeError: odd" in text for text in explained.values())
    assert len(explained) == len(gangs) // 2


CROWD = [each for at in range(6) for each in usual.gang(f"g{at}", 1)]
WAITING = [
    builders.make_pod_group(f"w{at}", 1, phase="Pending", min_resources={"cpu": "1"})
    for at in range(6)
]


@pytest.mark.parametrize(
    ("register", "is_placed"),
    [
        (lambda within: within.add_allocatable(failing), False),
        (lambda within: within.add_overused(failing), False),
        (lambda within: within.add_job_ready(failing), False),
        (lambda within: within.add_job_valid(failing), False),
        (lambda within: within.add_pre_predicate(failing), False),
        (lambda within: within.add_event_handler(failing), True),
        (lambda within: within.add_distinction(failing), True),
    ],
    ids=["allocatable", "overused", "ready", "valid", "pre-predicate", "event", "distinction"],
)
def test_without_a_plugin_that_restricts_nothing_is_placed(
    register: Callable[[session.Session], None], is_placed: bool
) -> None:
    """What only listens restricts nothing."""
    closed = held(register, *CROWD)
    assert bool(closed.decisions.binds) is is_placed
    assert list(closed.failures) == ["odd"]


def test_without_a_plugin_that_guards_the_door_nobody_passes_it() -> None:
    closed = held(lambda within: within.add_job_enqueueable(failing), *WAITING)
    assert {job.phase for job in closed.jobs.values()} == {"Pending"}


def test_without_a_preparation_nothing_is_bound() -> None:
    """What must be done before is not known."""
    closed = held(lambda within: within.add_preparation(failing), *CROWD)
    assert closed.decisions.binds == {}


def test_without_a_plugin_that_protects_victims_nobody_is_evicted() -> None:
    """Neither by the tier that is emptied nor by a later one."""

    def objects() -> list[meta.Object]:
        return [
            *usual.gang("a", 4, node="n1", min_member=1, cpu="1"),
            *usual.gang("b", 4, node="n2", min_member=1, cpu="1"),
            builders.make_priority_class("urgent", 100),
            builders.make_pod_group("high", 1, priority_class="urgent"),
            builders.make_pod("high-0", "high", cpu="2"),
        ]

    def evictions(register: Callable[[session.Session], None]) -> int:
        return len(held(register, *objects(), run="preempt").decisions.evictions)

    assert evictions(lambda within: None) > 0
    assert evictions(lambda within: within.add_preemptable(failing)) == 0
    assert evictions(lambda within: within.add_evictable(failing)) == 0
    assert evictions(lambda within: within.add_eviction_notice(failing)) == 0


def test_a_plugin_that_does_not_open_holds_everything() -> None:
    """Nobody knows what it would have said."""
    closed = held(failing, *usual.gang("g", 2))
    assert closed.decisions.binds == {}
    assert list(closed.failures) == ["odd"]


def test_a_plugin_that_has_opened_before_is_missed_only_where_it_was() -> None:
    troubles = plugin_isolation.Troubles()
    held(lambda within: within.add_job_order(lambda left, right: 0), troubles=troubles)
    closed = held(failing, *usual.gang("g", 2), troubles=troubles)
    assert len(closed.decisions.binds) == 2
    assert list(closed.failures) == ["odd"]


def test_a_failed_plugin_is_tried_again_after_a_while() -> None:
    """Until then no session is spent on it."""
    troubles = plugin_isolation.Troubles()
    calls = []

    def register(within: session.Session) -> None:
        calls.append(1)
        within.add_queue_order(failing)

    queues = [builders.make_queue("other"), *sessions.gang("c", "other", 1), *usual.gang("a", 1)]
    for seconds, times in ((0, 1), (1, 1), (61, 2)):
        held(register, *queues, troubles=troubles, seconds=seconds)
        assert len(calls) == times


def test_an_error_of_the_session_itself_is_nobodys_but_ours() -> None:
    """It stops loudly: to go on would be to decide on what is broken."""

    def act(within: session.Session) -> None:
        failing()

    with pytest.raises(RuntimeError, match="odd"):
        plugin_isolation.held(
            sessions.configured(usual.TIER),
            lambda how, find: sessions.open_given(how, sessions.given([])),
            act,
            plugins.find,
            builders.NOON,
            plugin_isolation.Troubles(),
        )


def test_blame_goes_to_the_plugin_whose_function_was_called() -> None:
    """Methods of one class that two plugins share are told apart by their object."""

    class Shared:
        def __init__(self, text: str) -> None:
            self._text = text

        def order(self, left: entities.Job, right: entities.Job) -> int:
            raise ValueError(self._text)

    first, second = Shared("first"), Shared("second")
    within = usual.opened(*usual.gang("g", 1), tier=[*usual.TIER[:2]])
    for place, owner in enumerate((first, second)):
        with within.opening(0, place):
            within.add_job_order(owner.order)
    job = within.jobs["default/g"]
    with pytest.raises(ValueError, match="second") as caught:
        second.order(job, job)
    found = plugin_isolation.blame(caught.value, within)
    assert found is not None
    assert (found.plugin, found.job) == ("gang", "default/g")
