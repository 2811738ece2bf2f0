"""The controller's shell: materializes the log, reconciles changed keys, executes decisions.

Core and cache run on the event loop: a reconcile takes well under a millisecond; the remaining time
is spent waiting for the API server.
"""

import asyncio
import contextlib
import functools
import math
from collections import deque
from collections.abc import Mapping
from datetime import timedelta

import structlog

from stromboli.controller import controller_metrics, isolation, topology_file
from stromboli.controller.admission_reader import AdmissionReader
from stromboli.controller.batch_state_writer import BatchStateWriter
from stromboli.controller.core import commands, failures, reconcilers
from stromboli.controller.core.store import (
    batch_state,
    controller_cache,
    event_history,
    subscriptions,
)
from stromboli.controller.event_history_reader import EventHistoryReader
from stromboli.controller.execution.command_executor import CommandExecutor, RefusedError
from stromboli.controller.execution.decision_executor import DecisionExecutor
from stromboli.controller.execution.event_recorder import EventRecorder
from stromboli.controller.execution.request_limiter import RequestLimiter
from stromboli.controller.owner_watch import OwnerWatch
from stromboli.controller.settings import ControllerSettings
from stromboli.controller.work_queue import WorkQueue
from stromboli.shared import envelope, errors, keys, leader_election, topics
from stromboli.shared.bus import materialization
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.runtime import runtime, telemetry

TICK_S = 1.0
"""Seconds between two checks of the monitor's newest sync marker."""
SHORTEST_SLEEP_S = 0.5
LONGEST_SLEEP_S = 60.0
"""Longest delay of a timer in seconds, in case the wall clock is adjusted."""
CALM_S = 0.25
CALM = frozenset({"podgroup", "flow", "template", "cron", "queue rules"})
"""Kinds of keys whose reconcile is delayed by ``CALM_S`` after a change, so that status objects for
users are written once for several changes, and do not compete with the writes that bind pods."""
COUNTS_CALM_S = 1.0
COUNTS = frozenset({"queue counts", "hyper nodes", "discovery"})
"""Kinds of keys whose reconcile is delayed by ``COUNTS_CALM_S``. Counts of queues, jobs and
PodGroups change with every pod, and one write per second is enough. Many nodes join at a time, and
one reconcile of the topology covers all of them."""
PLANNED_CALM_S = 0.5
"""Longest delay of a new job's first status while a session may place its pods by their plan."""
POD_NEWS_EVERY_S = 0.1
"""Minimum seconds between two reconciles of a job that are triggered by changes of its pods, from
records or from responses to our own writes: the pods of a gang are created and change in quick
succession."""
NETWORK_LOOK_S = 5.0
"""Interval between reads of the topology file, which changes rarely."""
LONG_PLAN_S = 0.1
"""A key whose plan took longer than this pauses for as long as the plan took, so that the event
loop serves other tasks at least half of the time. Only a walk over tens of thousands of pods takes
that long, after a change of the job itself (``job_pods``); any other plan costs O(changes)."""
MOST_PARKED = 1000
"""Maximum number of undecodable records that a standby keeps, to append them to ``dead.letters``
when it becomes the leader."""
_log = structlog.get_logger(__name__)


async def serve(
    settings: ControllerSettings,
    bus: bus_port.Bus,
    cluster: cluster_port.Cluster,
    health: runtime.Health,
    clock: runtime.Clock,
    lease: leader_election.Lease | None = None,
) -> None:
    """Reconcile jobs and execute decisions until cancelled. ``lease``: None for a single replica.

    On cancellation, work in flight gets ``settings.stop_within_s`` to finish; work that is cut off
    is safe to repeat. If the lease is lost, no work is finished, since another leader may already
    act.
    """

    async def term(lead: leader_election.Leadership) -> None:
        controller = Controller(settings, bus, cluster, health, clock)
        running = asyncio.create_task(controller.run(lead))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if lead.acts:
                controller.stop()
                await asyncio.wait([running], timeout=settings.stop_within_s)
            running.cancel()
            await asyncio.wait([running])
            if not running.cancelled():
                running.result()  # raise an error of the shutdown
            raise

    await leader_election.serve_in_terms(
        lease or leader_election.SingleReplica(health), term, health
    )


