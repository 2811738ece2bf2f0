"""Configures all test runs: uvloop as in the services, no deadlines of Hypothesis, and a garbage
collector that does not visit the collected tests."""

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
# CPython 3.11 a test may hang if its timeout expires while lines are traced.
settings.register_profile(
    "stromboli",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("stromboli")

# Systems in threads outlive the test that started them. They log to the standard error of the
# process, so that their records are not in the output of a command that another test reads.
# Tracebacks have no local variables: formatting those of one error can take ten seconds of CPU,
# during which no task of the event loop runs.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ],
    logger_factory=structlog.PrintLoggerFactory(sys.__stderr__),
)


class UvloopPolicy(asyncio.DefaultEventLoopPolicy):
    """Tests use uvloop: the services run on it, and it differs from asyncio's own loop."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        loop.set_exception_handler(_record_loop_exception)
        return loop


def _record_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an exception of the loop; stop the loop if a test has timed out. uvloop passes
    exceptions of signal handlers, such as the one of the timeout, to this handler."""
    loop.default_exception_handler(context)
    if isinstance(context.get("exception"), pytest.fail.Exception):
        for task in asyncio.all_tasks(loop):
            task.print_stack(file=sys.stderr)
        loop.stop()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without garbage collection, and exclude them from later collections: they
    live as long as the run. Later collections are as rare as in a service."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.set_threshold(process.ALLOCATIONS_BETWEEN_LOOKS)
        cpu_time.freeze_objects()


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers write the tokens for their clients here, not in the user's home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


# A shell starts background jobs with SIGINT ignored. Processes of tests would inherit that, and
# tests interrupt some of them with SIGINT, as users do.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# By policy, not by the hook of pytest-asyncio, which would end what tests share after each test.
asyncio.set_event_loop_policy(UvloopPolicy())
