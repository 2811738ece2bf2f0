"""A failing plugin: what the session decides without it, and what it reports."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from services.scheduler.tests.support import default_sessions, sessions
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
    """A plugin that registers what a test passes to it."""

    def __init__(self, register: Callable[[session.Session], None]) -> None:
        self._register = register

    def __call__(self, options: configuration.PluginOptions) -> "Odd":
        return self

    def open(self, ssn: session.Session) -> None:
        self._register(ssn)

    def close(self, ssn: session.Session) -> None:
        """Does nothing."""


def held(
    register: Callable[[session.Session], None],
    *objects: meta.Object,
    run: str = "enqueue, allocate, backfill, preempt",
    plugin_failures: plugin_isolation.FailureHistory | None = None,
    seconds: int = 0,
) -> session.Session:
    """A session with the default plugins and one named odd."""
    registry = plugins.Registry({"odd": lambda: Odd(register)})
    document = {
        "actions": run,
        "tiers": [{"plugins": [*default_sessions.TIER, {"name": "odd"}]}],
    }
    configured = config_reader.read_configuration(document, actions.NAMES, registry.names)
    now = builders.NOON + timedelta(seconds=seconds)
    cluster = sessions.given([builders.make_queue(), *NODES, *objects], now)
    return simulate.run(configured, cluster, registry.find, plugin_failures)


@pytest.mark.parametrize("point", ["add_job_order", "add_queue_order", "add_task_order"])
def test_without_a_failed_order_the_others_order(point: str) -> None:
    """Orders and scores restrict nothing, so tasks are placed."""
    gangs = [*default_sessions.gang("a", 2), *default_sessions.gang("b", 2)]
    closed = held(
        lambda ssn: getattr(ssn, point)(failing),
        builders.make_queue("other"),
        *gangs,
        *sessions.gang("c", "other", 1),
    )
    assert closed.failures == {"odd": "RuntimeError: odd"}
    assert len(closed.decisions.binds) == 5
    assert "plugin odd failed: RuntimeError: odd: the session continues without it" in (
        closed.complaints
    )


def test_without_a_failed_score_the_others_score() -> None:
    def register(ssn: session.Session) -> None:
        ssn.add_node_order(failing)

    closed = held(
        register, *[each for at in range(5) for each in default_sessions.gang(f"g{at}", 1)]
    )
    assert len(closed.decisions.binds) == 5
    assert list(closed.failures) == ["odd"]


def test_a_job_on_which_a_predicate_fails_is_excluded_and_others_are_placed() -> None:
    """One odd pod stops neither the cluster nor the plugin, and is not placed unchecked."""

    def register(ssn: session.Session) -> None:
        def check(task: entities.Task, *_: Any) -> Any:
            return failing() if task.job == "default/odd" else []

        ssn.add_predicate(check)

    closed = held(register, *default_sessions.gang("odd", 1), *default_sessions.gang("fine", 2))
    assert sorted(default_sessions.binds(closed)) == ["fine-0", "fine-1"]
    assert closed.failures == {}
    said = simulate.summarize("", closed).explanations["default/odd"]
    assert "plugin odd failed: RuntimeError: odd" in said


def test_a_predicate_that_fails_on_many_jobs_is_removed_and_no_task_is_placed() -> None:
    """Unknown never means that a node is feasible; the explanation has the reason."""

    def register(ssn: session.Session) -> None:
        ssn.add_predicate(failing)

    gangs = [
        each
        for at in range(plugin_isolation.MAX_EXCLUDED_JOBS + 2)
        for each in default_sessions.gang(f"g{at}", 1)
    ]
    closed = held(register, *gangs)
    assert closed.decisions.binds == {}
    assert closed.failures == {"odd": "RuntimeError: odd"}
    explained = simulate.summarize("", closed).explanations
    assert all("plugin odd failed: RuntimeError: odd" in text for text in explained.values())
    assert len(explained) == len(gangs) // 2


CROWD = [each for at in range(6) for each in default_sessions.gang(f"g{at}", 1)]
WAITING = [
    builders.make_pod_group(f"w{at}", 1, phase="Pending", min_resources={"cpu": "1"})
    for at in range(6)
]


@pytest.mark.parametrize(
    ("register", "is_placed"),
    [
        (lambda ssn: ssn.add_allocatable(failing), False),
        (lambda ssn: ssn.add_overused(failing), False),
        (lambda ssn: ssn.add_job_ready(failing), False),
        (lambda ssn: ssn.add_job_valid(failing), False),
        (lambda ssn: ssn.add_pre_predicate(failing), False),
        (lambda ssn: ssn.add_event_handler(failing), True),
        (lambda ssn: ssn.add_class_key(failing), True),
    ],
    ids=["allocatable", "overused", "ready", "valid", "pre-predicate", "event", "distinction"],
)
def test_without_a_failed_restricting_plugin_no_task_is_placed(
    register: Callable[[session.Session], None], is_placed: bool
) -> None:
    """A plugin that only observes restricts nothing."""
    closed = held(register, *CROWD)
    assert bool(closed.decisions.binds) is is_placed
    assert list(closed.failures) == ["odd"]


def test_without_a_failed_enqueue_vote_no_job_becomes_inqueue() -> None:
    closed = held(lambda ssn: ssn.add_job_enqueueable(failing), *WAITING)
    assert {job.phase for job in closed.jobs.values()} == {"Pending"}


def test_without_a_failed_preparation_no_task_is_bound() -> None:
    """The preparation for the bind is unknown."""
    closed = held(lambda ssn: ssn.add_preparation(failing), *CROWD)
    assert closed.decisions.binds == {}


def test_without_a_failed_victim_choice_no_task_is_evicted() -> None:
    """Neither by the tier of the plugin nor by a later one."""

    def objects() -> list[meta.Object]:
        return [
            *default_sessions.gang("a", 4, node="n1", min_member=1, cpu="1"),
            *default_sessions.gang("b", 4, node="n2", min_member=1, cpu="1"),
            builders.make_priority_class("urgent", 100),
            builders.make_pod_group("high", 1, priority_class="urgent"),
            builders.make_pod("high-0", "high", cpu="2"),
        ]

    def evictions(register: Callable[[session.Session], None]) -> int:
        return len(held(register, *objects(), run="preempt").decisions.evictions)

    assert evictions(lambda ssn: None) > 0
    assert evictions(lambda ssn: ssn.add_preemptable(failing)) == 0
    assert evictions(lambda ssn: ssn.add_evictable(failing)) == 0
    assert evictions(lambda ssn: ssn.add_eviction_notice(failing)) == 0


def test_a_plugin_that_does_not_open_blocks_everything() -> None:
    """What it restricts is unknown."""
    closed = held(failing, *default_sessions.gang("g", 2))
    assert closed.decisions.binds == {}
    assert list(closed.failures) == ["odd"]


def test_a_plugin_that_opened_before_blocks_only_its_points() -> None:
    plugin_failures = plugin_isolation.FailureHistory()
    held(lambda ssn: ssn.add_job_order(lambda left, right: 0), plugin_failures=plugin_failures)
    closed = held(failing, *default_sessions.gang("g", 2), plugin_failures=plugin_failures)
    assert len(closed.decisions.binds) == 2
    assert list(closed.failures) == ["odd"]


def test_a_failed_plugin_is_tried_again_later() -> None:
    """Until then no session is spent on it."""
    plugin_failures = plugin_isolation.FailureHistory()
    calls = []

    def register(ssn: session.Session) -> None:
        calls.append(1)
        ssn.add_queue_order(failing)

    queues = [
        builders.make_queue("other"),
        *sessions.gang("c", "other", 1),
        *default_sessions.gang("a", 1),
    ]
    for seconds, times in ((0, 1), (1, 1), (61, 2)):
        held(register, *queues, plugin_failures=plugin_failures, seconds=seconds)
        assert len(calls) == times


def test_an_error_of_the_session_itself_is_attributed_to_no_plugin() -> None:
    """It ends the process: continuing would mean to decide on inconsistent state."""

    def act(ssn: session.Session) -> None:
        failing()

    with pytest.raises(RuntimeError, match="odd"):
        plugin_isolation.run_isolated(
            sessions.configured(default_sessions.TIER),
            lambda how, find: sessions.open_given(how, sessions.given([])),
            act,
            plugins.find,
            builders.NOON,
            plugin_isolation.FailureHistory(),
        )


def test_a_failure_is_attributed_to_the_plugin_whose_function_was_called() -> None:
    """Methods of one class that two plugins share are distinguished by their instance."""

    class Shared:
        def __init__(self, text: str) -> None:
            self._text = text

        def order(self, left: entities.Job, right: entities.Job) -> int:
            raise ValueError(self._text)

    first, second = Shared("first"), Shared("second")
    ssn = default_sessions.opened(*default_sessions.gang("g", 1), tier=[*default_sessions.TIER[:2]])
    for place, owner in enumerate((first, second)):
        with ssn.opening(0, place):
            ssn.add_job_order(owner.order)
    job = ssn.jobs["default/g"]
    with pytest.raises(ValueError, match="second") as caught:
        second.order(job, job)
    failure_cause = plugin_isolation.find_cause(caught.value, ssn)
    assert failure_cause is not None
    assert (failure_cause.plugin, failure_cause.job) == ("gang", "default/g")
