"""A scheduler in virtual time: runs sessions on a cache of its own.

Objects reach the cache as records of the snapshot topics, encoded and decoded as in the service.
Decisions are assumed like published decisions in the service, and count as executed from the next
session on. Without outcomes the cache would keep all of them, and an admission as long as its
PodGroup exists.
"""

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from stromboli.scheduler.core import policy, schedule
from stromboli.scheduler.core.cache import cluster_cache, lapsed_admissions
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import opening, plugin_isolation, session_inputs
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import envelope, keys, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.messages import data
from stromboli.shared.messages import scheduling as messages

_KINDS: dict[type[meta.Object], kinds.Kind[Any]] = {
    kind.struct: kind for kind in cluster_cache.KINDS
}
T = TypeVar("T", bound=meta.Object)
_CLUSTER = "simulation"
_NO_LIMIT = session_inputs.SessionInputs(decision_limit=10**9)
"""Decisions are executed immediately, so no decision in flight limits a session."""


class Scheduler:
    """The cache and the sessions of one simulation. ``seed``: the seed of the sessions."""

    def __init__(
        self,
        configured: configuration.Configuration,
        find: opening.FindPlugin,
        seed: int = 0,
        scheduler_names: tuple[str, ...] = policy.Policy().scheduler_names,
    ) -> None:
        self._policy = policy.Policy(configured=configured, scheduler_names=scheduler_names)
        self._seed = seed
        self._find = find
        self._failures = plugin_isolation.FailureHistory()
        self._offsets: dict[str, int] = {}
        self._versions = 0
        self._decisions = 0
        self._admissions: list[tuple[str, int, messages.StatementDecided]] = []
        """Id, offset and statement of the last session's decisions that admit a gang."""
        self.cache = cluster_cache.ClusterCache(self._policy.scheduler_names)
        self.cache.model.set_default_queue(configured.default_queue)
        actions = configured.actions
        self.cache.sessions_may_evict = bool(policy.EVICTING_ACTIONS.intersection(actions))
        self.enqueues = "enqueue" in actions
        """Whether jobs must be admitted to their queue before their pods are created."""
        self.sessions = 0
        self.wake_at: datetime | None = None
        self.gauges: tuple[extension_points.Gauge, ...] = ()
        """The gauges of the last session that computed them."""
        self.waiting_by_tier: dict[str, int] = {}
        """Tier of the reason -> number of jobs that wait for this reason."""

    @property
    def is_due(self) -> bool:
        """Whether anything changed that a session can act on."""
        return bool(self.cache.session_cause)

    def request_session(self) -> None:
        """Request a session without a change, because a requested time is reached."""
        self.cache.request_session("time")

    def put(self, obj: T, at: datetime) -> T:
        """Apply an object as if the monitor had observed it. Sets its version. Returns the object
        that the cache keeps."""
        self._versions += 1
        stamped = _without_plan(_with_version(obj, str(self._versions)))
        kind: kinds.Kind[T] = _KINDS[type(obj)]
        key, topic = obj.metadata.key, topics.SNAPSHOTS[kind]
        self._fold(envelope.Draft(topic=topic, key=key, message=stamped, time=at))
        kept = self.cache.snapshot.get(kind, key)
        return obj if kept is None else kept

    def remove(self, obj: meta.Object, at: datetime) -> None:
        """Apply the deletion of an object as if the monitor had observed it."""
        self._versions += 1
        self._fold(
            envelope.Draft(
                topic=topics.SNAPSHOTS[_KINDS[type(obj)]],
                key=obj.metadata.key,
                message=None,
                time=at,
                object_uid=obj.metadata.uid,
                object_version=str(self._versions),
            )
        )

    def report_data(self, report: data.DataObserved, at: datetime) -> None:
        """Apply the report of a node's cache of data sets."""
        self._fold(envelope.Draft(topic=topics.DATA, key=report.node, message=report, time=at))

    def wanted_data(self) -> dict[str, data.DataWanted | None]:
        """Node -> the data sets that its cache should contain, for nodes where that changed since
        the last call."""
        return self.cache.wanted_data.take_changes(self.cache.model)

    def decide(
        self, at: datetime, *, with_gauges: bool = False
    ) -> tuple[messages.StatementDecided, ...]:
        """Run a session, assume its decisions and return them. ``with_gauges``: set ``gauges``.

        Another session is due immediately if admitted gangs lost or regained their reservation,
        since virtual time may have no other event.
        """
        cache = self.cache
        self._answer_decisions()
        lapsed = cache.memory.get(lapsed_admissions.NAME, "")
        decided = schedule.run_session(
            cache,
            at,
            self._policy,
            self._seed,
            inputs=_NO_LIMIT,
            find=self._find,
            plugin_failures=self._failures,
            with_gauges=with_gauges,
        )
        self.sessions += 1
        self.gauges = decided.gauges or ()
        for statement in decided.decisions:
            self._decisions += 1
            id_ = envelope.event_id("scheduler", 0, self._decisions)
            cache.assume(id_, self._decisions, statement)
            if statement.enqueue:
                self._admissions.append((id_, self._decisions, statement))
        if decided.record is not None:
            cache.memory = dict(decided.record.memory)
        for key, explanation in decided.explanations.items():
            self._count_reason(key, -1)
            cache.record_explanation(key, explanation)
            self._count_reason(key, 1)
        for order in decided.orders:
            cache.record_explanation("", order)
        cache.wanted_data.prefetch(decided.prefetches)
        cache.finish_session(is_throttled=decided.is_throttled)
        self.wake_at = decided.wake_at
        if cache.memory.get(lapsed_admissions.NAME, "") != lapsed:
            self.request_session()
        return decided.decisions

    def _answer_decisions(self) -> None:
        """Count all decisions so far as executed.

        Binds and evictions need no outcome, because the cache observes their pods. An admission is
        open until its outcome (rule 2 of ``assumption_states``).
        """
        self.cache.assumed.read_to(self._decisions + 1)
        for id_, offset, statement in self._admissions:
            self.cache.assumed.answer(_executed(id_, offset, statement), 0)
        self._admissions.clear()
        answer = messages.DecisionAnswered(
            decision="", decision_offset=-1, pod_group="", unanswered_from=self._decisions + 1
        )
        self.cache.assumed.answer(answer, 0)

    def reason(self, key: str) -> tuple[str, str]:
        """Tier and text of the explanation of a PodGroup; empty if there is none."""
        explanation = self.cache.explained.get(key)
        return ("", "") if explanation is None else (explanation.tier, explanation.message)

    def total(self) -> dict[str, float]:
        """Allocatable resources of all nodes, in the session's units."""
        model = self.cache.model
        amounts = model.nodes.allocatable.sum(axis=1).tolist()
        return dict(zip(model.resources.names, amounts, strict=True))

    def _count_reason(self, key: str, change: int) -> None:
        explanation = self.cache.explained.get(key)
        if explanation is not None:
            self.waiting_by_tier[explanation.tier] = (
                self.waiting_by_tier.get(explanation.tier, 0) + change
            )

    def _fold(self, draft: envelope.Draft) -> None:
        name = draft.topic.name
        offset = self._offsets.get(name, 0)
        self._offsets[name] = offset + 1
        headers, value = envelope.seal(
            draft, draft.topic.writer or "monitor", 0, offset, cluster_name=_CLUSTER
        )
        problem = self.cache.apply(envelope.Record(draft.topic, offset, draft.key, value, headers))
        if problem:
            raise ValueError(f"{draft.key}: {problem}")


