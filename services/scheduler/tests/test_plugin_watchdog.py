"""A plugin that never returns is stopped, and the session continues without it."""

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.test_plugin_isolation import Odd
from stromboli.scheduler import plugin_watchdog
from stromboli.scheduler.core import actions, plugins, simulate
from stromboli.scheduler.core.config import config_reader
from stromboli.scheduler.core.framework import opening, plugin_isolation, session
from stromboli.testkit import builders

DEADLINE_S = 0.05
pytestmark = pytest.mark.timeout(120)


def endless(*given: Any) -> Any:
    while True:
        pass


def stubborn(*given: Any) -> Any:
    """Catches all that a plugin may catch."""
    while True:
        with contextlib.suppress(Exception):
            endless()


class Hanging:
    """A plugin's function that never returns, and a clock that passes only during its call: on a
    busy machine other plugins take longer than any deadline of a test."""

    def __init__(self, hang: Callable[..., Any] = endless) -> None:
        self._hang = hang
        self._hangs = threading.Event()
        self._looks: list[float] = []

    def __call__(self, *given: Any) -> Any:
        self._hangs.set()
        try:
            return self._hang(*given)
        finally:
            self._hangs.clear()

    def clock(self) -> float:
        self._looks.append(3600.0 if self._hangs.is_set() else 0.0)
        return sum(self._looks)


def held(
    register: Callable[[session.Session], None],
    watched: Callable[[plugin_isolation.Attempt], session.Session],
) -> session.Session:
    registry = plugins.Registry({"odd": lambda: Odd(register)})
    document = {
        "actions": "allocate",
        "tiers": [{"plugins": [*default_sessions.TIER, {"name": "odd"}]}],
    }
    cluster = sessions.given(
        [builders.make_queue(), builders.make_node("n"), *default_sessions.gang("g", 2)]
    )
    return plugin_isolation.run_isolated(
        config_reader.read_configuration(document, actions.NAMES, registry.names),
        lambda how, find: opening.open_session(how, cluster, find),
        simulate.run_actions,
        registry.find,
        builders.NOON,
        plugin_isolation.FailureHistory(),
        watched,
    )


@pytest.mark.parametrize("hang", [endless, stubborn])
def test_a_plugin_with_an_endless_order_is_left_out(hang: Callable[..., Any]) -> None:
    """Others order, and all is placed."""

    hanging = Hanging(hang)

    def register(ssn: session.Session) -> None:
        ssn.add_node_order(hanging)

    with plugin_watchdog.PluginWatchdog(DEADLINE_S, hanging.clock) as watched:
        closed = held(register, watched)
    assert closed.failures == {"odd": "it did not respond in time"}
    assert len(closed.decisions.binds) == 2


@pytest.mark.parametrize(
    ("waits", "works", "is_stopped"),
    [
        (1.0, 0.0, False),
        (plugin_watchdog.WAIT_FACTOR, 0.0, True),
        (0.0, 0.5, False),
        (0.0, 1.0, True),
    ],
    ids=["waits for a core", "waits for too long", "works", "works for too long"],
)
def test_a_call_is_stopped_by_its_cpu_time_and_much_later_by_the_clock(
    waits: float, works: float, is_stopped: bool
) -> None:
    """In deadlines: a call that gets no CPU on a busy machine is not to blame."""
    is_in_call, was_seen = threading.Event(), threading.Event()
    looks: list[bool] = []

    def passed(deadlines: float) -> float:
        """After the first look at the call, this much of the deadline has passed."""
        return deadlines * DEADLINE_S if sum(looks) > 1 else 0.0

    def clock() -> float:
        looks.append(is_in_call.is_set())
        if sum(looks) > 4:
            was_seen.set()
        return passed(waits)

    def opens(ssn: session.Session) -> None:
        is_in_call.set()
        while not was_seen.is_set():
            pass

    used = functools.partial(passed, works)
    with plugin_watchdog.PluginWatchdog(DEADLINE_S, clock, lambda thread: used()) as watched:
        closed = held(opens, watched)
    assert closed.failures == ({"odd": "it did not respond in time"} if is_stopped else {})


def test_cpu_time_of_a_thread_passes_while_it_works() -> None:
    before = plugin_watchdog.thread_cpu_s(threading.get_ident())
    sum(range(200_000))
    assert plugin_watchdog.thread_cpu_s(threading.get_ident()) > before


def test_an_endless_predicate_places_nothing() -> None:
    hanging = Hanging()

    def register(ssn: session.Session) -> None:
        ssn.add_predicate(hanging)

    with plugin_watchdog.PluginWatchdog(DEADLINE_S, hanging.clock) as watched:
        closed = held(register, watched)
    assert closed.failures == {"odd": "it did not respond in time"}
    assert closed.decisions.binds == {}


def test_an_endless_opening_is_stopped() -> None:
    hanging = Hanging()
    with plugin_watchdog.PluginWatchdog(DEADLINE_S, hanging.clock) as watched:
        closed = held(hanging, watched)
    assert closed.failures == {"odd": "it did not respond in time"}
    assert closed.decisions.binds == {}


def test_time_between_calls_is_not_blamed_on_a_plugin() -> None:
    """The deadline is for one call, not for the session: many short ones never reach it."""
    done = threading.Event()
    looks = []

    def clock() -> float:
        """Each check is an hour later: only the same call, seen twice, would exceed the deadline.
        On a busy machine it might, if checks were as frequent as elsewhere.
        """
        looks.append(1)
        if len(looks) > 4:
            done.set()
        return 3600.0 * len(looks)

    def register(ssn: session.Session) -> None:
        ssn.add_job_order(lambda left, right: 0)

    def attempt() -> session.Session:
        last = held(register, quiet)
        while not done.is_set():
            last = held(register, quiet)
        return last

    def quiet(once: plugin_isolation.Attempt) -> session.Session:
        return once()

    with plugin_watchdog.PluginWatchdog(DEADLINE_S * 40, clock) as watched:
        closed = watched(attempt)
    assert closed.failures == {}
    assert len(closed.decisions.binds) == 2


def test_a_session_that_is_not_complete_yet_does_not_end_the_watchdog() -> None:
    """What the watch sees of another thread may be half made; a call that hangs later is stopped
    all the same."""
    hanging, has_looked, looks = Hanging(), threading.Event(), list[int]()

    def clock() -> float:
        looks.append(1)
        if len(looks) == 3:
            has_looked.set()
        return hanging.clock()

    def register(ssn: session.Session) -> None:
        ssn.add_node_order(hanging)

    def attempt() -> session.Session:
        half = session.Session.__new__(session.Session)
        has_looked.wait()
        del half
        return held(register, lambda once: once())

    with plugin_watchdog.PluginWatchdog(DEADLINE_S, clock) as watched:
        closed = watched(attempt)
    assert closed.failures == {"odd": "it did not respond in time"}
    assert len(closed.decisions.binds) == 2


def test_no_exception_is_raised_after_an_attempt() -> None:
    """An exception that was requested and not raised when the attempt ends is cancelled."""
    watched = plugin_watchdog.PluginWatchdog(DEADLINE_S)
    ssn = default_sessions.opened()

    def attempt() -> session.Session:
        watched._has_fired = True
        plugin_watchdog._raise_in_thread(threading.get_ident(), None)
        return ssn

    assert watched(attempt) is ssn
    assert not watched._has_fired
    assert sum(range(1000)) == 499500