class Controller:
    """One term of the controller. Call ``run`` once."""

    def __init__(
        self,
        settings: ControllerSettings,
        bus: bus_port.Bus,
        cluster: cluster_port.Cluster,
        health: runtime.Health,
        clock: runtime.Clock,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._cluster = cluster
        self._health = health
        self._clock = clock
        history = event_history.EventHistory()
        self._batch_state = batch_state.BatchState(history)
        self._cache = controller_cache.ControllerCache(
            settings.scheduler_names,
            history,
            job_plugins.load(),
            settings.tools_domain,
            settings.max_queue_depth,
            settings.data_root,
        )
        self._admission = AdmissionReader(
            self._cache.plans, cluster, settings.deterministic_webhooks
        )
        self._event_history = EventHistoryReader(bus, health, self._cache, self._batch_state, clock)
        self._work_queue = WorkQueue(
            self._reconcile_key, self._isolate, settings.max_inflight_reconciles
        )
        self._network_file = topology_file.TopologyFile(settings.network_file)
        self._writer: bus_port.Writer | None = None
        self._events: EventRecorder
        self._state_writer: BatchStateWriter
        self._executor: CommandExecutor
        self._execution: DecisionExecutor
        self._dead_letters: deque[envelope.Draft] = deque(maxlen=MOST_PARKED)
        self._is_standby = True
        self._calm_since: dict[controller_cache.ReconcileKey, float] = {}
        self._caught_up = False
        self._positions: dict[str, int] = {}
        self._observed_s = -math.inf
        self._has_read = asyncio.Event()
        self._may_act = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin no more work; ``run`` returns when the work in flight is finished."""
        self._stopping.set()

    async def run(self, lead: leader_election.Leadership) -> None:
        """Materialize the log up to its end, then act as the leader until stopped."""
        self._health.set("start", "materializing the log")
        async with asyncio.TaskGroup() as tasks:
            reading = [
                tasks.create_task(self._fold()),
                tasks.create_task(self._watch_sync()),
                tasks.create_task(self._watch_network_file()),
            ]
            stopped = tasks.create_task(self._stopping.wait())
            beginning = tasks.create_task(self._begin(lead))
            await asyncio.wait([beginning, stopped], return_when=asyncio.FIRST_COMPLETED)
            beginning.cancel()
            await asyncio.wait([beginning])
            if not self._stopping.is_set():
                self._health.set("start", None)
                for item in self._cache.items():
                    self._work_queue.add_key(item)
                owners = OwnerWatch(self._cache, self._cluster, self._add_key)
                reading.append(tasks.create_task(owners.follow()))
                if self._settings.bound_pods:
                    reading.append(tasks.create_task(self._admission.follow()))
                saying = tasks.create_task(self._events.run())
                keeping = tasks.create_task(self._state_writer.run())
                acting = [
                    tasks.create_task(self._work_queue.run()),
                    tasks.create_task(self._execution.run()),
                ]
                await self._stopping.wait()
                self._work_queue.stop()
                self._execution.stop()
                await asyncio.wait(acting)
                self._events.stop()
                self._state_writer.stop()
                await asyncio.wait([saying, keeping])
            for task in reading:
                task.cancel()

    async def _begin(self, lead: leader_election.Leadership) -> None:
        """Return once this controller is the leader and its cache is synced."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._event_history.read(to_the_end=False))
            await lead.acquired()
            following.cancel()
        self._is_standby = False
        await self._open()
        if self._settings.bound_pods:
            await self._admission.read()
        await self._may_act.wait()
        await self._cluster.is_reachable()  # its response has the API server's time
        self._observe_server_time()

    async def _open(self) -> None:
        """Open the writer, which fences the previous leader, and read all that the previous leader
        wrote."""
        self._health.set("start", "opening the log")
        settings = self._settings
        writer = await runtime.retry_until_available(
            lambda: self._bus.open_writer("controller", settings.instance), "log", self._health
        )
        await self._read_to(
            await materialization.end_offsets(self._bus, subscriptions.FOLDED, self._health)
        )
        await self._event_history.read(to_the_end=True)
        self._cache.published.finish_loading()
        limiter = RequestLimiter(settings.max_inflight_requests)
        self._events = EventRecorder(self._cluster, limiter, settings.scheduled_events_per_s)
        self._state_writer = BatchStateWriter(
            self._batch_state, writer, self._event_history.topic_ids, self._health, self._clock
        )
        self._executor = CommandExecutor(
            self._cache,
            self._cluster,
            writer,
            self._batch_state,
            limiter,
            self._add_key,
            self._clock,
            self._events,
        )
        self._execution = DecisionExecutor(
            self._cache,
            self._bus,
            self._cluster,
            writer,
            self._executor,
            limiter,
            self._add_key,
            self._events,
            self._health,
            self._clock,
            settings.max_inflight_decisions,
            settings.preparation_s,
        )
        self._writer = writer
        await self._publish_dead_letters()

    # Reading

    async def _fold(self) -> None:
        fold = materialization.materialize(
            self._bus, subscriptions.FOLDED, self._health.set, "cache"
        )
        async with contextlib.aclosing(fold) as batches:
            async for batch in batches:
                for record in batch.records:
                    await self._apply(record, batch.at_end)
                self._positions |= batch.positions
                self._has_read.set()
                self._caught_up = self._caught_up or batch.caught_up
                self._check_sync()

    async def _read_to(self, ends: Mapping[str, int]) -> None:
        while any(self._positions.get(name, 0) < end for name, end in ends.items()):
            self._has_read.clear()
            await self._has_read.wait()

    async def _apply(self, record: envelope.Record, at_end: Mapping[str, float]) -> None:
        folded = self._cache.apply(record, at_end.get(topics.SYNC.name, -math.inf))
        for item in folded.items:
            self._add_key(item, record.id, is_pod_change=record.topic == topics.PODS)
        if folded.undecodable:
            _log.warning(
                "record undecodable", topic=record.topic.name, key=record.key, at=record.offset
            )
            self._dead_letters.append(
                runtime.dead_letter(record, "controller", folded.undecodable, self._clock())
            )
            await self._publish_dead_letters()

    async def _publish_dead_letters(self) -> None:
        """Append undecodable records to ``dead.letters``. A standby keeps them until it is the
        leader."""
        writer = self._writer
        while writer is not None and self._dead_letters:
            dead_letter = self._dead_letters.popleft()
            await runtime.retry_until_available(
                functools.partial(writer.append, dead_letter), "log", self._health
            )

    async def _watch_sync(self) -> None:
        while True:
            self._check_sync()
            await asyncio.sleep(TICK_S)

    async def _watch_network_file(self) -> None:
        while True:
            try:
                sources = self._network_file.poll()
            except topology_file.FileError as error:
                _log.error("topology file not used", reason=str(error))
            except Exception as error:  # users edit the file, so any content is possible
                isolation.report(error, "topology file")
            else:
                if sources is not None:
                    self._cache.discovery = sources
                    for source in sources:
                        self._add_key(controller_cache.ReconcileKey("discovery", source), "")
            await asyncio.sleep(NETWORK_LOOK_S)

    def _check_sync(self) -> None:
        """Allow reconciles only while the cache is complete and fresh."""
        if not self._caught_up:
            return
        now_s = asyncio.get_running_loop().time()
        missing = self._cache.sync.missing(
            subscriptions.NEEDED, now_s, self._settings.sync_max_age_s, self._positions
        )
        competitors = self._cache.sync.competitors(self._cache.scheduler_names)
        self._health.set("sync", "; ".join(missing) or None)
        self._health.set("competitors", "; ".join(competitors) or None)
        may_act = not missing and not competitors
        if may_act != self._work_queue.is_open:
            self._work_queue.open(is_open=may_act)
        if may_act:
            self._may_act.set()
        if self._is_standby:
            self._health.set("start", None)

    # Acting

    async def _reconcile_key(self, item: controller_cache.ReconcileKey, cause: str) -> None:
        """Plan one key and execute the plan. Raises ExternalError. Any other exception is reported
        by ``_isolate``, and the key is retried with back-off."""
        reason = self._cache.unknown_reason(item.key) if item.kind == "job" else ""
        if reason:
            _log.warning("job frozen", job=item.key, reason=reason)
        self._observe_server_time()
        loop = asyncio.get_running_loop()
        now, begun = self._clock(), loop.time()
        plan = reconcilers.plan(self._cache, item, now)
        took_s = loop.time() - begun
        if item.kind == "queue counts":
            controller_metrics.OWN.counted(self._cache, item.key)
        plan = self._postponed(item, plan, begun)
        if plan:
            with telemetry.span(f"reconcile {item.kind}", self._trace(item), key=item.key):
                await self._carry_out(plan, item, cause)
        if took_s > LONG_PLAN_S:
            await asyncio.sleep(took_s)
        # Computed for the plan's time, since the plan lacks what became due later.
        at = reconcilers.due(self._cache, item, now)
        if at is not None:
            wait_s = (at - self._clock()).total_seconds()
            self._work_queue.add_key_after(
                item, min(max(wait_s, SHORTEST_SLEEP_S), LONGEST_SLEEP_S)
            )

    def _observe_server_time(self) -> None:
        """Let the estimate of the API server's clock follow the last response, if it is new."""
        server_time = self._cluster.server_time()
        if server_time is None or server_time.arrived_s == self._observed_s:
            return
        self._observed_s = server_time.arrived_s
        age_s = asyncio.get_running_loop().time() - server_time.arrived_s
        arrived_at = self._clock() - timedelta(seconds=age_s)
        self._cache.api_clock.observe(server_time.at, arrived_at)

    def _postponed(
        self, item: controller_cache.ReconcileKey, plan: commands.Plan, at: float
    ) -> commands.Plan:
        """The plan without its writes that can wait, if these were first planned less than
        ``COUNTS_CALM_S`` ago; ``PLANNED_CALM_S`` for a status that follows planned pods."""
        rest = commands.without_counts(plan)
        if rest == plan:
            self._calm_since.pop(item, None)
            return plan
        since = self._calm_since.setdefault(item, at)
        until = since + (PLANNED_CALM_S if commands.follows_pods(plan) else COUNTS_CALM_S)
        if at >= until:
            del self._calm_since[item]
            return plan
        self._work_queue.add_key_after(item, until - at)
        return rest

    def _add_key(
        self, item: controller_cache.ReconcileKey, cause: str, *, is_pod_change: bool = False
    ) -> None:
        """See ``command_executor.AddKey``."""
        if self._writer is None:
            return  # a new leader reconciles all keys
        if item.kind in CALM:
            self._work_queue.add_key_after(item, CALM_S)
        elif item.kind in COUNTS:
            self._work_queue.add_key_after(item, COUNTS_CALM_S)
        elif item.kind == "job" and is_pod_change:
            self._work_queue.add_key_spaced(item, cause, POD_NEWS_EVERY_S)
        else:
            self._work_queue.add_key(item, cause)

    async def _carry_out(
        self, plan: commands.Plan, item: controller_cache.ReconcileKey, cause: str
    ) -> None:
        try:
            for stage in plan:
                await self._executor.carry_out(stage, item.key, cause)
        except RefusedError as error:
            _log.warning("request refused", kind=item.kind, key=item.key, reason=str(error))
            event = failures.event(self._cache, item, error.command, error.reason, self._clock())
            if event is not None:
                news = () if self._cache.is_recorded(event) else (event,)
                note = failures.note(self._cache, item, error.command, event)
                with contextlib.suppress(RefusedError):
                    await self._executor.carry_out((*news, *note), item.key, cause)
            raise

    async def _isolate(self, item: controller_cache.ReconcileKey, error: Exception) -> None:
        """Report a key whose reconcile failed with an internal error: in the log, as a metric and
        by an Event."""
        isolation.report(error, item.kind, key=item.key)
        try:
            stage = failures.reconcile_failed(self._cache, item, error, self._clock())
            await self._executor.carry_out(stage, item.key, "")
        except errors.InvariantError:
            raise
        except Exception as failed:
            # The failed retry will report it again.
            _log.warning("failure not reported", kind=item.kind, key=item.key, reason=str(failed))

    def _trace(self, item: controller_cache.ReconcileKey) -> str:
        job = self._cache.job(item.key) if item.kind == "job" else None
        return "" if job is None else job.metadata.annotation(keys.TRACEPARENT) or ""
