"""The scheduler's shell: the event loop reads and publishes, one core thread folds and decides.

Sessions are driven by events: the first change after a pause is decided on at once, a burst in
sessions at least ``min_session_interval_s`` apart, and an idle cluster costs nothing. Decisions are
published before the next session, explanations beside it. A standby folds as the active one does,
and decides nothing.
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
)
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, leader_election
from stromboli.shared.bus import materialization, port
from stromboli.shared.leader_election import on_log
from stromboli.shared.runtime import runtime, telemetry

BATCHES_AHEAD = 8
"""Batches read while the core thread is busy: it never waits for the log, and a replay of a large
log does not pile up in memory."""
DRAFTS_AT_ONCE = 1000
"""Explanations in one append: larger ones would stand in the way of decisions."""
NO_RECORDS = port.Batch(records=(), place=port.START, caught_up=False)
"""Makes the engine take a step."""

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
    """Decide until cancelled. Everything begun is safe to repeat, so cancellation is immediate.

    ``registry``: the plugins that there are; None for those that are installed. ``lease``: None
    where there is no other scheduler.
    """
    health.set("start", "opening the log")
    if registry is None:
        registry = await asyncio.to_thread(discovery.registry)
    everything = Everything(settings, bus, health, clock, registry)
    if lease is None:

        async def opened() -> port.Writer:
            return await bus.open_writer("scheduler", settings.instance)

        alone = leader_election.Alone(health)
        await leader_election.serve_in_terms(
            alone, lambda lead: _term(everything, lead, opened), health
        )
        return
    async with on_log.LogPlace(bus, settings.instance, clock, health) as place:

        async def taken() -> port.Writer:
            return place.writer

        keeper = leader_election.LeaderElector(
            place, leader_election.identity(lease), lease.terms, health
        )
        await leader_election.serve_in_terms(
            keeper, lambda lead: _term(everything, lead, taken), health
        )


class Everything(msgspec.Struct, frozen=True):
    """What all terms of a scheduler have in common."""

    settings: SchedulerSettings
    bus: port.Bus
    health: runtime.Health
    clock: runtime.Clock
    registry: plugins.Registry


async def _term(
    given: Everything, lead: leader_election.Lead, opened: Callable[[], Awaitable[port.Writer]]
) -> None:
    settings, bus, health, clock = given.settings, given.bus, given.health, given.clock
    registry = given.registry
    file = (
        configuration_file.File(Path(settings.configuration), registry)
        if settings.configuration
        else None
    )
    loaded = (
        configuration_file.default(registry)
        if file is None
        else await _usable(file, settings, health)
    )
    _tell(loaded, health)
    start = await runtime.persist(lambda: restart.place(bus), "log", health)
    with (
        extenders.Caller() as ask,
        plugin_watchdog.Watch(
            settings.plugin_deadline_s
        ) as watched,  # stops what the thread's end waits for
        ThreadPoolExecutor(1, thread_name_prefix="core") as core_thread,
    ):
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(core_thread, engine.warm_up)
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
            if file is not None:
                tasks.create_task(_follow(file, scheduler, settings, health))


async def _lead(
    scheduler: "Scheduler",
    lead: leader_election.Lead,
    opened: Callable[[], Awaitable[port.Writer]],
    health: runtime.Health,
) -> None:
    await lead.acquired()
    await scheduler.lead(await runtime.persist(opened, "log", health))


class Decider(Protocol):
    """What decides by a configuration."""

    async def reconfigure(self, loaded: configuration_file.Loaded) -> None:
        """Decide by this from the next session on."""


async def _usable(
    file: configuration_file.File, settings: SchedulerSettings, health: runtime.Health
) -> configuration_file.Loaded:
    """What the file says once it can be used: nothing is decided before by rules nobody wrote."""
    while True:
        try:
            loaded = await asyncio.to_thread(file.look)
        except configuration_file.FileError as error:
            health.set("configuration", str(error))
        else:
            if loaded is not None:
                health.set("configuration", None)
                return loaded
        await asyncio.sleep(settings.configuration_check_s)


async def _follow(
    file: configuration_file.File,
    scheduler: "Scheduler",
    settings: SchedulerSettings,
    health: runtime.Health,
) -> None:
    """Put in force what the file says whenever it says something else."""
    while True:
        await asyncio.sleep(settings.configuration_check_s)
        await renew(file, scheduler, health)


async def renew(file: configuration_file.File, decider: Decider, health: runtime.Health) -> None:
    """Look at the file once. One that cannot be used leaves the old configuration in force."""
    try:
        loaded = await asyncio.to_thread(file.look)
    except configuration_file.FileError as error:
        health.warn("configuration", f"the one before stays in force:\n{error}")
        _refused.add(1)
        return
    if loaded is not None:
        await decider.reconfigure(loaded)
        _tell(loaded, health)


def _tell(loaded: configuration_file.Loaded, health: runtime.Health) -> None:
    digest = loaded.configuration.digest
    telemetry.log.info("configured", origin=loaded.origin, digest=digest)
    health.warn("configuration", "\n".join(loaded.warnings) or None)


class Scheduler:
    """One scheduler with its epoch. ``run`` once."""

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
        self._inbox: asyncio.Queue[port.Batch] = asyncio.Queue(BATCHES_AHEAD)
        self._meter = node_metrics.Meter(self._measure, health, clock)
        self._parked: list[envelope.Draft] = []
        self._untold: dict[str, envelope.Draft] = {}
        self._has_untold = asyncio.Event()

    async def reconfigure(self, loaded: configuration_file.Loaded) -> None:
        """Decide by this from the next session on, which comes at once."""
        await asyncio.get_running_loop().run_in_executor(
            self._core_thread, self._engine.reconfigure, loaded.configuration
        )
        self._meter.follow(loaded.configuration.metrics)
        await self._inbox.put(NO_RECORDS)

    async def lead(self, writer: port.Writer) -> None:
        """Decide from now on, by this writer: whoever did before is heard no more."""
        self._writer = writer
        ends = await materialization.ends(self._bus, cluster_cache.FOLDED, self._health)
        await asyncio.get_running_loop().run_in_executor(
            self._core_thread, self._engine.lead, writer.epoch, writer.opened_at, ends
        )
        await self._inbox.put(NO_RECORDS)

    async def _measure(self, measured: cluster_objects.Measured | None) -> None:
        """Use this from the next session on."""
        await asyncio.get_running_loop().run_in_executor(
            self._core_thread, self._engine.measure, measured
        )
        await self._inbox.put(NO_RECORDS)

    async def run(self) -> None:
        """Read, decide and explain until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._explain())
            tasks.create_task(self._meter.run())
            tasks.create_task(self._decide())

    async def _read(self) -> None:
        tell = self._health.set
        fold = materialization.fold(self._bus, engine.FOLDED, tell, "picture", self._start)
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
                raise leader_election.ReplacedError(self._engine.replaced_by)
            await self._park(step.undecodable)
            if step.publication is not None:
                interval_s = self._settings.min_session_interval_s
                next_session = runtime.timer_at(loop.time() + interval_s)
                await self._publish(step.publication)
            until = next_session if step.is_due else loop.time() + step.look_again_s
            batches = await self._next_batches(until)

    async def _step(self, batches: list[port.Batch], *, may_decide: bool) -> engine.Step:
        now, loop = self._clock(), asyncio.get_running_loop()
        at_s = loop.time()
        return await loop.run_in_executor(
            self._core_thread,
            lambda: self._engine.step(batches, now, may_decide=may_decide, at_s=at_s),
        )

    async def _next_batches(self, until: float) -> list[port.Batch]:
        """All that has come, or nothing once the loop's clock shows ``until``."""
        found: list[port.Batch] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                found.append(await self._inbox.get())
        while not self._inbox.empty():
            found.append(self._inbox.get_nowait())
        return found

    async def _publish(self, publication: engine.Publication) -> None:
        """Decisions, until the log has them; nothing else is decided meanwhile. Then explanations
        for the other task."""
        if publication.decisions:
            appended = await self._append(publication.decisions)
            self._engine.wait_for(appended[-1].offset)
        if publication.explanations:
            self._untold |= publication.explanations
            self._has_untold.set()

    async def _explain(self) -> None:
        """Only the newest about each PodGroup; what came while the log was away is not repeated."""
        while True:
            await self._has_untold.wait()
            keys = list(self._untold)[:DRAFTS_AT_ONCE]
            drafts = [self._untold.pop(key) for key in keys]
            if not self._untold:
                self._has_untold.clear()
            await self._append(drafts)

    async def _park(self, undecodable: Iterable[engine.Undecodable]) -> None:
        """A standby keeps what it has to say until it may."""
        drafts = self._parked
        for found in undecodable:
            record = found.record
            telemetry.log.warning(
                "parked", topic=record.topic.name, at=record.offset, reason=found.reason
            )
            drafts.append(runtime.parked(record, "scheduler", found.reason, self._clock()))
        if drafts and self._writer is not None:
            self._parked = []
            await self._append(drafts)
        del drafts[:-DRAFTS_AT_ONCE]

    async def _append(self, drafts: Sequence[envelope.Draft]) -> tuple[port.Appended, ...]:
        writer = self._writer
        assert writer is not None, "a standby has nothing to say"
        return await runtime.persist(lambda: writer.append(*drafts), "log", self._health)
