"""Our own decisions until they are confirmed: what is in flight and what it holds.

A bind holds its node's resources from the decision on. It ends when an answer refuses it or the
pod's snapshot shows the pod bound or gone, never by time. An answer ``executed`` does not end it:
the snapshot that shows the pod bound may still be on its way. An eviction likewise: from the
decision on the pod counts as going, until an answer refuses it or its snapshot shows it going. An
entry counts until the PodGroup is seen in the version that the answer names or a later one: from
then on it is what it is seen to be, also outside again.

Decisions and answers come from two topics in any interleaving, and twice: a repeated append puts
the same statement under two ids, and holds count once as long as one of them is not refused.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

import msgspec

from stromboli.shared.api import resource
from stromboli.shared.messages import scheduling

K = TypeVar("K", bound=Hashable)
VOLUME_CLAIM, VOLUME, DEVICE_CLAIM = "volume claim", "volume", "device claim"
Rank = tuple[int, int]
"""Epoch and sequence of a decision: later decisions rank higher."""
Confirmed = Callable[["Hold"], bool]
"""Whether the pod's snapshot shows this pod bound, or not at all."""


class Hold(msgspec.Struct, frozen=True):
    """A pod (key and uid) that a decision puts on a node."""

    pod: str
    uid: str
    node: str


class Decision(msgspec.Struct, eq=False):
    """A statement of ours and its answer."""

    id: str
    rank: Rank
    offset: int
    statement: scheduling.StatementDecided
    answer: scheduling.DecisionAnswered | None = None
    answer_offset: int = 0

    def result(self, uid: str) -> scheduling.Result | None:
        """What became of the bind of this pod; None while nobody said."""
        if self.answer is None:
            return None
        for task in self.answer.tasks:
            if task.uid == uid:
                return task.result
        return "expired"  # answered as a whole without this pod: it was not carried out

    def is_entry_seen(self, version: int) -> bool:
        """Whether the PodGroup in this version shows what became of its entry."""
        return self.answer is not None and 0 < self.answer.entered_version <= version

    @property
    def evicted(self) -> Iterator[tuple[str, str]]:
        """Pods (key and uid) that go unless refused."""
        for eviction in self.statement.evictions:
            yield f"{eviction.namespace}/{eviction.pod}", eviction.uid

    @property
    def holds(self) -> Iterator[Hold]:
        """All that its binds hold unless refused."""
        for bind in self.statement.binds:
            yield Hold(f"{bind.namespace}/{bind.pod}", bind.uid, bind.node)


