"""The service loop: materializes topics into the cache, appends reviews, consumes submissions.

Admission answers from the start, because a queue that is not in the cache is read from the API
server. It is *ready* once its cache is complete and fresh and no other system acts under one of its
scheduler names.
"""

import asyncio
import contextlib
import functools
import math
from collections.abc import Mapping

from stromboli.admission import log_status
from stromboli.admission.kafka import submission_consumer
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.shared import envelope, errors, leader_election, snapshot, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import materialization
from stromboli.shared.bus import port as bus_port
from stromboli.shared.messages import cluster as messages
from stromboli.shared.runtime import runtime, telemetry

FOLDED = (
    topics.QUEUES,
    topics.NAMESPACES,
    topics.HYPER_NODES,
    topics.PRIORITY_CLASSES,
    topics.SYNC,
    topics.TOPOLOGY,
    topics.DATA,
    topics.USAGE,
    topics.EXPLANATIONS,
    topics.FORECAST_ANSWERS,
    topics.ANSWERS,
)
COUNTED = (topics.JOBS,)
"""Topics that are read only if a limit of live jobs is set: they have a record for each job."""
FRESHNESS_CHECK_S = 5.0
"""Seconds between two checks of the age of the monitor's last sync record."""


async def serve(
    admission: AdmissionService,
    settings: AdmissionSettings,
    bus: bus_port.Bus,
    health: runtime.Health,
    clock: runtime.Clock,
    instance: str,
    lease: leader_election.Lease | None = None,
    leases: log_status.Leases = log_status.no_leases,
) -> None:
    """Update the cache and record reviews until cancelled. ``lease``: decides which of several
    replicas consumes submissions; without a lease, this replica does. ``leases``: reads the leases
    of other services.
    """
    health.set("cache", "materializing the log")
    writer = await runtime.retry_until_available(
        lambda: bus.open_writer("admission", instance), "log", health
    )
    sync = snapshot.Sync()
    positions: dict[str, int] = {}
    admission.log_status = log_status.LogStatus(bus, health, positions, clock, leases).read
    folded, others_changed = asyncio.Event(), asyncio.Event()
    reached = _ReadPositions()

    async def watch_age() -> None:
        await folded.wait()
        while True:
            now_s = asyncio.get_running_loop().time()
            missing = sync.missing((kinds.QUEUES,), now_s, settings.sync_max_age_s, positions)
            competitors = sync.competitors(settings.scheduler_names)
            health.set("sync", "; ".join(missing) or None)
            health.set("competitors", "; ".join(competitors) or None)
            health.set("cache", None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FRESHNESS_CHECK_S if not missing else 0.05):
                    await others_changed.wait()
            others_changed.clear()

    async with asyncio.TaskGroup() as group:
        group.create_task(watch_age())
        group.create_task(_record(admission, writer, health))
        group.create_task(_read_history(admission, bus, health))
        consumer = submission_consumer.SubmissionConsumer(
            admission, settings, admission.authenticator, clock
        )

        async def caught_up() -> None:
            await reached.wait(await materialization.end_offsets(bus, (topics.ANSWERS,), health))

        async def term(lead: leader_election.Leadership) -> None:
            await consumer.serve(lead, bus, writer, health, caught_up)

        leader_lease = lease or leader_election.SingleReplica(health)
        group.create_task(leader_election.serve_in_terms(leader_lease, term, health))
        # Not a readiness problem: the cache still answers, and its age is checked.
        fold = materialization.materialize(
            bus,
            (*FOLDED, *(COUNTED if admission.live_jobs.is_enabled else ())),
            health.warn,
            "cache",
            on_recreated=admission.forget,
        )
        async with contextlib.aclosing(fold) as batches:
            async for batch in batches:
                positions.update(batch.positions)
                for record in batch.records:
                    sync.apply(record, batch.at_end.get(topics.SYNC.name, -math.inf))
                    if record.key == messages.COMPETITORS_KEY:
                        admission.claimed = sync.claimed
                        others_changed.set()
                    await _fold(admission, record, writer, clock)
                admission.live_jobs.complete_until_s = sync.complete_until(kinds.JOBS, positions)
                reached.set(batch.positions)
                if batch.caught_up and not folded.is_set():
                    folded.set()
                    admission.caught_up()
                    admission.idempotency_cache.open(writer)
                    admission.what_ifs.open(writer)


class _ReadPositions:
    """How far the cache has read, topic by topic."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._changed = asyncio.Event()

    def set(self, positions: Mapping[str, int]) -> None:
        """Record that everything before these offsets is in the cache."""
        self._positions.update(positions)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, wanted: Mapping[str, int]) -> None:
        """Return once everything before these offsets is in the cache."""
        while any(self._positions.get(topic, 0) < offset for topic, offset in wanted.items()):
            await self._changed.wait()


async def _read_history(
    admission: AdmissionService, bus: bus_port.Bus, health: runtime.Health
) -> None:
    """Read the task history, independent of the other topics: two weeks of events take a while."""
    wanted = (topics.BATCH_EVENTS,)
    # After the topic is recreated, the earlier events are still true.
    fold = materialization.materialize(
        bus, wanted, health.warn, "history", on_recreated=lambda _: None, is_urgent=False
    )
    async with contextlib.aclosing(fold) as batches:
        async for batch in batches:
            for record in batch.records:
                # The controller, which writes the topic, reports records that cannot be decoded.
                with contextlib.suppress(errors.UndecodableError):
                    admission.task_histories.fold(record)
            admission.task_histories.is_complete |= batch.caught_up
            await asyncio.sleep(0)


async def _record(
    admission: AdmissionService, writer: bus_port.Writer, health: runtime.Health
) -> None:
    """Append reviews in order, with all queued ones in one append."""
    while True:
        drafts = [await admission.pending_reviews.get()]
        while not admission.pending_reviews.empty():
            drafts.append(admission.pending_reviews.get_nowait())
        await runtime.retry_until_available(
            functools.partial(writer.append, *drafts), "reviews", health
        )


async def _fold(
    admission: AdmissionService,
    record: envelope.Record,
    writer: bus_port.Writer,
    clock: runtime.Clock,
) -> None:
    try:
        admission.fold(record)
    except errors.UndecodableError as error:
        telemetry.log.error("unreadable record", error=str(error))
        with contextlib.suppress(errors.ExternalError):  # the log line contains it
            await writer.append(runtime.dead_letter(record, "admission", str(error), clock()))
