"""The scheduler's cache of the cluster, built from topics.

Any interleaving of topics that keeps the order within each topic leads to the same cache.

The cache maintains the cluster model that sessions work on (``cluster.cluster_model``): objects as
the snapshots show them, plus the scheduler's own decisions until an outcome or a snapshot closes
them. A restart therefore knows what is in flight (see ``assume_cache``).

A node that cannot be read, or that has a pod that cannot be read, takes no pods. A gang is
neither scheduled nor evicted if its PodGroup, a member, its queue or priority class is unreadable.

``session_cause`` is the id of the first record since the last session that a session can act on.
Changes of status fields that no decision depends on, and gangs that lack pods, do not count (see
``triggers``).
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from stromboli.scheduler.core.cache import (
    claim_cache,
    gang_objects,
    inflight_limit,
    node_rejections,
    pod_plans,
    quarantine,
    triggers,
    unschedulable,
)
from stromboli.scheduler.core.cache.data_sets import node_reports, wanted_data
from stromboli.scheduler.core.cache.in_flight import assume_cache, assumptions, observations
from stromboli.scheduler.core.cluster import cluster_model
from stromboli.scheduler.core.framework import session_inputs
from stromboli.scheduler.core.model import job_builder
from stromboli.shared import envelope, errors, queue_order, snapshot, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.api import scheduling_view as api_seen
from stromboli.shared.messages import cluster
from stromboli.shared.messages import scheduling as messages

KINDS = api_seen.SCHEDULING_KINDS
"""Kinds that the monitor must have listed before a session may decide anything."""

_MESSAGE_TOPICS = (
    topics.DECISIONS,
    topics.OUTCOMES,
    topics.EXPLANATIONS,
    topics.BATCH_PLANS,
    *node_reports.TOPICS,
)
"""Topics whose records are messages, not snapshots of objects."""
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
_MakeModel = Callable[[tuple[str, ...], str], cluster_model.ClusterModel]


class ClusterCache:
    """Everything that a session decides on. ``apply`` is O(1), for a node O(resources)."""

    def __init__(
        self,
        scheduler_names: tuple[str, ...],
        default_queue: str = "default",
        *,
        is_deferred: bool = False,
        make_model: _MakeModel = cluster_model.ClusterModel,
    ) -> None:
        """``is_deferred``: leave pods and PodGroups out of the model until ``build``, which halves
        the time to read a log from its start."""
        self.snapshot = snapshot.Snapshot()
        self.quarantine = quarantine.Quarantine(self.snapshot)
        self._make_model = make_model
        self.model = make_model(scheduler_names, default_queue)
        self.assumed = assume_cache.AssumeCache(
            functools.partial(observations.observe, self.snapshot)
        )
        self.claims = claim_cache.ClaimCache(self.quarantine, self.assumed, self.model.auxiliary)
        self.plans = pod_plans.PodPlans()
        self.wanted_data = wanted_data.WantedData()
        self.rejected_pods = node_rejections.RejectedPods()
        self.in_flight_limit = inflight_limit.InFlightLimit()
        self.unschedulable_gangs = unschedulable.UnschedulableGangs()
        self.explained: dict[str, messages.PodGroupExplained] = {}
        self.ordered = queue_order.QueueOrders()
        self.memory: dict[str, str] = {}
        self.measured_at: datetime | None = None
        """Time of the newest measurements that a session's record contains."""
        self.offsets: dict[str, int] = {}
        self._epochs: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        self.sessions = 0
        self.session_cause = ""
        self.newest_creation = _EPOCH_START
        """Creation time of the newest object ever seen, by the API server's clock."""
        self.waiting: set[str] = set()
        self.sessions_may_evict = False
        """Whether an action evicts. If so, a pod that starts to run triggers a session."""
        self._scheduler_names = scheduler_names
        self._gang_objects = gang_objects.GangObjects(
            self.snapshot, self.quarantine, self.assumed, self.plans, scheduler_names
        )
        self._is_deferred = is_deferred
        self._is_throttled, self._cause = False, ""

    # Records

    def apply(self, record: envelope.Record) -> str:
        """Apply one record; a record of another topic changes nothing. Return the reason if the
        record cannot be decoded, for the dead-letter topic; else empty."""
        name = record.topic.name
        self.offsets[name] = max(record.offset + 1, self.offsets.get(name, 0))
        self._cause = record.id or name
        if record.topic in _MESSAGE_TOPICS:
            try:
                self._apply_message(record, envelope.decode(record))
            except errors.UndecodableError as error:
                self._observe_node(record, None)
                self._apply_plan(record, None)
                if record.topic == topics.DECISIONS:
                    self.assumed.put_undecodable(record.offset, record.key, error.reason)
                    self._refresh_freeze(record.key)
                return error.reason
            finally:
                self._note_read()
            return ""
        change = self.snapshot.apply(record)
        self.assumed.note_version(observations.pod_version(record, change))
        if change is None:
            self._close_vanished()  # a deletion may be all that compaction has left of a pod
            return ""
        self._apply_isolated(change)
        if isinstance(change.after, snapshot.Unknown) and record.type != cluster.UNREADABLE:
            return change.after.reason
        return ""

    def advance(
        self,
        positions: Mapping[str, int],
        epochs: Mapping[str, int] | None = None,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Note the positions that have been read, with or without records.

        ``epochs``: topic -> highest epoch before its position. ``topic_ids``: topic -> its id,
        which changes when the topic is deleted and created again.
        """
        self.offsets.update(positions)
        self._epochs.update(epochs or {})
        self.topic_ids.update(topic_ids or {})
        self._note_read()

    def assume(self, id_: str, offset: int, statement: messages.StatementDecided) -> None:
        """Assume a decision of this scheduler. Its record changes nothing when it is read back. It
        triggers no session: the session that made the decision has considered its effects.
        """
        self._cause = ""
        self.sessions = max(self.sessions, statement.session)
        for changed in self.assumed.put(id_, offset, statement):
            self.refresh_statement(changed)

    def record_explanation(self, key: str, message: msgspec.Struct | None) -> None:
        """Note the newest message of a key on the explanations topic."""
        match message:
            case messages.PodGroupExplained():
                self.explained[key] = message
            case messages.QueueOrdered():
                self.ordered.put(message)
            case _:
                self.explained.pop(key, None)

    def request_session(self, cause: str) -> None:
        """Request a session; the first cause since the last session is kept."""
        self.session_cause = self.session_cause or cause

    def finish_session(self, *, is_throttled: bool) -> None:
        """Note that a session has considered all changes. All topics must be caught up.

        ``is_throttled``: the in-flight limit kept the session from deciding more, so that the next
        outcome triggers a session.
        """
        self.session_cause = ""
        self._is_throttled = is_throttled
        if self.settle() and self.waiting:
            self.request_session(self._cause or topics.DECISIONS.name)

    def compact(self, before: int) -> None:
        """Drop the data that a standby collects for its next session, which may be months away.

        Decisions below the offset ``before`` must be old enough that all their pods are visible.
        """
        self.model.settle()
        self.model.changed &= self.model.jobs.keys()
        self.settle(before)

    def settle(self, before: float = math.inf) -> bool:
        """See ``AssumeCache.settle``. Returns whether claims were released."""
        self.assumed.settle(before)
        return self.claims.refresh()

    def _note_read(self) -> None:
        self.assumed.read_to(self.offsets.get(topics.DECISIONS.name, 0))

    # Reading

    def unanswered(self) -> int:
        """Number of binds and evictions that the controller has not executed yet. O(1)."""
        return self.assumed.unanswered

    def restart_from(self) -> tuple[int, int]:
        """Offsets of decisions and outcomes from which a restart reads everything that is open."""
        read = (self.offsets.get(each.name, 0) for each in (topics.DECISIONS, topics.OUTCOMES))
        return self.assumed.restart_from(*read)

    def epochs_before(self, decisions: int, outcomes: int) -> dict[str, int]:
        """Epochs that a restart from these offsets needs (``SessionRecorded.epochs_seen``)."""
        starts = {topics.DECISIONS.name: decisions, topics.OUTCOMES.name: outcomes}
        return {
            name: self._epochs[name]
            for name, start in starts.items()
            if name in self._epochs and start >= self.offsets.get(name, 0)
        }

    # Messages

    def _apply_message(self, record: envelope.Record, message: msgspec.Struct | None) -> None:
        match message:
            case messages.StatementDecided():
                self.assume(record.id, record.offset, message)
            case messages.SessionRecorded():
                if message.session >= self.sessions:
                    self.memory = dict(message.memory)
                    measured_at = session_inputs.measured_at(message.answers)
                    self.measured_at = measured_at or self.measured_at
                self.sessions = max(self.sessions, message.session)
                self.assumed.record_session(message.offsets.get(topics.OUTCOMES.name, 0))
            case messages.DecisionAnswered():
                self.in_flight_limit.record_outcome(record.time, len(message.tasks))
                statement = self.assumed.answer(message, record.offset)
                if statement is not None:
                    self.refresh_statement(statement)
                for key in self.assumed.undecodable.take_answered():
                    self._refresh_freeze(key)
                if self._is_throttled or self.assumed.has_refused_start(message.pod_group):
                    self._request_session()
            case _ if record.topic == topics.EXPLANATIONS:
                self.record_explanation(record.key, message)
            case _:
                self._observe_node(record, message)
                self._apply_plan(record, message)

    def _observe_node(self, record: envelope.Record, message: msgspec.Struct | None) -> None:
        """Keep a report of a node's agent or cache; an unreadable one removes the previous one."""
        if node_reports.put(self.model.auxiliary, self.wanted_data, record, message):
            self._request_session_if_waiting()

    def _apply_plan(self, record: envelope.Record, message: msgspec.Struct | None) -> None:
        if record.topic == topics.BATCH_PLANS:
            if record.key in self.plans.awaited:
                self._request_session()
            for key in self.plans.put(record.key, message):
                if self.assumed.bind_of(key) is not None:
                    self._refresh_pod(key)

    def refresh_statement(self, statement: messages.StatementDecided) -> None:
        """Update the model after a change of this statement."""
        of: list[messages.Bind | messages.Eviction] = [*statement.binds, *statement.evictions]
        for part in of:
            self._refresh_pod(assumptions.pod_key(part))
        if self.claims.refresh(*statement.binds):
            self._request_session_if_waiting()
        self._refresh_group(statement.pod_group)

    # Failures

    def isolate(self, error: Exception) -> None:
        """Isolate the objects that a failed session worked on (see ``quarantine``). O(cluster).
        Raises InvariantError if no object can be blamed."""
        if isinstance(error, errors.InvariantError):
            raise error
        blamed = quarantine.suspects(error)
        isolated = [
            self.quarantine.isolate(at, error, by_session=True) for at in dict.fromkeys(blamed)
        ]
        if not any(isolated):
            raise self.quarantine.invariant_error("a session failed", error) from error
        self.rebuild()

    def _apply_isolated(self, change: snapshot.Change) -> None:
        released = self.quarantine.follow(change)
        if released is not None:
            change = msgspec.structs.replace(change, before=None)
        try:
            self._apply_change(change)
        except Exception as error:
            self._isolate((change.kind, change.key), error)
            self.rebuild()

    def _isolate(self, at: quarantine.Key, error: Exception) -> None:
        is_ours = isinstance(error, errors.InvariantError)
        if is_ours or not self.quarantine.isolate(at, error, by_session=False):
            doing = f"{at[0].kind} {at[1]} cannot be applied"
            raise self.quarantine.invariant_error(doing, error) from error

    def build(self) -> None:
        """Add all pods and PodGroups to the model. O(cluster)."""
        self._is_deferred = has_failed = False
        for at in self._gang_objects:
            try:
                self._gang_objects.put(self.model, at)
            except Exception as error:
                self._isolate(at, error)
                has_failed = True
        if has_failed:
            self.rebuild()
        else:
            self._finish_build()

    def rebuild(self) -> None:
        """Build the cluster model again from the snapshots and open decisions. O(cluster)."""
        before = self.model
        self.model = self._make_model(self._scheduler_names, before.default_queue)
        self.model.auxiliary.keep_reports(before.auxiliary)
        self.claims = claim_cache.ClaimCache(self.quarantine, self.assumed, self.model.auxiliary)
        self.unschedulable_gangs = unschedulable.UnschedulableGangs()
        try:
            for kind in api_seen.SCHEDULING_KINDS:
                for key in () if kind in gang_objects.KINDS else self.snapshot.keys(kind):
                    after = self.snapshot.state(kind, key)
                    self._apply_change(snapshot.Change(kind, key, None, after))
            if not self._is_deferred:
                for at in self._gang_objects:
                    self._gang_objects.put(self.model, at)
                self._finish_build()
        except Exception as error:
            doing = "the cluster model cannot be rebuilt"
            raise self.quarantine.invariant_error(doing, error) from error
        self.request_session(self._cause)

    def _finish_build(self) -> None:
        """Add planned pods, which have no snapshots yet, and find the gangs that wait."""
        for statement in self.assumed.statements():
            self.refresh_statement(statement)
        self._settle_references()
        self._update_all_waiting(self.snapshot.keys(kinds.POD_GROUPS))

    # Snapshots

    def _apply_change(self, change: snapshot.Change) -> None:
        if isinstance(change.after, meta.Object):
            created = change.after.metadata.creation_timestamp or _EPOCH_START
            self.newest_creation = max(self.newest_creation, created)
        match change.kind:
            case kinds.PODS:
                self._gang_objects.note(change)
                if self.rejected_pods.put(change.key, change.after):
                    self._request_session()
                self._observe_pod(change)
                self._refresh_pod(change.key)
            case kinds.POD_GROUPS:
                self.assumed.observe_pod_group(change.key)
                self._refresh_group(change.key)
            case kinds.NODES:
                self._apply_to_model(change, "node")
            case kinds.QUEUES:
                if triggers.queue_fingerprint(change.before) != triggers.queue_fingerprint(
                    change.after
                ):
                    self._apply_to_model(change, "queue")
                    self._update_all_waiting(self.model.jobs_of(change.key))
            case kinds.PRIORITY_CLASSES:
                self._update_all_waiting(self._apply_to_model(change, "priority_class") or ())
            case kinds.HYPER_NODES if triggers.hyper_node_fingerprint(
                change.before
            ) == triggers.hyper_node_fingerprint(change.after):
                pass  # only the status changed, on which no decision depends
            case (
                kinds.HYPER_NODES
                | kinds.NUMA_TOPOLOGIES
                | kinds.RESOURCE_QUOTAS
                | kinds.DISRUPTION_BUDGETS
                | kinds.NODE_SHARDS
            ):
                self._apply_cluster_resource(change)
            case kinds.ADVANCE_RESERVATIONS:
                self._apply_cluster_resource(change)
                self._request_session()  # the session evicts, or sets a timer for the evictions
            case kind if kind in api_seen.CLAIM_KINDS:
                self.claims.observe(kind, change.key)
                self._request_session_if_waiting()
            case kinds.NAMESPACES:
                state = change.after
                labels = state.metadata.labels or {} if isinstance(state, meta.Object) else None
                if self.model.label_namespace(change.key, labels):
                    self._request_session_if_waiting()
        self._settle_references()

    def _settle_references(self) -> None:
        """Update claims, and pods and PodGroups refused because of too many unknown resources."""
        if self.claims.refresh():
            self._request_session_if_waiting()
        for owner, key in self.model.resources.take_retriable():
            (self._refresh_pod if owner == "pod" else self._refresh_group)(key)

    def _observe_pod(self, change: snapshot.Change) -> None:
        before = self.unanswered()
        self.assumed.observe_pod(change.key)
        self._close_vanished()
        if self._is_throttled and self.unanswered() < before:
            self._request_session()

    def _close_vanished(self) -> None:
        for key in self.assumed.close_vanished():
            self._refresh_pod(key)

    def _apply_to_model(self, change: snapshot.Change, kind: str) -> Any:
        """Apply the change to the cluster model; return what the model's method returns."""
        after: Any = self.quarantine.state(change.kind, change.key)
        self._request_session_if_waiting()
        if after is None:
            return getattr(self.model, f"remove_{kind}")(change.key)
        if isinstance(after, snapshot.Unknown):
            return getattr(self.model, f"put_unreadable_{kind}")(change.key, after.reason)
        return getattr(self.model, f"put_{kind}")(after)

    def _apply_cluster_resource(self, change: snapshot.Change) -> None:
        cluster_resources, struct = self.model.auxiliary, change.kind.struct
        match self.quarantine.state(change.kind, change.key):
            case None:
                cluster_resources.remove(struct, change.key)
            case snapshot.Unknown(reason=reason):
                cluster_resources.put_unreadable(struct, change.key, reason)
            case state:
                cluster_resources.put(state)
        self._request_session_if_waiting()

    def _refresh_group(self, key: str) -> None:
        """Update the job. Request a session if decisions depend on the change."""
        if self._is_deferred:
            return
        before = triggers.job_fingerprint(self.model.job(key))
        is_frozen_or_released = self._gang_objects.put_group(self.model, key)
        after = triggers.job_fingerprint(self.model.job(key))
        if is_frozen_or_released or before != after or self.model.job(key) is None:
            self._update_waiting(key)
        if before != after and triggers.releases_reserved_room(before, after):
            self._request_session_if_waiting()

    def _refresh_freeze(self, key: str) -> None:
        if self._gang_objects.freeze(self.model, key):
            self._update_waiting(key)

    def _refresh_pod(self, key: str) -> None:
        """Update the task, and request a session if decisions depend on the change."""
        if self._is_deferred:
            return
        before, group = self._placement_of(key), self._job_key_of(key)
        known = triggers.task_fingerprint(self.model, key)
        self._gang_objects.put_pod(self.model, key)
        has_moved = before != self._placement_of(key)
        if has_moved and (before is not None or triggers.may_attract(self.model, key)):
            self._request_session_if_waiting()
        if known != triggers.task_fingerprint(self.model, key):
            self._update_all_waiting({group, self._job_key_of(key)} - {""})

    def _placement_of(self, key: str) -> triggers.PodPlacement | None:
        return triggers.placement_of(self.model, key, with_status=self.sessions_may_evict)

    def _job_key_of(self, key: str) -> str:
        task = self.model.tasks.get(key)
        return task.job if task is not None else self.model.unreadable.job_of(key)

    # Waiting gangs and triggers

    def _update_all_waiting(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._update_waiting(key)

    def _update_waiting(self, key: str) -> None:
        """Note whether the gang waits, and request a session that can act on it."""
        job = self.model.job(key)
        is_unreadable = job is None and ("podgroup", key) in self.model.problems
        if is_unreadable or (job is not None and job_builder.needs_session(job)):
            self.waiting.add(key)
            if job is None or triggers.is_actionable(job, self.explained.get(key)):
                self._request_session()
        elif key in self.waiting:
            self.waiting.discard(key)
            if key in self.explained:
                self._request_session()

    def _request_session(self) -> None:
        self.request_session(self._cause)  # empty while decisions are assumed: no trigger

    def _request_session_if_waiting(self) -> None:
        if self.waiting:
            self._request_session()