class Decided:
    """Decisions in the order of the log, as far back as one is open."""

    def __init__(self) -> None:
        self._decisions: dict[str, Decision] = {}
        self._early_answers: dict[str, tuple[scheduling.DecisionAnswered, int]] = {}
        self._by_pod: dict[str, list[Decision]] = {}
        self._evicting: dict[str, list[Decision]] = {}
        self._by_group: dict[str, list[Decision]] = {}
        self._claimed: dict[tuple[str, str], list[Decision]] = {}
        self._last: Rank = (-1, -1)

    def put(self, id_: str, offset: int, statement: scheduling.StatementDecided) -> bool:
        """Take in a decision; False if it is known already."""
        rank = rank_of(id_)
        if id_ in self._decisions or rank is None or rank <= self._last:
            return False
        self._last = rank
        decision = Decision(id_, rank, offset, statement)
        self._decisions[id_] = decision
        if id_ in self._early_answers:
            decision.answer, decision.answer_offset = self._early_answers.pop(id_)
        for hold in decision.holds:
            self._by_pod.setdefault(hold.pod, []).append(decision)
        for pod, _ in decision.evicted:
            self._evicting.setdefault(pod, []).append(decision)
        if statement.enqueue:
            self._by_group.setdefault(statement.pod_group_uid, []).append(decision)
        for claimed in _claimed(statement):
            self._claimed.setdefault(claimed, []).append(decision)
        return True

    def answer(
        self, answer: scheduling.DecisionAnswered, offset: int
    ) -> scheduling.StatementDecided | None:
        """Take in an answer; the statement it is news for, if there is one."""
        decision = self._decisions.get(answer.decision)
        if decision is None:
            rank = rank_of(answer.decision)
            if rank is not None and rank > self._last:
                self._early_answers[answer.decision] = (answer, offset)
            return None
        if decision.answer is not None:
            return None
        decision.answer, decision.answer_offset = answer, offset
        return decision.statement

    def node_of(self, pod: str, uid: str = "") -> str:
        """Where this pod (or any pod of this key) is decided to go, and nobody refused.

        Empty if nowhere. What was carried out counts before what was decided later.
        """
        found = self.bind_of(pod, uid)
        return found.node if found else ""

    def bind_of(self, pod: str, uid: str = "") -> scheduling.Bind | None:
        """The bind that ``node_of`` goes by."""
        found = None
        for decision in self._by_pod.get(pod, ()):
            for bind in decision.statement.binds:
                if f"{bind.namespace}/{bind.pod}" == pod and uid in ("", bind.uid):
                    result = decision.result(bind.uid)
                    if result == "executed":
                        return bind
                    if result is None:
                        found = bind
        return found

    def volume_for(self, key: str, uid: str) -> tuple[str, str] | None:
        """(volume, node) that this PersistentVolumeClaim is decided to get, and nobody refused; no
        volume: one that is made for the node."""
        for bind in self._binds_with(VOLUME_CLAIM, key):
            for each in bind.volumes:
                if each.uid == uid and f"{bind.namespace}/{each.claim}" == key:
                    return each.volume, bind.node
        return None

    def claim_for(self, volume: str) -> tuple[str, str, str] | None:
        """(namespace, name, uid) of the claim that is decided to get this volume."""
        for bind in self._binds_with(VOLUME, volume):
            for each in bind.volumes:
                if each.volume == volume:
                    return bind.namespace, each.claim, each.uid
        return None

    def devices_for(self, key: str, uid: str) -> resource.Allocation | None:
        """What this ResourceClaim is decided to get, and nobody refused."""
        for bind in self._binds_with(DEVICE_CLAIM, key):
            for each in bind.devices:
                is_it = each.uid == uid and f"{bind.namespace}/{each.claim}" == key
                if is_it and each.allocation is not None:
                    return each.allocation
        return None

    def _binds_with(self, what: str, key: str) -> Iterator[scheduling.Bind]:
        for decision in self._claimed.get((what, key), ()):
            for bind in decision.statement.binds:
                if decision.result(bind.uid) in (None, "executed"):
                    yield bind

    def is_evicted(self, pod: str, uid: str) -> bool:
        """Whether this pod is decided to go, and nobody refused."""
        return any(
            (pod, uid) in decision.evicted and decision.result(uid) in (None, "executed")
            for decision in self._evicting.get(pod, ())
        )

    def is_enqueued(self, group_uid: str, version: int) -> bool:
        """Whether this PodGroup, as seen in ``version``, is decided to enter its queue, and nobody
        refused."""
        return any(
            decision.answer is None
            or (decision.answer.enqueue == "executed" and not decision.is_entry_seen(version))
            for decision in self._by_group.get(group_uid, ())
        )

    def unanswered(self, is_confirmed: Confirmed, is_gone: Callable[[str, str], bool]) -> int:
        """Binds and evictions that the controller has yet to carry out, without those that wait
        for volumes: they take minutes and cost it nothing. O(open decisions)."""
        open_ = [each for each in self._decisions.values() if each.answer is None]
        busy = (each for each in open_ if not any(bind.volumes for bind in each.statement.binds))
        binds = {hold for decision in busy for hold in decision.holds}
        evictions = {pod for decision in open_ for pod in decision.evicted}
        return sum(not is_confirmed(hold) for hold in binds) + sum(
            not is_gone(pod, uid) for pod, uid in evictions
        )

    def prune(
        self,
        is_confirmed: Confirmed,
        is_gone: Callable[[str, str], bool],
        is_enqueued: Callable[[Decision], bool],
        is_prepared: Callable[[scheduling.Bind], bool],
        before: float = math.inf,
    ) -> None:
        """Forget the leading decisions, of offsets lower than ``before``, that hold nothing any
        more.

        Only once the folds have caught up: before, an absent pod may still come. Cost: O(1) for
        each decision forgotten.
        """
        while self._decisions:
            first = next(iter(self._decisions.values()))
            is_over = self._is_over(first, is_confirmed, is_gone, is_enqueued)
            if first.offset >= before or not is_over:
                return
            binds = first.statement.binds
            if not all(first.result(it.uid) != "executed" or is_prepared(it) for it in binds):
                return
            del self._decisions[first.id]
            _discard(self._by_pod, {hold.pod for hold in first.holds}, first)
            _discard(self._evicting, {pod for pod, _ in first.evicted}, first)
            if first.statement.enqueue:
                _discard(self._by_group, {first.statement.pod_group_uid}, first)
            _discard(self._claimed, _claimed(first.statement), first)

    def restart_from(self, decisions: int, outcomes: int) -> tuple[int, int]:
        """Offsets of decisions and outcomes from which a fold finds all that is open.

        Given the first offsets not folded, which are the answer while nothing is open.
        """
        kept = self._decisions.values()
        answered = (decision.answer_offset for decision in kept if decision.answer is not None)
        early = (offset for _, offset in self._early_answers.values())
        first = next(iter(kept), None)
        return (
            decisions if first is None else min(first.offset, decisions),
            min((outcomes, *answered, *early)),
        )

    def _is_over(
        self,
        decision: Decision,
        is_confirmed: Confirmed,
        is_gone: Callable[[str, str], bool],
        is_enqueued: Callable[[Decision], bool],
    ) -> bool:
        answer = decision.answer
        if answer is None:
            return False
        if answer.enqueue == "executed" and not is_enqueued(decision):
            return False
        return all(
            decision.result(hold.uid) != "executed" or is_confirmed(hold) for hold in decision.holds
        ) and all(
            decision.result(uid) != "executed" or is_gone(pod, uid) for pod, uid in decision.evicted
        )


def rank_of(id_: str) -> Rank | None:
    """Epoch and sequence of a decision's id; None if it is none."""
    _, _, place = id_.partition("/")
    epoch, _, sequence = place.partition("/")
    if not (epoch.isdecimal() and sequence.isdecimal()):
        return None
    return int(epoch), int(sequence)


def _claimed(statement: scheduling.StatementDecided) -> set[tuple[str, str]]:
    """What of volumes and devices a statement gives away."""
    found = set()
    for bind in statement.binds:
        for each in bind.volumes:
            found.add((VOLUME_CLAIM, f"{bind.namespace}/{each.claim}"))
            if each.volume:
                found.add((VOLUME, each.volume))
        found |= {(DEVICE_CLAIM, f"{bind.namespace}/{each.claim}") for each in bind.devices}
    return found


def _discard(index: dict[K, list[Decision]], keys: Iterable[K], decision: Decision) -> None:
    for key in keys:
        index[key].remove(decision)
        if not index[key]:
            del index[key]
