"""The scheduler's service loop: the event loop reads and publishes, one core thread runs the
engine.

Events trigger sessions: the first change after a pause starts one immediately, a burst starts
sessions at least ``min_session_interval_s`` apart, and an idle cluster costs nothing. Decisions are
published before the next session starts, explanations concurrently. A standby reads as the leader
does and decides nothing.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from stromboli.scheduler import (
    configuration_file,
    discovery,
    engine,
    extenders,
    node_metrics,
    plugin_watchdog,
    restart,
    warm_up,
)
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.cache import subscriptions
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.forecast import present, range_calibration
from stromboli.scheduler.forecasting import forecaster, what_ifs
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, errors, leader_election, topics
from stromboli.shared.bus import materialization, port
from stromboli.shared.leader_election import log_lease
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime, telemetry

MAX_BUFFERED_BATCHES = 8
"""Limit of batches read while the core thread is busy: the core thread need not wait for the log,
and a start with a large log does not fill the memory."""
MAX_DRAFTS_PER_APPEND = 1000
"""Limit of explanations in one append, because a larger append would delay decisions; also the
limit of dead letters that a standby keeps."""
DURATIONS_EVERY_S = 30.0
"""Interval at which the durations of sessions are published, for system health."""
EMPTY_BATCH = port.Batch(records=(), position=port.START, caught_up=False)
"""A batch without records. It makes the engine run a step."""

_refused = telemetry.meter.create_counter(
    "stromboli.scheduler.configurations.refused",
    description="Changes of the configuration file that could not be used",
)


async def serve(
    settings: SchedulerSettings,
    bus: port.Bus,
    health: runtime.Health,
    clock: runtime.Clock,
    registry: plugins.Registry | None = None,
    lease: leader_election.LeaseSettings | None = None,
) -> None:
    """Schedule until cancelled. Every step is idempotent, so cancellation is immediate.

    ``registry``: the available plugins; None for the installed ones. ``lease``: None if there is no
    other replica.
    """
    health.set("start", "opening the log")
    if registry is None:
        registry = await asyncio.to_thread(discovery.discover_plugins)
    context = TermContext(settings, bus, health, clock, registry)
    if lease is None:

        async def opened() -> port.Writer:
            return await bus.open_writer("scheduler", settings.instance)

        alone = leader_election.SingleReplica(health)
        await leader_election.serve_in_terms(
            alone, lambda lead: _run_term(context, lead, opened), health
        )
        return
    async with log_lease.LogLeaseStore(bus, settings.instance, clock, health) as place:

        async def fenced_writer() -> port.Writer:
            return place.writer

        elector = leader_election.LeaderElector(
            place, leader_election.identity(lease), lease.terms, health
        )
        await leader_election.serve_in_terms(
            elector, lambda lead: _run_term(context, lead, fenced_writer), health
        )


class TermContext(msgspec.Struct, frozen=True):
    """The arguments that all terms of a scheduler share."""

    settings: SchedulerSettings
    bus: port.Bus
    health: runtime.Health
    clock: runtime.Clock
    registry: plugins.Registry


async def _run_term(
    context: TermContext,
    lead: leader_election.Leadership,
    opened: Callable[[], Awaitable[port.Writer]],
) -> None:
    settings, bus, health, clock = context.settings, context.bus, context.health, context.clock
    registry = context.registry
    file = (
        configuration_file.ConfigurationFile(Path(settings.configuration), registry)
        if settings.configuration
        else None
    )
    loaded = (
        configuration_file.load_default(registry)
        if file is None
        else await _load_when_usable(file, settings, health)
    )
    _report_configuration(loaded, health)
    start = await runtime.retry_until_available(lambda: restart.start_position(bus), "log", health)
    with (
        extenders.ExtenderClient() as ask,
        plugin_watchdog.PluginWatchdog(
            settings.plugin_deadline_s
        ) as watched,  # ends after the core thread, which may be waiting for a plugin to return
        ThreadPoolExecutor(1, thread_name_prefix="core") as core_thread,
    ):
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(core_thread, warm_up.run)
        decider = engine.Engine(
            settings.policy,
            settings.seed,
            None,
            timedelta(seconds=settings.sync_max_age_s),
            registry.find,
            watched,
            ask,
        )
        scheduler = Scheduler(settings, bus, start, core_thread, decider, health, clock)
        await scheduler.reconfigure(loaded)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.run())
            tasks.create_task(_lead(scheduler, lead, opened, health))
            forecasters = [
                forecaster.Forecaster(scope, settings, scheduler.forecast_source(), health)
                for scope in forecaster.scopes(settings)
            ]
            for forecasting in forecasters:
                tasks.create_task(forecasting.run())
            source = scheduler.what_if_source(forecasters)
            requested = what_ifs.WhatIfs(settings, source, health)
            tasks.create_task(requested.run())
            if file is not None:
                tasks.create_task(_poll_file(file, scheduler, settings, health))


async def _lead(
    scheduler: "Scheduler",
    lead: leader_election.Leadership,
    opened: Callable[[], Awaitable[port.Writer]],
    health: runtime.Health,
) -> None:
    await lead.acquired()
    await scheduler.lead(await runtime.retry_until_available(opened, "log", health))


class Reconfigurable(Protocol):
    """An object whose configuration can be replaced."""

    async def reconfigure(self, loaded: configuration_file.LoadedConfiguration) -> None:
        """Use this configuration from the next session on."""


async def _load_when_usable(
    file: configuration_file.ConfigurationFile, settings: SchedulerSettings, health: runtime.Health
) -> configuration_file.LoadedConfiguration:
    """Wait until the file is valid. Until then no session runs, not even with the defaults."""
    while True:
        try:
            loaded = await asyncio.to_thread(file.read_if_changed)
        except configuration_file.ConfigurationFileError as error:
            health.set("configuration", str(error))
        else:
            if loaded is not None:
                health.set("configuration", None)
                return loaded
        await asyncio.sleep(settings.configuration_check_s)


async def _poll_file(
    file: configuration_file.ConfigurationFile,
    scheduler: "Scheduler",
    settings: SchedulerSettings,
    health: runtime.Health,
) -> None:
    """Apply the file whenever its content changes."""
    while True:
        await asyncio.sleep(settings.configuration_check_s)
        await reload_configuration(file, scheduler, health)


async def reload_configuration(
    file: configuration_file.ConfigurationFile, decider: Reconfigurable, health: runtime.Health
) -> None:
    """Read the file once. If it has errors, the previous configuration stays in use."""
    try:
        loaded = await asyncio.to_thread(file.read_if_changed)
    except configuration_file.ConfigurationFileError as error:
        health.warn("configuration", f"the previous one stays in use:\n{error}")
        _refused.add(1)
        return
    if loaded is not None:
        await decider.reconfigure(loaded)
        _report_configuration(loaded, health)


def _report_configuration(
    loaded: configuration_file.LoadedConfiguration, health: runtime.Health
) -> None:
    digest = loaded.configuration.digest
    telemetry.log.info("configuration loaded", origin=loaded.origin, digest=digest)
    health.warn("configuration", "\n".join(loaded.warnings) or None)


class Scheduler:
    """One term of the scheduler. Call ``run`` once."""

    def __init__(
        self,
        settings: SchedulerSettings,
        bus: port.Bus,
        start: port.Position,
        core_thread: ThreadPoolExecutor,
        decider: engine.Engine,
        health: runtime.Health,
        clock: runtime.Clock,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._writer: port.Writer | None = None
        self._start = start
        self._core_thread = core_thread
        self._health = health
        self._clock = clock
        self._engine = decider
        self._inbox: asyncio.Queue[port.Batch] = asyncio.Queue(MAX_BUFFERED_BATCHES)
        self._meter = node_metrics.MetricsPoller(self._measure, health, clock)
        self._dead_letters: list[envelope.Draft] = []
        self._pending_explanations: dict[str, envelope.Draft] = {}
        self._has_pending_explanations = asyncio.Event()

    async def reconfigure(self, loaded: configuration_file.LoadedConfiguration) -> None:
        """Use this configuration from the next session on, and start that session now."""
        await asyncio.get_running_loop().run_in_executor(
            self._core_thread, self._engine.reconfigure, loaded.configuration
        )
        self._meter.set_source(loaded.configuration.metrics)
        await self._inbox.put(EMPTY_BATCH)

    async def lead(self, writer: port.Writer) -> None:
        """Lead with this writer. Its epoch fences the previous leader: readers drop its records."""
        self._writer = writer
        ends = await materialization.end_offsets(self._bus, subscriptions.TOPICS, self._health)
        await asyncio.get_running_loop().run_in_executor(
            self._core_thread, self._engine.lead, writer.epoch, writer.opened_at, ends
        )
        await self._inbox.put(EMPTY_BATCH)

    def forecast_source(self) -> forecaster.Source:
        """The inputs and outputs of forecasts. In a standby, ``pending`` returns no gangs."""
        loop = asyncio.get_running_loop()

        cache = self._engine.cache

        async def pending() -> frozenset[str]:
            if self._writer is None:
                return frozenset()
            return await loop.run_in_executor(self._core_thread, frozenset, cache.explained)

        async def read_present() -> present.Present:
            now = self._clock()
            return await loop.run_in_executor(
                self._core_thread, present.of_snapshot, cache.snapshot, now
            )

        async def publish(drafts: Sequence[envelope.Draft]) -> object:
            writer = self._writer
            assert writer is not None, "a standby does not publish"
            return await writer.append(*drafts)

        return forecaster.Source(
            pending, read_present, publish, lambda: forecaster.read_events(self._bus), self._clock
        )

    def what_if_source(self, forecasters: Sequence[forecaster.Forecaster]) -> what_ifs.Source:
        """The inputs and outputs of what-if answers. Their ranges use the widening that the first
        of ``forecasters`` has learned; without forecasters, the initial widening."""
        forecasts = self.forecast_source()
        return what_ifs.Source(
            lambda: self._writer is not None,
            forecasts.present,
            forecasts.publish,
            forecasts.events,
            lambda: what_ifs.read_questions(self._bus, self._health),
            lambda: forecasters[0].widening if forecasters else range_calibration.Widening(),
            self._clock,
        )

    async def _measure(self, measured: cluster_objects.MeasuredUsage | None) -> None:
        """Use these measurements from the next session on."""
        await asyncio.get_running_loop().run_in_executor(
            self._core_thread, self._engine.measure, measured
        )
        await self._inbox.put(EMPTY_BATCH)

    async def run(self) -> None:
        """Read, decide and publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._publish_explanations())
            tasks.create_task(self._publish_durations())
            tasks.create_task(self._meter.run())
            tasks.create_task(self._decide())

    async def _read(self) -> None:
        tell = self._health.set
        fold = materialization.materialize(self._bus, engine.TOPICS, tell, "cache", self._start)
        async with contextlib.aclosing(fold) as batches:
            async for batch in batches:
                await self._inbox.put(batch)

    async def _decide(self) -> None:
        loop = asyncio.get_running_loop()
        batches: list[port.Batch] = []
        next_session = loop.time()
        while True:
            step = await self._step(batches, may_decide=loop.time() >= next_session)
            for fact, problem in step.facts.items():
                self._health.set(fact, problem)
            for fact, warning in step.warnings.items():
                self._health.warn(fact, warning)
            if self._engine.replaced_by:
                raise errors.ReplacedError(self._engine.replaced_by)
            await self._publish_dead_letters(step.undecodable)
            if step.publication is not None:
                interval_s = self._settings.min_session_interval_s
                next_session = runtime.timer_at(loop.time() + interval_s)
                await self._publish(step.publication)
            until = next_session if step.is_due else loop.time() + step.next_step_s
            batches = await self._next_batches(until)

    async def _step(self, batches: list[port.Batch], *, may_decide: bool) -> engine.StepResult:
        now, loop = self._clock(), asyncio.get_running_loop()
        at_s = loop.time()
        return await loop.run_in_executor(
            self._core_thread,
            lambda: self._engine.step(batches, now, may_decide=may_decide, at_s=at_s),
        )

    async def _next_batches(self, until: float) -> list[port.Batch]:
        """Return all batches that were read; wait for one until this time of the loop's clock."""
        batches: list[port.Batch] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                batches.append(await self._inbox.get())
        while not self._inbox.empty():
            batches.append(self._inbox.get_nowait())
        return batches

    async def _publish(self, publication: engine.Publication) -> None:
        """Publish decisions and wait for the log. Queue explanations for the task that publishes
        explanations."""
        if publication.decisions:
            appended = await self._append(publication.decisions)
            self._engine.require_offset(appended[-1].offset)
        if publication.explanations:
            self._pending_explanations |= publication.explanations
            self._has_pending_explanations.set()

    async def _publish_explanations(self) -> None:
        """Publish the newest explanation of each PodGroup; older explanations in the queue are
        dropped."""
        while True:
            await self._has_pending_explanations.wait()
            keys = list(self._pending_explanations)[:MAX_DRAFTS_PER_APPEND]
            drafts = [self._pending_explanations.pop(key) for key in keys]
            if not self._pending_explanations:
                self._has_pending_explanations.clear()
            await self._append(drafts)

    async def _publish_durations(self) -> None:
        """Publish the durations of sessions repeatedly. A standby has no sessions."""
        while True:
            await asyncio.sleep(DURATIONS_EVERY_S)
            if self._writer is not None:
                await self.publish_durations()

    async def publish_durations(self) -> None:
        """Publish the durations of the newest sessions, if there were any since the last call."""
        loop, now = asyncio.get_running_loop(), self._clock()
        sessions_measured = await loop.run_in_executor(
            self._core_thread, self._engine.durations.take, now
        )
        if sessions_measured is not None:
            key = messages.SESSIONS_KEY
            draft = envelope.Draft(
                topic=topics.EXPLANATIONS, key=key, message=sessions_measured, time=now
            )
            await self._append([draft])

    async def _publish_dead_letters(self, undecodable: Iterable[engine.UndecodableRecord]) -> None:
        """Publish dead letters. A standby keeps them until it is the leader, up to a limit."""
        drafts = self._dead_letters
        for undecodable_record in undecodable:
            record = undecodable_record.record
            telemetry.log.warning(
                "record sent to the dead-letter topic",
                topic=record.topic.name,
                offset=record.offset,
                reason=undecodable_record.reason,
            )
            drafts.append(
                runtime.dead_letter(record, "scheduler", undecodable_record.reason, self._clock())
            )
        if drafts and self._writer is not None:
            self._dead_letters = []
            await self._append(drafts)
        del drafts[:-MAX_DRAFTS_PER_APPEND]

    async def _append(self, drafts: Sequence[envelope.Draft]) -> tuple[port.Appended, ...]:
        writer = self._writer
        assert writer is not None, "a standby does not publish"
        return await runtime.retry_until_available(
            lambda: writer.append(*drafts), "log", self._health
        )
