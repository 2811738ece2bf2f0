"""A log, the cache built from it, and the outcomes of a controller."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from stromboli.scheduler.core import policy, schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.shared import envelope, topics
from stromboli.shared.api import meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

POLICY = policy.Policy()


class SchedulerHarness:
    """A log and the cache built from it. Decisions of sessions are appended to the log."""

    def __init__(self, records: Sequence[envelope.Record] = ()) -> None:
        self.log = topic_log.TopicLog()
        self.cache = cluster_cache.ClusterCache(POLICY.scheduler_names)
        self.parked: list[str] = []
        for record in records:
            self.apply(record)

    def apply(self, *records: envelope.Record) -> None:
        for record in records:
            reason = self.cache.apply(record)
            if reason:
                self.parked.append(reason)

    def see(self, *objects: meta.Object) -> None:
        self.apply(*self.log.see(*objects))

    def lose(self, *objects: meta.Object) -> None:
        """Delete the objects."""
        self.apply(*self.log.lose(*objects))

    def session(
        self, now: datetime = builders.NOON, by: policy.Policy = POLICY, **given: Any
    ) -> schedule.SessionResult:
        """Run a session and read its decisions back from the log. ``given``: further arguments of
        ``run_session``."""
        decided = schedule.run_session(self.cache, now, by, **given)
        drafts: list[tuple[str, msgspec.Struct]] = [
            (known.pod_group, known) for known in decided.decisions
        ]
        if decided.record is not None:
            drafts.append((messages.SESSION_KEY, decided.record))
        for key, message in drafts:
            self.apply(self.log.append(draft(topics.DECISIONS, key, message)))
        for key, explained in decided.explanations.items():
            self.cache.record_explanation(key, explained)
        self.cache.finish_session(is_throttled=decided.is_throttled)
        return decided

    @property
    def statements(self) -> list[envelope.Record]:
        """Statements in the order of the log."""
        return [
            record
            for record in self.log.records
            if record.topic == topics.DECISIONS and record.key != messages.SESSION_KEY
        ]

    def answer(
        self,
        result: messages.Result,
        *pods: str,
        decision: int = -1,
        claims: Sequence[meta.Object] = (),
    ) -> None:
        """Append an outcome: ``result`` for these pods, ``executed`` for the others. ``claims``:
        ResourceClaims that it names, in these versions."""
        self.apply(self.log.append(answer(self.statements[decision], result, *pods, claims=claims)))

    def used_cpu(self, node: str = "n1") -> int:
        self.cache.model.settle()
        nodes = self.cache.model.nodes
        return int(nodes.used[0, nodes.rows[node]]) if node in nodes.rows else 0


def draft(topic: topics.Topic, key: str, message: msgspec.Struct) -> envelope.Draft:
    return envelope.Draft(topic=topic, key=key, message=message, time=builders.NOON)


def answer(
    decision: envelope.Record,
    result: messages.Result,
    *pods: str,
    claims: Sequence[meta.Object] = (),
) -> envelope.Draft:
    statement = envelope.decode(decision)
    assert isinstance(statement, messages.StatementDecided)
    tasks = tuple(
        messages.TaskOutcome(
            namespace=bind.namespace,
            pod=bind.pod,
            uid=bind.uid,
            result=result if bind.pod in pods else "executed",
        )
        for bind in statement.binds
    )
    message = messages.DecisionAnswered(
        decision=statement.decision or decision.id,
        decision_offset=decision.offset,
        pod_group=statement.pod_group,
        enqueue="executed" if statement.enqueue else None,
        tasks=tasks,
        claims=tuple(
            messages.ClaimOutcome(
                namespace=each.metadata.namespace,
                claim=each.metadata.name,
                uid=each.metadata.uid,
                version=each.metadata.version,
            )
            for each in claims
        ),
    )
    return draft(topics.OUTCOMES, decision.id, message)


def answer_to_undecodable(decision: envelope.Record) -> envelope.Draft:
    """What the controller answers to a decision that it cannot decode."""
    message = messages.DecisionAnswered(
        decision=decision.id, decision_offset=decision.offset, pod_group=decision.key
    )
    return draft(topics.OUTCOMES, decision.id, message)


def fold(records: Sequence[envelope.Record]) -> cluster_cache.ClusterCache:
    """The cache built from these records, as at a start: the model is built at the end. It equals
    the model of a harness, which follows each record."""
    cache = cluster_cache.ClusterCache(POLICY.scheduler_names, is_deferred=True)
    for record in records:
        cache.apply(record)
    cache.build()
    return cache
