"""The runtime of every service process: health, retries, signals, the clock.

A service is ready when none of its facts has a problem; see ``Health``.
"""

import asyncio
import gc
import math
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar

import structlog
import uvloop

from stromboli.shared import envelope, errors, topics
from stromboli.shared.messages import log
from stromboli.shared.runtime import telemetry

T = TypeVar("T")
Clock = Callable[[], datetime]

STOP_WITHIN_S = 9.0
"""Maximum seconds from SIGTERM to the end of the process: below the 10 s after which a container
engine kills it.
"""
STOP_STEPS = 9
"""A machine that stops for seconds meanwhile uses up one of these parts of the time."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
"""First and longest pause between retries, in seconds; a broker restarts within seconds."""
DEAD_LETTER_BYTES = 64 * 1024
"""Maximum bytes of the value in a dead letter, enough to identify the record."""

_log = structlog.get_logger(__name__)
_ready = telemetry.meter.create_gauge(
    "stromboli.ready", description="1 for a service that is ready, as reported by its /readyz"
)
_dead_letters = telemetry.meter.create_counter(
    "stromboli.log.dead_letters",
    description="Records that this process could not decode or handle, by topic",
)


def utc_now() -> datetime:
    """The wall clock: services receive it as ``clock``; cores never call it."""
    return datetime.now(UTC)


def timer_at(at: float) -> float:
    """The loop time for a timer that never fires before ``at``. uvloop's timers are rounded to the
    nearest millisecond, and floating-point sums are inexact, so a timer set to ``at`` itself may
    fire early and be set again dozens of times for nothing.
    """
    return at if math.isinf(at) else math.ceil(round(at * 1000, 3)) / 1000


def loop_time() -> float:
    """The time of the running event loop, in seconds: monotonic, virtual in tests."""
    return asyncio.get_running_loop().time()


def call_after_steps(seconds: float, steps: int, call: Callable[[], object]) -> None:
    """Call after this time of the running event loop, which passes in equal steps: however long the
    machine stops, work that was interrupted has the other steps to finish."""
    loop = asyncio.get_running_loop()

    def step(left: int) -> None:
        if left:
            loop.call_later(seconds / steps, step, left - 1)
        else:
            call()

    step(steps)


class Health:
    """The readiness of a service as named facts, for ``/readyz`` and operators."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._problems: dict[str, str | None] = {}
        self.warnings: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self._changed = asyncio.Event()

    def set(self, name: str, problem: str | None) -> None:
        """Set the problem of a fact; None means healthy. Only changes are logged."""
        if name in self._problems and self._problems[name] == problem:
            return
        before = self._problems.get(name)
        self._problems[name] = problem
        _ready.set(int(self.is_ready), {"service": self.service})
        self._changed.set()
        self._changed = asyncio.Event()
        if problem is not None or before is not None:
            _log.info("health", service=self.service, fact=name, problem=problem)

    def warn(self, name: str, warning: str | None) -> None:
        """Set a warning, which does not affect readiness; None clears it. Only changes are
        logged."""
        if self.warnings.get(name) == warning:
            return
        if warning is None:
            del self.warnings[name]
            _log.info("health", service=self.service, fact=name, warning=None)
        else:
            self.warnings[name] = warning
            _log.warning("health", service=self.service, fact=name, warning=warning)

    def note(self, name: str, note: str) -> None:
        """Set a note, which is neither a problem nor a warning. Only changes are logged."""
        if self.notes.get(name) != note:
            self.notes[name] = note
            _log.info("health", service=self.service, fact=name, note=note)

    @property
    def problems(self) -> dict[str, str]:
        """Fact -> problem, for facts that have one; a service that has not reported yet is
        starting.
        """
        if not self._problems:
            return {self.service: "starting"}
        return {name: problem for name, problem in self._problems.items() if problem is not None}

    @property
    def is_ready(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    async def ready(self) -> None:
        """Return once there is no problem."""
        while not self.is_ready:
            await self._changed.wait()


_JITTER = Random()  # noqa: S311 - not for secrets
"""Shared by all instances: seeding a generator takes 0.1 ms, and each request creates a Backoff."""


class Backoff:
    """Pauses between retries, which double up to a limit, with a jitter of +-20 % so that clients
    do not synchronize.

    After a success that lasted as long as the longest pause, the pauses start at the first one
    again, even if the caller does not call ``reset``. ``now``: a monotonic clock in seconds.
    """

    def __init__(self, spread: Random | None = None, now: Callable[[], float] = loop_time) -> None:
        self._spread = spread or _JITTER
        self._now = now
        self._pause_s = FIRST_PAUSE_S
        self._over_at = math.inf

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The next pause in seconds."""
        if self._now() > self._over_at:
            self.reset()
        pause = max(self._pause_s * self._spread.uniform(0.8, 1.2), at_least_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._over_at = self._now() + pause + LONGEST_PAUSE_S
        return pause

    def reset(self) -> None:
        """Start at the first pause again, after a success."""
        self._pause_s = FIRST_PAUSE_S


async def retry_until_available(call: Callable[[], Awaitable[T]], fact: str, health: Health) -> T:
    """The result of ``call``, which is retried until the external system accepts it.

    Meanwhile ``fact`` is a problem of ``health``. Permanent errors pass through.
    """
    backoff = Backoff()
    while True:
        try:
            result = await call()
        except errors.TransientError as error:
            health.set(fact, str(error))
            await asyncio.sleep(backoff.next_s(error.retry_after_s))
        else:
            health.set(fact, None)
            return result


def dead_letter(
    record: envelope.Record, service: str, reason: str, now: datetime
) -> envelope.Draft:
    """The dead letter for a record that ``service`` cannot decode or handle; counts it."""
    _dead_letters.add(1, {"topic": record.topic.name})
    return envelope.Draft(
        topic=topics.DEAD_LETTERS,
        key=record.topic.name,
        message=log.DeadLetter(
            topic=record.topic.name,
            offset=record.offset,
            key=record.key,
            reported_by=service,
            reason=reason,
            headers=dict(record.headers),
            value=(record.value or b"")[:DEAD_LETTER_BYTES],
        ),
        time=now,
        cause=record.id,
    )


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a process's ``main`` until it returns, or until SIGTERM or SIGINT arrives.

    On a signal ``main`` is cancelled and finishes work in progress, and the process exits with 0.
    If that takes longer than ``STOP_WITHIN_S``, the process exits with 1, which is safe because
    every step may be repeated.
    """
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_signalled(main))
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # The interpreter's last collections would visit every object: 0.6 s of CPU for all services
        # in one process, when everything is closed already.
        gc.freeze()


async def _until_signalled(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(main())
    requested = asyncio.Event()

    def ask() -> None:
        if not requested.is_set():
            requested.set()
            call_after_steps(STOP_WITHIN_S, STOP_STEPS, lambda: os._exit(1))
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    try:
        await task
    except asyncio.CancelledError:
        if not requested.is_set():
            raise
