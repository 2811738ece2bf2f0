"""Metrics of sessions, with the names that Volcano's dashboards use (docs/metrics.md).

Gauges have the values of the newest session that exported them; the series of a deleted queue or
job ends.

Durations of the parts of a session are histograms of Prometheus' client, which binds the labels of
a series once: a session records about 27 of them, each in 1.5 us instead of 7 us through
OpenTelemetry, which merges and hashes the labels each time (0.2 ms of a small session).
"""

import functools
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType

import prometheus_client
from opentelemetry import metrics

from stromboli.scheduler.core.framework import timing
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import telemetry

PREFIX = "volcano_"
PREEMPTING = ("preempt", "gangpreempt")
BOUNDARIES_MS = (0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000)
"""Buckets of durations: OpenTelemetry's default."""

MOST_DURATIONS = 1000


class SessionDurations:
    """The durations of the newest sessions, at most ``MOST_DURATIONS``."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=MOST_DURATIONS)
        self._is_new = False

    def add(self, seconds: float) -> None:
        """Add the duration of a session."""
        self._seconds.append(seconds)
        self._is_new = True

    def take(self, at: datetime) -> messages.SessionsMeasured | None:
        """The percentiles by nearest rank; None if there was no session since the last call."""
        if not self._is_new:
            return None
        self._is_new = False
        sorted_seconds = sorted(self._seconds)

        def percentile(percent: int) -> float:
            return round(sorted_seconds[-(-percent * len(sorted_seconds) // 100) - 1], 6)

        return messages.SessionsMeasured(
            at=at, sessions=len(sorted_seconds), p50_s=percentile(50), p99_s=percentile(99)
        )


class Instruments:
    """The metrics of sessions: instruments of ``meter``, and histograms in ``registry``."""

    def __init__(
        self,
        meter: metrics.Meter = telemetry.meter,
        registry: prometheus_client.CollectorRegistry = prometheus_client.REGISTRY,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        def histogram(name: str, description: str) -> metrics.Histogram:
            return meter.create_histogram(f"{PREFIX}{name}_milliseconds", description=description)

        # Otherwise each histogram has a second series with the time of its creation.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

        def of_parts(name: str, description: str, *labels: str) -> prometheus_client.Histogram:
            return prometheus_client.Histogram(
                f"{PREFIX}{name}_milliseconds",
                description,
                labels,
                buckets=BOUNDARIES_MS,
                registry=registry,
            )

        self._meter = meter
        self._clock = clock
        self._session = histogram("e2e_scheduling_latency", "A session from its start to its end")
        self._gang = histogram(
            "e2e_job_scheduling_latency", "From a PodGroup's creation to the decision to bind it"
        )
        self._opening = of_parts("open_session_duration", "Opening of a session")
        self._actions = of_parts("action_scheduling_latency", "An action in a session", "action")
        self._plugins = of_parts(
            "plugin_scheduling_latency",
            "A plugin's work at the start and at the end of a session",
            "plugin",
            "OnSession",
        )
        self._series = functools.cache(self._series_of)
        self._transactions = meter.create_counter(
            f"{PREFIX}eviction_transactions", description="Statements that evict, by action"
        )
        # Not a counter: the exporter would add a suffix to its name.
        self._attempts = meter.create_up_down_counter(
            f"{PREFIX}total_preemption_attempts", description="Statements that preempt"
        )
        self._victims = meter.create_gauge(
            f"{PREFIX}pod_preemption_victims", description="Victims of the newest preemption"
        )
        self._unanswered = meter.create_gauge(
            "stromboli.scheduler.unanswered",
            description="Decided binds and evictions without an outcome, not yet in the snapshots",
        )
        self._waiting: Mapping[tuple[str, str], int] = {}
        meter.create_observable_gauge(
            "stromboli.scheduler.gangs.waiting",
            [self._observe_waiting],
            description="Pending PodGroups, by queue and by what blocks them",
        )
        self._gauges: dict[str, list[extension_points.Gauge]] = {}

    def timed(self, part: str, name: str) -> AbstractContextManager[None]:
        """Measure a part of a session; see ``timing.Timed``."""
        return _Timer(self._series(part, name), self._clock)

    def _series_of(self, part: str, name: str) -> prometheus_client.Histogram:
        if part in (timing.PLUGIN_OPENS, timing.PLUGIN_CLOSES):
            return self._plugins.labels(plugin=name, OnSession=part)
        return self._actions.labels(action=name) if part == timing.ACTION else self._opening

    def session(self, seconds: float) -> None:
        """Record the duration of a session."""
        self._session.record(1000 * seconds)

    def decided(self, statement: messages.StatementDecided, waited_s: float | None) -> None:
        """Update the metrics for a statement. ``waited_s``: the age of its PodGroup."""
        if statement.binds and waited_s is not None:
            self._gang.record(1000 * waited_s)
        if statement.evictions:
            self._transactions.add(1, {"action": statement.reason})
            if statement.reason in PREEMPTING:
                self._attempts.add(1)
                self._victims.set(len(statement.evictions))

    def set_waiting(self, explained: Iterable[messages.PodGroupExplained], unanswered: int) -> None:
        """Set the number of waiting PodGroups by queue and tier, and ``unanswered``: binds and
        evictions without an outcome."""
        self._unanswered.set(unanswered)
        self._waiting = Counter((each.queue, each.tier) for each in explained)

    def _observe_waiting(self, options: metrics.CallbackOptions) -> Sequence[metrics.Observation]:
        return [
            metrics.Observation(count, {"queue_name": queue, "tier": tier})
            for (queue, tier), count in self._waiting.items()
        ]

    def set_gauges(self, gauges: Iterable[extension_points.Gauge]) -> None:
        """Replace all gauges by the given ones."""
        by_name: dict[str, list[extension_points.Gauge]] = defaultdict(list)
        for gauge in gauges:
            by_name[gauge.name].append(gauge)
        for name in by_name.keys() - self._gauges.keys():
            self._meter.create_observable_gauge(f"{PREFIX}{name}", [self._observer(name)])
        # A gauge without values is kept, without a series: it cannot be created twice.
        self._gauges = {name: [] for name in self._gauges} | dict(by_name)

    def _observer(
        self, name: str
    ) -> Callable[[metrics.CallbackOptions], Sequence[metrics.Observation]]:
        def observe(options: metrics.CallbackOptions) -> Sequence[metrics.Observation]:
            return [
                metrics.Observation(gauge.value, dict(gauge.labels))
                for gauge in self._gauges.get(name, ())
            ]

        return observe


@functools.cache
def of_process() -> Instruments:
    """The instruments of this process. A service that restarts within the process reuses them,
    because the meter keeps every instrument and would export gauges of each start."""
    return Instruments()


class _Timer(AbstractContextManager[None]):
    """Records the duration in milliseconds, even if the body raises."""

    def __init__(self, into: prometheus_client.Histogram, clock: Callable[[], float]) -> None:
        self._into = into
        self._clock = clock

    def __enter__(self) -> None:
        self._started = self._clock()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._into.observe(1000 * (self._clock() - self._started))
