"""The assume cache: decisions that are published and not confirmed, and the room they hold.

``assumption_states`` defines the states of an assumption, its events and the rules. This
module finds the assumptions that a record is about and applies the event; every lookup is by key,
and a decision of n tasks costs O(n) in all, whatever else is in flight.

A repeated append leaves the same statement under two ids: what both assume is held as long as one
of them is open.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from stromboli.scheduler.core.cache.in_flight import (
    outcome_log,
    refusals,
    republication,
    undecodable,
)
from stromboli.scheduler.core.cache.in_flight.assumption_states import Event, State
from stromboli.scheduler.core.cache.in_flight.assumptions import (
    Assumption,
    Decision,
    Effect,
    Place,
    Rank,
    claim_key,
    decision_of,
    parts_of,
    places_of,
    pod_key,
    rank_of,
)
from stromboli.scheduler.core.cache.in_flight.observations import Observation
from stromboli.shared.api import resource
from stromboli.shared.messages import scheduling

K = TypeVar("K", bound=Hashable)
Observe = Callable[[Assumption], Observation]
"""Observes the effect of an assumption in the snapshots."""


class AssumeCache:
    """Open assumptions by the pod, claim or PodGroup that they are about."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._decisions: dict[str, Decision] = {}
        self._unanswered: dict[str, Decision] = {}  # closed by snapshots before their outcome
        self._unanswered_offsets: list[tuple[int, str]] = []
        self._by_object: dict[Place, dict[Assumption, None]] = {}
        self._by_volume: dict[str, dict[Assumption, None]] = {}
        self._absent: dict[Assumption, None] = {}
        self._costly: set[Place] = set()
        self._outcomes = outcome_log.OutcomeLog()
        self.undecodable = undecodable.UndecodableDecisions()
        self._offsets: list[tuple[int, str]] = []
        self._republications = republication.RepublicationSchedule()
        self._last: Rank = (-1, -1)
        self._refusals = refusals.Refusals()
        self._newest_pod = 0
        self._created: list[tuple[int, int, Assumption]] = []
        self._numbers = itertools.count()
        self._released: list[scheduling.Bind] = []

    def __len__(self) -> int:
        """How many decisions are open."""
        return len(self._decisions)

    # Records

    def put(
        self, id_: str, offset: int, statement: scheduling.StatementDecided
    ) -> tuple[scheduling.StatementDecided, ...]:
        """Assume a published decision; return the statements that this changes, if any.

        ``id_``: id of the record. O(tasks of the statement).
        """
        rank = rank_of(statement.decision or id_)
        if rank is None:
            return ()
        replaced: tuple[scheduling.StatementDecided, ...] = ()
        if statement.decision:
            known = self._decisions.get(statement.decision)
            if known is not None and known.offset >= offset:
                return ()
            self._refusals.withdraw(statement.pod_group, statement.decision)
            if known is not None:
                self._republish(known)
                replaced = (known.statement,)
        elif rank <= self._last:
            return ()
        self._last = max(self._last, rank)
        self._unanswered.pop(statement.decision, None)
        decision = decision_of(statement.decision or id_, offset, statement)
        self._decisions[decision.id] = decision
        heapq.heappush(self._offsets, (offset, decision.id))
        self._republications.add(decision)
        for assumption in list(decision.open.values()):
            self._add(assumption)
        early = self._outcomes.early(offset)
        if early is not None and early[1].decision == decision.id:
            self._answer(decision, early[1], early[0])
        self._close_if_over(decision)
        return (*replaced, statement)

    def put_undecodable(self, offset: int, pod_group: str, reason: str) -> None:
        """Note a decision that cannot be decoded, unless it has an outcome already."""
        if offset >= self._outcomes.answered_below and self._outcomes.early(offset) is None:
            self.undecodable.put(offset, pod_group, reason)

    def answer(
        self, answer: scheduling.DecisionAnswered, offset: int
    ) -> scheduling.StatementDecided | None:
        """Apply an outcome; return the statement that it changes, if any. O(its tasks)."""
        self._outcomes.note(offset, answer, self._first_open())
        decision = self._decisions.get(answer.decision) or self._unanswered.get(answer.decision)
        changed = None
        if decision and not decision.is_answered and decision.offset == answer.decision_offset:
            self._answer(decision, answer, offset)
            changed = decision.statement
        self.undecodable.answer(answer.decision_offset, self._outcomes.answered_below)
        self._drop_lost()
        return changed

    def read_to(self, offset: int) -> None:
        """Note that all decisions below this offset have been read."""
        self._outcomes.read_to(offset)

    # Snapshots

    def observe_pod(self, key: str) -> None:
        """Check the assumptions about a pod after a change of its snapshot. O(assumptions)."""
        self._observe_all(self._by_object.get((Effect.BIND, key), ()))
        self._observe_all(self._by_object.get((Effect.EVICTION, key), ()))

    def observe_pod_group(self, key: str) -> None:
        """Check the assumptions about a PodGroup after a change of its snapshot."""
        self._observe_all(self._by_object.get((Effect.ENTRY, key), ()))

    def observe_claim(self, effect: Effect, key: str) -> None:
        """Check the assumptions with this effect on a claim after a change of its snapshot."""
        self._observe_all(self._by_object.get((effect, key), ()))

    def observe_volume(self, name: str) -> None:
        """Check the assumptions about a PersistentVolume after a change of its snapshot."""
        self._observe_all(self._by_volume.get(name, ()))

    def settle(self, before: float = math.inf) -> None:
        """Treat absent objects as deleted, in decisions below the offset ``before``, except planned
        pods, which may not exist yet.

        Call it only when all topics are caught up: until then, a snapshot may still be read.
        """
        for assumption in [each for each in self._absent if each.decision.offset < before]:
            if not assumption.is_planned:
                self._apply(assumption, Event.OBSERVED)

    def close_vanished(self) -> list[str]:
        """Close executed binds of planned pods up to the newest version that was read (rule 6 of
        ``assumption_states``). Returns their keys. O(log created pods) for each."""
        closed_keys = []
        while self._created and self._created[0][0] <= self._newest_pod:
            _, _, assumption = heapq.heappop(self._created)
            if assumption.state is State.EXECUTED:  # else replaced by a republication
                self._observe_all([assumption])
                closed_keys.append(assumption.key)
        return closed_keys

    def take_released(self) -> list[scheduling.Bind]:
        """Take the binds for which an assumption about a claim was closed since the last call."""
        released, self._released = self._released, []
        return released

    # Lookups

    def bind_of(self, key: str, uid: str = "") -> scheduling.Bind | None:
        """The open bind of this pod (without ``uid``: of any pod with this key); None if there is
        none. If several are open, an executed one, otherwise the newest one."""
        bind = None
        for each in self._by_object.get((Effect.BIND, key), ()):
            # A planned pod has no uid. Its bind holds room until it is answered, even if another
            # pod has its name.
            if each.is_planned or uid in ("", each.uid):
                bind = each.bind
                if each.state is State.EXECUTED:
                    break
        return bind

    def node_of(self, key: str, uid: str = "") -> str:
        """The node of ``bind_of``; empty if there is none."""
        bind = self.bind_of(key, uid)
        return "" if bind is None else bind.node

    def is_evicted(self, key: str, uid: str) -> bool:
        """Whether an eviction of this pod is open."""
        return any(it.uid == uid for it in self._by_object.get((Effect.EVICTION, key), ()))

    def is_enqueued(self, key: str, uid: str) -> bool:
        """Whether an entry of this PodGroup is open."""
        return any(it.uid == uid for it in self._by_object.get((Effect.ENTRY, key), ()))

    def volume_for(self, key: str, uid: str) -> tuple[str, str] | None:
        """(volume, node) assumed for this PersistentVolumeClaim; an empty volume is provisioned for
        the node."""
        for each in self._by_object.get((Effect.VOLUME, key), ()):
            if each.uid == uid and each.volume is not None and each.bind is not None:
                return each.volume.volume, each.bind.node
        return None

    def claim_for(self, volume: str) -> tuple[str, str, str] | None:
        """(namespace, name, uid) of the claim to which this volume is assumed to be bound."""
        for each in self._by_volume.get(volume, ()):
            namespace, _, name = each.key.partition("/")
            return namespace, name, each.uid
        return None

    def devices_for(self, key: str, uid: str) -> resource.Allocation | None:
        """The devices assumed for this ResourceClaim."""
        for each in self._by_object.get((Effect.DEVICES, key), ()):
            if each.uid == uid and each.devices is not None:
                return each.devices.allocation
        return None

    def statements(self) -> list[scheduling.StatementDecided]:
        """The statements of all open decisions."""
        return [decision.statement for decision in self._decisions.values()]

    def note_version(self, version: int) -> None:
        """Note that this version of a pod, or its deletion in this version, has been read."""
        self._newest_pod = max(self._newest_pod, version)

    @property
    def unanswered(self) -> int:
        """Number of pods that the controller has not bound or evicted yet. Pods that wait for
        volumes or for the end of an eviction notice do not count, since the controller has no work
        for them. O(1)."""
        return len(self._costly)

    @property
    def refusals(self) -> Mapping[str, refusals.Refusal]:
        """PodGroup -> its last refusal, according to outcomes that no recorded session has read.
        O(1)."""
        return self._refusals.by_group

    def has_refused_start(self, pod_group: str) -> bool:
        """Whether one of ``refusals`` may have left the PodGroup started only in part."""
        return self._refusals.has_start(pod_group)

    def record_session(self, outcomes: int) -> None:
        """Drop ``refusals`` of outcomes below this offset: a recorded session has read them."""
        self._refusals.record_session(outcomes)

    def restart_from(self, decisions: int, outcomes: int) -> tuple[int, int]:
        """Offsets of decisions and outcomes from which a restart reads everything that is open.

        The arguments are the first offsets not read; they are returned if nothing is open.
        """
        first = min(self._first_open(), decisions)
        return int(first), int(min(outcomes, self._outcomes.first_of(first)))

    def overdue(self, now: datetime) -> list[scheduling.StatementDecided]:
        """Statements to republish now (see ``republication``).

        ``now``: always of the same clock, independent of the times of records.
        """
        due = self._republications.due(now, self._outcomes.answered_below)
        return [decision.remaining() for decision in due]

    @property
    def overdue_at(self) -> datetime | None:
        """When to call ``overdue`` again, after a call."""
        return self._republications.next_at

    # Mechanics

    def _republish(self, decision: Decision) -> None:
        for assumption in list(decision.open.values()):
            assumption.apply(Event.REPUBLISHED)
            self._forget(assumption)

    def _answer(self, decision: Decision, answer: scheduling.DecisionAnswered, offset: int) -> None:
        decision.is_answered = True
        executed = _executed(decision, answer)
        for place, each in list(decision.open.items()):
            each.version = executed.get(place, 0)
            is_executed = place in executed
            self._apply(each, Event.ANSWERED_EXECUTED if is_executed else Event.ANSWERED_REFUSED)
            if is_executed and each.is_planned and each.version > self._newest_pod:
                heapq.heappush(self._created, (each.version, next(self._numbers), each))
        self._refusals.note(decision, executed, answer, offset)
        self._observe_all(list(decision.open.values()))
        self._close_if_over(decision)
        self._unanswered.pop(decision.id, None)

    def _observe_all(self, assumptions: Iterable[Assumption]) -> None:
        for assumption in list(assumptions):
            observation = self._observe(assumption)
            if self._is_over(assumption, observation):
                self._apply(assumption, Event.OBSERVED)
            else:
                self._set_absent(assumption, is_absent=observation is Observation.ABSENT)

    def _is_over(self, assumption: Assumption, observation: Observation) -> bool:
        """Whether the observation closes the assumption. If the outcome lacks the version of the
        created pod (the API server's response could not be decoded), only the pod's snapshot shows
        that it exists."""
        if not assumption.is_planned:
            return observation is Observation.SEEN
        if assumption.state is not State.EXECUTED or observation is Observation.WAITING:
            return False
        if not assumption.version:
            return observation is Observation.SEEN
        return assumption.version <= self._newest_pod

    def _apply(self, assumption: Assumption, event: Event) -> None:
        assumption.apply(event)
        if assumption.is_open:
            self._count(assumption.effect, assumption.key)
        else:
            self._forget(assumption)
            self._close_if_over(assumption.decision)

    def _close_if_over(self, decision: Decision) -> None:
        if not decision.open and self._decisions.get(decision.id) is decision:
            del self._decisions[decision.id]
            self._republications.remove(decision)
            if not decision.is_answered and decision.offset >= self._outcomes.answered_below:
                self._unanswered[decision.id] = decision
                heapq.heappush(self._unanswered_offsets, (decision.offset, decision.id))

    def _drop_lost(self) -> None:
        """Drop closed decisions whose outcome is lost: the controller has answered later ones."""
        offsets = self._unanswered_offsets
        while offsets and offsets[0][0] < self._outcomes.answered_below:
            offset, id_ = heapq.heappop(offsets)
            if id_ in self._unanswered and self._unanswered[id_].offset == offset:
                del self._unanswered[id_]

    def _add(self, assumption: Assumption) -> None:
        self._by_object.setdefault((assumption.effect, assumption.key), {})[assumption] = None
        if assumption.volume is not None:
            self._by_volume.setdefault(assumption.volume.volume, {})[assumption] = None
        self._absent[assumption] = None
        self._observe_all([assumption])

    def _forget(self, assumption: Assumption) -> None:
        place = assumption.effect, assumption.key
        del assumption.decision.open[place]
        _discard(self._by_object, place, assumption)
        if assumption.volume is not None:
            _discard(self._by_volume, assumption.volume.volume, assumption)
        if assumption.bind is not None and assumption.effect is not Effect.BIND:
            self._released.append(assumption.bind)
        self._absent.pop(assumption, None)
        self._count(*place)

    def _set_absent(self, assumption: Assumption, *, is_absent: bool) -> None:
        assumption.is_absent = is_absent
        if is_absent:
            self._absent[assumption] = None
        else:
            self._absent.pop(assumption, None)
        self._count(assumption.effect, assumption.key)

    def _count(self, effect: Effect, key: str) -> None:
        """Update ``unanswered`` for this pod."""
        if any(each.is_costly for each in self._by_object.get((effect, key), ())):
            self._costly.add((effect, key))
        else:
            self._costly.discard((effect, key))

    def _first_open(self) -> float:
        """Offset of the first decision that is open or may be answered, infinite for none."""
        while self._offsets:
            offset, id_ = self._offsets[0]
            decision = self._decisions.get(id_) or self._unanswered.get(id_)
            if decision is not None and decision.offset == offset:
                return min(offset, self.undecodable.first)
            heapq.heappop(self._offsets)
        return self.undecodable.first


