"""Publishes when pending gangs are expected to start: a background task of the leader.

::

    batch.events ───────────────▶ forecast process ─▶ scheduling.explanations, forecast//...
    objects of the cache ────────▶ (worker)

The process starts when a gang has waited for ``PATIENCE_S``, and ends ``IDLE_S`` after the last
gang has stopped waiting. A failure here (of the process, its memory limit, the log) is reported as
a warning of the service and retried; it affects nothing else. Two scopes share the CPU: ``first``
forecasts the gangs that start next, once a minute; while more than ``FIRST`` gangs wait, ``all``
forecasts all of them every ten minutes, in a second process.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.forecast import expected_starts, present, range_calibration
from stromboli.scheduler.forecasting import frames, process
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, topics
from stromboli.shared.bus import materialization, port
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime, telemetry

FIRST = 500
"""Number of gangs in the scope ``first``. A draw simulates some more gangs, because the order of
starts differs between draws."""
MARGIN = 1.2
ALL_REFRESH_S = 600.0
ALL_SHARE = 0.03
DRAWS = 20
LOOK_S = 1.0
"""Seconds between two checks for new pending gangs."""
PATIENCE_S = 5.0
"""Seconds that a gang must wait before it gets a forecast, so that no forecast process runs in a
cluster with free room."""
SOONEST_S = 10.0
"""Minimum seconds between two forecasts of a scope. A new gang triggers a forecast before the
regular interval ends."""
IDLE_S = process.IDLE_S
STARTS_PER_RECORD = 500

_seconds = telemetry.meter.create_histogram(
    "stromboli.scheduler.forecast.cpu", unit="s", description="CPU time of one forecast, by scope"
)
failures = telemetry.meter.create_counter(
    "stromboli.scheduler.forecast.failures", description="Forecasts that failed, by scope"
)


class Scope(msgspec.Struct, frozen=True):
    """A set of gangs to forecast, with the interval and the share of a core. ``first``: the number
    of gangs; None: all. ``beyond``: forecast only while more gangs than this wait."""

    name: str
    first: int | None
    beyond: int
    refresh_s: float
    share: float


def scopes(settings: SchedulerSettings) -> tuple[Scope, ...]:
    """The scopes of these settings; none if forecasts are off."""
    refresh_s, share = settings.forecast_refresh_s, settings.forecast_cpu
    if refresh_s <= 0:
        return ()
    rest = min(ALL_SHARE, share / 2)
    return (
        Scope("first", FIRST, 0, refresh_s, share - rest),
        Scope("all", None, FIRST, max(ALL_REFRESH_S, refresh_s), rest),
    )


class Source(msgspec.Struct, frozen=True):
    """The inputs and outputs of a forecaster. ``pending``: returns the keys of the gangs that wait
    now."""

    pending: Callable[[], Awaitable[frozenset[str]]]
    present: Callable[[], Awaitable[present.Present]]
    publish: Callable[[Sequence[envelope.Draft]], Awaitable[object]]
    events: Callable[[], AsyncIterator[port.Batch]]
    clock: runtime.Clock


class Forecaster:
    """The forecasts of one scope. ``run`` never ends and never fails. ``widening``: the factors
    learned so far."""

    def __init__(
        self, scope: Scope, settings: SchedulerSettings, source: Source, health: runtime.Health
    ) -> None:
        self._scope = scope
        self._settings = settings
        self._source = source
        self._health = health
        self._forecast: frozenset[str] = frozenset()
        self._seen_s: dict[str, float] = {}
        self._began_s = -math.inf
        self.widening = range_calibration.Widening()

    async def run(self) -> None:
        """Forecast until cancelled."""
        backoff = runtime.Backoff()
        while True:
            try:
                await self._next_due(idle_s=None)
                await self._with_process(backoff)
            except Exception as error:  # a failed forecast must not stop the scheduler
                reason = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                self._warn(f"{type(reason).__name__}: {reason}")
                await asyncio.sleep(backoff.next_s())

    def _warn(self, problem: str | None) -> None:
        if problem is not None:
            failures.add(1, {"scope": self._scope.name})
            problem = f"expected starts are not up to date: {problem}"
        self._health.warn(f"forecast of {self._scope.name}", problem)

    async def _next_due(self, idle_s: float | None) -> bool:
        """Wait until a forecast is due; False if none was needed for ``idle_s`` seconds."""
        needed_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            waiting = self._waiting(await self._source.pending(), now_s)
            if self._is_due(waiting, now_s - self._began_s):
                self._forecast = waiting
                self._began_s = now_s
                return True
            if waiting:
                needed_s = now_s
            if idle_s is not None and now_s - needed_s >= idle_s:
                return False
            await asyncio.sleep(min(LOOK_S, self._scope.refresh_s))

    def _waiting(self, pending: frozenset[str], now_s: float) -> frozenset[str]:
        """The gangs that have waited long enough for a forecast; none if too few gangs wait."""
        self._seen_s = {key: self._seen_s.get(key, now_s) for key in pending}
        if len(pending) <= self._scope.beyond:
            return frozenset()
        before_s = now_s - min(PATIENCE_S, self._scope.refresh_s)
        return frozenset(key for key, at_s in self._seen_s.items() if at_s <= before_s)

    def _is_due(self, waiting: frozenset[str], age_s: float) -> bool:
        """Whether the last forecast is too old, or does not contain one of the gangs that start
        next."""
        if not waiting or age_s < min(SOONEST_S, self._scope.refresh_s):
            return False
        is_new = self._scope.first is not None and bool(waiting - self._forecast)
        return is_new or age_s >= self._scope.refresh_s

    async def _with_process(self, backoff: runtime.Backoff) -> None:
        """Forecast repeatedly with one process, until it is idle."""
        settings = self._settings
        start = frames.Start(
            settings.configuration,
            settings.scheduler_names,
            self._scope.share,
            settings.forecast_memory_mib,
            self.widening,
        )
        async with process.running(start, self._source.events) as channel:
            is_due = True
            while is_due:
                await self._refresh(channel)
                backoff.reset()
                is_due = await self._next_due(IDLE_S)

    async def _refresh(self, channel: process.Channel) -> None:
        present_state = await self._source.present()
        at = self._source.clock()
        spent_s = await channel.send_objects(present_state.objects)
        first = None if self._scope.first is None else round(self._scope.first * MARGIN)
        requested = frames.Compute(
            present_state.now.isoformat(), first, DRAWS, self._scope.refresh_s * 0.75, spent_s
        )
        answer = await channel.ask(requested)
        if not isinstance(answer, frames.Computed):
            reason = answer.reason if isinstance(answer, frames.Failed) else "unexpected response"
            self._warn(reason)
            return
        _seconds.record(answer.cpu_s, {"scope": self._scope.name})
        self.widening = answer.widening
        drafts = list(records(self._scope.name, at, answer.draws, answer.starts))
        await self._source.publish(drafts)
        self._warn(None)


def records(
    scope: str, at: datetime, draws: int, starts: Sequence[expected_starts.ExpectedStart]
) -> Iterator[envelope.Draft]:
    """The records of a forecast, at least one: the starts in chunks."""
    chunks = max(1, -(-len(starts) // STARTS_PER_RECORD))
    for chunk in range(chunks):
        part = starts[chunk * STARTS_PER_RECORD : (chunk + 1) * STARTS_PER_RECORD]
        message = messages.StartsForecast(
            scope=scope,
            chunk=chunk,
            chunks=chunks,
            at=at,
            draws=draws,
            starts=tuple(published(each, at) for each in part),
        )
        key = messages.forecast_key(scope, chunk)
        yield envelope.Draft(topic=topics.EXPLANATIONS, key=key, message=message, time=at)


def published(start: expected_starts.ExpectedStart, at: datetime) -> messages.ExpectedStart:
    """An expected start in the form of messages, with times instead of seconds from ``at``."""

    def time_of(seconds: float | None) -> datetime | None:
        return None if seconds is None else durations.after(at, timedelta(seconds=round(seconds)))

    return messages.ExpectedStart(
        pod_group=start.pod_group,
        answer=start.answer,
        p10=time_of(start.p10_s),
        p50=time_of(start.p50_s),
        p90=time_of(start.p90_s),
    )


def read_events(bus: port.Bus) -> AsyncIterator[port.Batch]:
    """Read ``batch.events`` from the start. Events that precede a recreation of the topic remain
    valid."""
    return materialization.materialize(
        bus,
        (topics.BATCH_EVENTS,),
        lambda *_: None,
        "forecast",
        on_recreated=lambda _: None,
        is_urgent=False,
    )
