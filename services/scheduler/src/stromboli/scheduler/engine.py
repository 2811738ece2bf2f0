"""The work of the core thread: apply records to the cache, then run a session if one is due.

The service calls ``step`` in its one core thread and does not access the engine during the call.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from stromboli.scheduler import instruments
from stromboli.scheduler.core import plugins, policy, schedule
from stromboli.scheduler.core.cache import cluster_cache, subscriptions
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import (
    external_calls,
    opening,
    plugin_isolation,
    session_inputs,
)
from stromboli.scheduler.core.framework import session as framework
from stromboli.shared import cluster_clock, envelope, errors, keys, snapshot, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port
from stromboli.shared.messages import log
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import telemetry

TOPICS = (topics.SYNC, *subscriptions.TOPICS)
GAUGE_INTERVAL = timedelta(seconds=1)
"""Time between two updates of the plugins' gauges. Dashboards read them every 15 s or so, and an
update costs milliseconds with a thousand queues."""
_NOTED_WHEN_PUBLISHED = (topics.EXPLANATIONS, topics.DATA_WANTED)
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)

_session_seconds = telemetry.meter.create_histogram(
    "stromboli.scheduler.session", unit="s", description="Duration of a session"
)
_binds = telemetry.meter.create_counter("stromboli.scheduler.binds", description="Binds decided")
_isolated = telemetry.meter.create_counter(
    "stromboli.scheduler.isolated",
    description="Internal errors isolated to one object",
)
_republished = telemetry.meter.create_counter(
    "stromboli.scheduler.republished",
    description="Decisions republished because they were open for too long",
)
_failing = telemetry.meter.create_gauge(
    "stromboli.scheduler.plugin.failing",
    description="1 for a plugin that failed: sessions run without it or exclude gangs",
)


class UndecodableRecord(msgspec.Struct, frozen=True):
    """A record for the dead-letter topic, with the reason."""

    record: envelope.Record
    reason: str


class Publication(msgspec.Struct, frozen=True):
    """Records that a step publishes: decisions in order, then explanations and the wanted data sets
    of nodes, for which only the newest record of each key matters."""

    decisions: tuple[envelope.Draft, ...]
    explanations: dict[str, envelope.Draft]


class StepResult(msgspec.Struct, frozen=True):
    """The result of a step.

    ``facts``: name -> problem that makes the service not ready, or None; ``warnings``: the same for
    problems that do not affect readiness. ``is_due``: a session is due and did not run in this
    step. ``next_step_s``: seconds until the next step, even without records.
    """

    undecodable: tuple[UndecodableRecord, ...]
    facts: dict[str, str | None]
    warnings: dict[str, str | None]
    publication: Publication | None
    is_due: bool
    next_step_s: float


class Engine:
    """The cache, and the conditions under which sessions may run on it."""

    def __init__(
        self,
        by: policy.Policy,
        seed: int,
        epoch: int | None,
        sync_max_age: timedelta,
        find: opening.FindPlugin = plugins.find,
        watched: Callable[
            [plugin_isolation.Attempt], framework.Session
        ] = plugin_isolation.run_unwatched,
        ask: external_calls.Ask | None = None,
        measures: instruments.Instruments | None = None,
    ) -> None:
        self.cache = cluster_cache.ClusterCache(by.scheduler_names, is_deferred=True)
        self._policy = by
        self._configure()
        self._seed = seed
        self._epoch = epoch
        self._sync_max_age = sync_max_age
        self._sync = snapshot.Sync()
        self._is_caught_up = False
        self._is_current = False
        self._successor = ""
        self._opened_last = -1
        self._compact_at = _EPOCH_START
        self._compact_before = 0
        self._required_offsets: dict[str, int] = {}  # topic -> offset
        self._clock = cluster_clock.ClusterClock()
        self._wake_at: datetime | None = None
        self._decided_at = _EPOCH_START
        self._logged_unknown: tuple[object, ...] = ({}, ())
        self._logged_complaints: set[str] = set()
        self._find = find
        self._run_watched = watched
        self._inputs = session_inputs.SessionInputs(ask=ask)
        self.durations = instruments.SessionDurations()
        self._instruments = instruments.of_process() if measures is None else measures
        self._gauges_updated_at: datetime | None = None
        self._waiting_observed_at: datetime | None = None
        self._troubles = plugin_isolation.FailureHistory()
        self._failures: dict[str, str] = {}

    def reconfigure(self, configured: configuration.Configuration) -> None:
        """Use this configuration from the next session on. Call it in the core thread."""
        self._policy = msgspec.structs.replace(self._policy, configured=configured)
        self._configure()
        self.cache.request_session(self._own_event_id)

    def measure(self, measured: cluster_objects.MeasuredUsage | None) -> None:
        """Use these measurements from the next session on; None for none. Call it in the core
        thread."""
        if measured is not None:
            measured = msgspec.structs.replace(measured, at=self._clock.of(measured.at))
        self._inputs = msgspec.structs.replace(self._inputs, measured=measured)
        if measured is not None and self.cache.waiting:
            self.cache.request_session(self._own_event_id)

    def _configure(self) -> None:
        configured = self._policy.configured
        self.cache.model.set_default_queue(configured.default_queue)
        self.cache.sessions_may_evict = bool(
            policy.EVICTING_ACTIONS.intersection(configured.actions)
        )

    def lead(self, epoch: int, opened_at: int, ends: Mapping[str, int]) -> None:
        """Lead as the writer of this epoch. Call it in the core thread.

        Sessions run once the epoch's own ``opened`` record and all records before ``ends`` (topic
        -> offset) have been read: a session that sees decisions of the previous leader must also
        see the pods that they are based on.
        """
        self._epoch = epoch
        self._required_offsets = dict(ends)
        self.require_offset(opened_at)
        self.cache.request_session(self._own_event_id)

    @property
    def replaced_by(self) -> str:
        """Names the scheduler that opened the log after this one, and the offset of its record;
        empty if there is none."""
        has_successor = self._epoch is not None and self._opened_last > self._epoch
        return self._successor if has_successor else ""

    def require_offset(self, offset: int) -> None:
        """Run no session before the decision at this offset has been read back.

        A repeated append may have left a copy of it at a lower offset, which is read by then, too.
        """
        name = topics.DECISIONS.name
        self._required_offsets[name] = max(self._required_offsets.get(name, 0), offset + 1)

    def step(
        self, batches: Sequence[port.Batch], now: datetime, *, may_decide: bool, at_s: float = 0.0
    ) -> StepResult:
        """Apply the batches, and run a session if one is due and all conditions hold.

        ``at_s``: time of the clock that ``Batch.at_end`` uses, in seconds.
        """
        undecodable = [record for batch in batches for record in self._materialize(batch, now)]
        facts = self._health_problems(at_s)
        self._is_current = not any(facts.values())
        if now < self._decided_at:
            self._reset_timers()
        if self._epoch is None and now >= self._compact_at and self._is_current:
            self.cache.compact(self._compact_before)
            self._compact_at = now + self._sync_max_age
            self._compact_before = self.cache.offsets.get(topics.DECISIONS.name, 0)
        if self._wake_at is not None and now >= self._wake_at:
            self._wake_at = None
            self.cache.request_session(self._own_event_id)
        is_due = self._may_publish and bool(self.cache.session_cause)
        publication = self._decide(now) if is_due and may_decide else None
        self._report_isolated_objects()
        has_decided = publication is not None
        if self._may_publish:
            publication = self._with_republications(publication, now)
            publication = self._with_wanted_data(publication, now)
        if now - (self._waiting_observed_at or _EPOCH_START) >= GAUGE_INTERVAL:
            self._waiting_observed_at = now
            self._instruments.set_waiting(self.cache.explained.values(), self.cache.unanswered())
        return StepResult(
            undecodable=tuple(undecodable),
            facts=facts,
            warnings={"plugins": _lines(self._failures)},
            publication=publication,
            is_due=is_due and not has_decided,
            next_step_s=self._next_step_s(now),
        )

    def _reset_timers(self) -> None:
        """Reset timers if the clock was set back: their times may not be reached for hours."""
        self._compact_at = self._decided_at = _EPOCH_START
        self._wake_at = self._gauges_updated_at = self._waiting_observed_at = None
        self.cache.request_session(self._own_event_id)

    @property
    def _own_event_id(self) -> str:
        """Id of the cause of a session that no record triggered."""
        return envelope.event_id("scheduler", -1 if self._epoch is None else self._epoch, 0)

    def _next_step_s(self, now: datetime) -> float:
        """Seconds until the next step: the age of sync markers grows without records, too."""
        until = now + self._sync_max_age
        overdue_at = self.cache.assumed.overdue_at if self._may_publish else None
        return (min(until, self._wake_at or until, overdue_at or until) - now).total_seconds()

    # Applying records

    def _materialize(self, batch: port.Batch, now: datetime) -> Iterator[UndecodableRecord]:
        newest = self.cache.newest_creation
        for record in batch.records:
            reason = self._apply(record, batch.at_end)
            if reason:
                yield UndecodableRecord(record, reason)
        for record in batch.fenced:
            if record.topic == topics.DATA_WANTED:
                self.cache.apply(record)
            if record.topic == topics.EXPLANATIONS:
                self.cache.apply(record)  # replaces our record in the compacted topic
                if self.cache.model.job(record.key) is not None:
                    self.cache.model.changed.add(record.key)  # even if sessions skip the gang
                self.cache.request_session(record.id)
        created = self.cache.newest_creation
        is_live = batch.caught_up and self._is_current
        if created > newest and (is_live or created > self._clock.of(now)):
            self._clock.observe(created, now)
        read = batch.position
        self.cache.advance(read.positions, read.epochs, read.topic_ids)
        if batch.caught_up and not self._is_caught_up:
            self._is_caught_up = True
            self.cache.build()
            self.cache.request_session(self._own_event_id)

    def _apply(self, record: envelope.Record, at_end: Mapping[str, float]) -> str:
        if record.topic == topics.SYNC:
            self._sync.apply(record, at_end.get(topics.SYNC.name, -math.inf))
            return ""
        if record.type == log.OPENED and log.Opened in record.topic.messages:
            self._look_for_successor(record)
            return ""
        if record.topic in _NOTED_WHEN_PUBLISHED and record.epoch == self._epoch:
            return ""  # this scheduler's own records were noted when they were published
        return self.cache.apply(record)

    def _look_for_successor(self, record: envelope.Record) -> None:
        epoch = -1 if record.epoch is None else record.epoch
        if record.topic != topics.DECISIONS or epoch < self._opened_last:
            return
        try:
            message = envelope.decode(record)
        except errors.UndecodableError:
            message = None
        name = message.instance if isinstance(message, log.Opened) else "another scheduler"
        self._opened_last = epoch
        self._successor = f"{name} has led since offset {record.offset} of {record.topic.name}"

    def _health_problems(self, at_s: float) -> dict[str, str | None]:
        max_age_s = self._sync_max_age.total_seconds()
        missing = self._sync.missing(cluster_cache.KINDS, at_s, max_age_s, self.cache.offsets)
        competitors = self._sync.competitors(self._policy.scheduler_names)
        return {
            "start": None if self._is_caught_up else "materializing the log",
            "sync": "; ".join(missing) or None,
            "competitors": "; ".join(competitors) or None,
        }

    @property
    def _may_decide(self) -> bool:
        if self._epoch is None or self.replaced_by:
            return False
        offsets = self.cache.offsets
        return all(offsets.get(name, 0) >= end for name, end in self._required_offsets.items())

    @property
    def _may_publish(self) -> bool:
        return self._may_decide and self._is_current

    # Sessions

    def _decide(self, now: datetime) -> Publication:
        started = time.perf_counter()
        decided = schedule.run_session(
            self.cache,
            self._clock.of(now),
            self._policy,
            self._seed,
            inputs=self._inputs,
            find=self._find,
            plugin_failures=self._troubles,
            watched=self._run_watched,
            timed=self._instruments.timed,
            with_gauges=now - (self._gauges_updated_at or _EPOCH_START) >= GAUGE_INTERVAL,
        )
        publication = Publication(
            tuple(self._decisions(decided, now)), dict(self._explanations(decided, now))
        )
        for key, draft in publication.explanations.items():
            self.cache.record_explanation(key, draft.message)
        self.cache.wanted_data.prefetch(decided.prefetches)
        self.cache.finish_session(is_throttled=decided.is_throttled)
        wake_at = decided.wake_at and durations.after(decided.wake_at, -self._clock.offset)
        wakes = [at for at in (wake_at, self._update_gauges(decided, now)) if at]
        self._wake_at, self._decided_at = min(wakes, default=None), now
        seconds = time.perf_counter() - started
        binds = sum(len(statement.binds) for statement in decided.decisions)
        self._log_unknown_objects()  # only a session has settled which nodes are excluded
        self._log_complaints(decided.complaints)
        self._log_plugin_failures(dict(decided.failures))
        _session_seconds.record(seconds)
        self.durations.add(seconds)
        self._instruments.session(seconds)
        _binds.add(binds)
        if decided.record is not None:
            telemetry.log.info(
                "session",
                number=decided.record.session,
                gangs=len(decided.decisions),
                binds=binds,
                evictions=sum(len(statement.evictions) for statement in decided.decisions),
                waiting=len(self.cache.waiting),
                throttled=decided.is_throttled,
                seconds=round(seconds, 6),
                cause=decided.cause,
            )
        return publication

    def _with_republications(
        self, publication: Publication | None, now: datetime
    ) -> Publication | None:
        """The publication, preceded by the decisions that must be published again."""
        overdue = self.cache.assumed.overdue(now)
        if not overdue:
            return publication
        republished = [each.decision for each in overdue][:10]
        telemetry.log.warning("decisions republished", decisions=republished)
        _republished.add(len(overdue))
        drafts = tuple(
            envelope.Draft(
                topic=topics.DECISIONS,
                key=statement.pod_group,
                message=statement,
                time=now,
                cause=statement.decision,
            )
            for statement in overdue
        )
        if publication is None:
            return Publication(drafts, {})
        return Publication((*drafts, *publication.decisions), publication.explanations)

    def _with_wanted_data(
        self, publication: Publication | None, now: datetime
    ) -> Publication | None:
        """The publication, plus changes of the data sets that node caches should contain. A
        publication with decisions gets none: the data sets of its pods are known only when the
        decisions are read back."""
        if publication is not None and publication.decisions:
            return publication
        changes = self.cache.wanted_data.take_changes(self.cache.model)
        if not changes:
            return publication
        drafts = {
            f"{topics.DATA_WANTED.name} {node}": envelope.Draft(
                topic=topics.DATA_WANTED, key=node, message=message, time=now, cause=""
            )
            for node, message in changes.items()
        }
        if publication is None:
            return Publication((), drafts)
        return Publication(publication.decisions, publication.explanations | drafts)

    def _update_gauges(self, decided: schedule.SessionResult, now: datetime) -> datetime | None:
        """Export the gauges of the session. If it has no gauges, return when they are due."""
        if decided.gauges is None:
            return (
                None
                if self._gauges_updated_at is None
                else self._gauges_updated_at + GAUGE_INTERVAL
            )
        self._instruments.set_gauges(decided.gauges)
        self._gauges_updated_at = now
        return None

    def _report_isolated_objects(self) -> None:
        """Log and count each isolated object: each is a bug to report."""
        for isolated, error in self.cache.quarantine.unreported:
            kind = isolated.kind.kind
            about = {"kind": kind, "key": isolated.key, "uid": isolated.uid}
            telemetry.log.error("internal error isolated", **about, exc_info=error)
            _isolated.add(1, {"kind": kind})
        self.cache.quarantine.unreported.clear()

    def _log_complaints(self, complaints: tuple[str, ...]) -> None:
        """Log complaints that are new since the last session."""
        news = sorted(set(complaints) - self._logged_complaints)
        self._logged_complaints = set(complaints)
        if news:
            telemetry.log.warning("problems found by a session", problems=news)

    def _log_plugin_failures(self, failures: dict[str, str]) -> None:
        for name in failures.keys() ^ self._failures.keys():
            _failing.set(int(name in failures), {"plugin": name})
        self._failures = failures

    def _log_unknown_objects(self) -> None:
        """Log excluded nodes, and unreadable pods without a known node, when they change."""
        unknown = (self.cache.model.nodes.excluded, self.cache.model.unreadable.unplaced)
        if unknown != self._logged_unknown:
            self._logged_unknown = unknown
            telemetry.log.warning(
                "nodes or pods excluded", nodes=unknown[0], pods_of_unknown_nodes=unknown[1]
            )

    def _decisions(
        self, decided: schedule.SessionResult, now: datetime
    ) -> Iterator[envelope.Draft]:
        for statement in decided.decisions:
            group = self.cache.snapshot.get(kinds.POD_GROUPS, statement.pod_group)
            parent = group.metadata.annotation(keys.TRACEPARENT) if group else None
            created = group.metadata.creation_timestamp if group else None
            seen_at = self._clock.of(now)
            waited_s = None if created is None else (seen_at - created).total_seconds()
            self._instruments.decided(statement, waited_s)
            with telemetry.span(
                "decide", parent or "", pod_group=statement.pod_group, binds=len(statement.binds)
            ) as traceparent:
                yield envelope.Draft(
                    topic=topics.DECISIONS,
                    key=statement.pod_group,
                    message=statement,
                    time=now,
                    cause=decided.cause,
                    traceparent=traceparent,
                )
        if decided.record is not None:
            yield envelope.Draft(
                topic=topics.DECISIONS,
                key=messages.SESSION_KEY,
                message=decided.record,
                time=now,
                cause=decided.cause,
            )

    def _explanations(
        self, decided: schedule.SessionResult, now: datetime
    ) -> Iterator[tuple[str, envelope.Draft]]:
        explanation_by_key: dict[str, messages.PodGroupExplained | messages.QueueOrdered | None] = {
            **decided.explanations,
            **{
                messages.queue_order_key(order.queue, order.chunk): order
                for order in decided.orders
            },
        }
        for key, message in explanation_by_key.items():
            before = self.cache.explained.get(key)
            yield (
                key,
                envelope.Draft(
                    topic=topics.EXPLANATIONS,
                    key=key,
                    message=message,
                    time=now,
                    cause=decided.cause,
                    object_uid=before.pod_group_uid if message is None and before else "",
                ),
            )


def _lines(failures: dict[str, str]) -> str | None:
    return "\n".join(f"{name}: {why}" for name, why in failures.items()) or None