def _executed(decision: Decision, answer: scheduling.DecisionAnswered) -> dict[Place, int]:
    """The parts that were executed, each with a version of its object that has the effect, or 0.

    An outcome answers the whole publication: a task that it lacks was not executed. A claim was
    written if a pod that needs it was bound, or if the outcome contains the claim, which is the
    case if several pods need it and some of them were refused. O(parts).
    """
    tasks = {
        (pod_key(it), it.uid): it.created_version for it in answer.tasks if it.result == "executed"
    }
    versions = {(claim_key(it, it), it.uid): it.version for it in answer.claims}
    prepared = {
        place
        for bind in decision.statement.binds
        if (pod_key(bind), bind.uid) in tasks
        for place in places_of(bind)
    }
    executed = dict.fromkeys(prepared, 0)
    for each in parts_of(decision):
        place, identity = (each.effect, each.key), (each.key, each.uid)
        match each.effect:
            case Effect.ENTRY if answer.enqueue == "executed":
                executed[place] = answer.enqueued_version
            case Effect.BIND | Effect.EVICTION if identity in tasks:
                executed[place] = tasks[identity]
            case Effect.DEVICES if identity in versions:
                executed[place] = versions[identity]
    return executed


def _discard(index: dict[K, dict[Assumption, None]], key: K, assumption: Assumption) -> None:
    del index[key][assumption]
    if not index[key]:
        del index[key]