def is_read(obj: meta.Object) -> bool:
    """Whether the scheduler reads objects of this kind."""
    return type(obj) in _KINDS


def _executed(
    id_: str, offset: int, statement: messages.StatementDecided
) -> messages.DecisionAnswered:
    """The outcome of a decision whose parts were all executed."""
    parts: tuple[messages.Bind | messages.Eviction, ...] = (*statement.binds, *statement.evictions)
    return messages.DecisionAnswered(
        decision=id_,
        decision_offset=offset,
        pod_group=statement.pod_group,
        enqueue="executed",
        tasks=tuple(
            messages.TaskOutcome(
                namespace=each.namespace, pod=each.pod, uid=each.uid, result="executed"
            )
            for each in parts
        ),
    )


def _with_version(obj: T, version: str) -> T:
    stamped = msgspec.structs.replace(obj.metadata, resource_version=version)
    result: T = msgspec.structs.replace(obj, metadata=stamped)
    return result


def _without_plan(obj: meta.Object) -> meta.Object:
    """The object without the announcement of a plan: sessions would wait for the plan, and no
    controller publishes plans in virtual time."""
    if obj.metadata.annotation(keys.PLAN_FOLLOWS) is None:
        return obj
    kept = dict(obj.metadata.annotations or {})
    del kept[keys.PLAN_FOLLOWS]
    metadata = msgspec.structs.replace(obj.metadata, annotations=kept)
    return msgspec.structs.replace(obj, metadata=metadata)
