"""How tests run here: on the event loop that serves, without time limits of Hypothesis, and without
the collected tests in the garbage collector's generations."""

import asyncio
import gc
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
import uvloop
from hypothesis import HealthCheck, Phase, settings

from stromboli.shared import process
from stromboli.testkit import cpu_time

# Without the phase `explain`, which traces every line of later examples once one has failed: on
# CPython 3.11 a test's timeout that comes while lines are traced may never end.
settings.register_profile(
    "stromboli",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("stromboli")

# Systems in threads outlive the test that started them. They log to the standard error of the
# process: a test that reads the output of a command must not find their records in it.
# Tracebacks have no local variables: to format those of one error can take the processor for ten
# seconds, in which no task of the loop runs.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ],
    logger_factory=structlog.PrintLoggerFactory(sys.__stderr__),
)


class UvloopPolicy(asyncio.DefaultEventLoopPolicy):
    """Where uvloop differs from the library's own loop, services must be right on uvloop."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        loop.set_exception_handler(_record_loop_exception)
        return loop


def _record_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """uvloop hands what a signal's handler raises to this one, also that a test's time is up."""
    loop.default_exception_handler(context)
    if isinstance(context.get("exception"), pytest.fail.Exception):
        for task in asyncio.all_tasks(loop):
            task.print_stack(file=sys.stderr)
        loop.stop()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules, tests and their parameters live as long as the run: no garbage collection visits
    them, neither while they are made nor later. Collections are as rare as in a service."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.set_threshold(process.ALLOCATIONS_BETWEEN_LOOKS)
        cpu_time.freeze_objects()


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers leave their clients' tokens here, and not in the home of the user who tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


# A job in the background of a shell starts with SIGINT ignored, which processes of tests would
# inherit: tests interrupt some of them as a user does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# By policy and not by the plugin's hook, which would end what a run shares behind each test.
asyncio.set_event_loop_policy(UvloopPolicy())
