"""Refusals: decisions whose outcome reports that a part was not executed.

A refusal counts until its decision is published again, because the later publication gets an
outcome of its own, or until a session that has read its outcome is recorded: the session keeps what
it needs in its memory. The record of a session may be read before outcomes that the session had
read; these outcomes are ignored.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence

import msgspec

from stromboli.scheduler.core.cache.in_flight.assumptions import (
    Assumption,
    Decision,
    Effect,
    Place,
    parts_of,
    pod_key,
)
from stromboli.shared.messages import scheduling

_DONE = {
    Effect.BIND: "bound",
    Effect.EVICTION: "evicted",
    Effect.ENTRY: "admitted to its queue",
}
MAX_REFUSAL_TEXT = 300
"""Characters of a refusal that are kept: a webhook may answer with any text."""


class Refusal(msgspec.Struct, frozen=True):
    """A decision of a gang that was refused at least in part.

    ``offset``: of the outcome. ``uid``: of the PodGroup. ``text``: the first part that was refused,
    with the reason. ``is_start``: a bind of the decision that started the gang was refused.
    """

    offset: int
    uid: str
    text: str
    is_start: bool = False


class Refusals:
    """``by_group``: PodGroup -> its last refusal. A change costs O(refusals of the PodGroup)."""

    def __init__(self) -> None:
        self.by_group: dict[str, Refusal] = {}
        self._noted: dict[str, dict[str, Refusal]] = {}  # PodGroup -> decision -> refusal
        self._offsets: list[tuple[int, str, str]] = []
        self._recorded_outcomes = 0

    def note(
        self,
        decision: Decision,
        executed: Collection[Place],
        answer: scheduling.DecisionAnswered,
        offset: int,
    ) -> None:
        """Note the parts of a decision that were not executed, if there are any. Parts that a
        snapshot closed count, too: a pod may be gone before its bind is tried.

        ``offset``: of the outcome. O(parts of the decision).
        """
        refused = [
            each
            for each in parts_of(decision)
            if each.effect in _DONE and (each.effect, each.key) not in executed
        ]
        if not refused or offset < self._recorded_outcomes:
            return
        of = decision.statement
        is_start = of.starts_gang and any(it.effect is Effect.BIND for it in refused)
        noted = Refusal(offset, of.pod_group_uid, _text(refused, answer), is_start)
        self._noted.setdefault(of.pod_group, {})[decision.id] = noted
        heapq.heappush(self._offsets, (offset, of.pod_group, decision.id))
        self._update(of.pod_group)

    def withdraw(self, pod_group: str, decision: str) -> None:
        """Drop the refusal of a decision, if it has one."""
        if self._noted.get(pod_group, {}).pop(decision, None) is not None:
            self._update(pod_group)

    def record_session(self, outcomes: int) -> None:
        """Drop refusals of outcomes below this offset, now and in the future."""
        self._recorded_outcomes = max(self._recorded_outcomes, outcomes)
        while self._offsets and self._offsets[0][0] < self._recorded_outcomes:
            offset, pod_group, decision = heapq.heappop(self._offsets)
            noted = self._noted.get(pod_group, {}).get(decision)
            if noted is not None and noted.offset == offset:
                self.withdraw(pod_group, decision)

    def has_start(self, pod_group: str) -> bool:
        """Whether a bind of a decision that started the PodGroup was refused."""
        return any(each.is_start for each in self._noted.get(pod_group, {}).values())

    def _update(self, pod_group: str) -> None:
        noted = self._noted[pod_group]
        if noted:
            self.by_group[pod_group] = _last(noted.values())
        else:
            del self._noted[pod_group], self.by_group[pod_group]


def _last(noted: Iterable[Refusal]) -> Refusal:
    """The last refusal, with ``is_start`` if it or an earlier one of the same PodGroup has it."""
    first, *later = sorted(noted, key=lambda each: each.offset)
    for each in later:
        is_start = each.is_start or (first.is_start and first.uid == each.uid)
        first = msgspec.structs.replace(each, is_start=is_start)
    return first


def _text(refused: Sequence[Assumption], answer: scheduling.DecisionAnswered) -> str:
    """The first refused part, with the reason, and the number of the others."""
    first = min(refused, key=lambda each: (each.effect.value, each.key))
    outcomes = (it for it in answer.tasks if (pod_key(it), it.uid) == (first.key, first.uid))
    outcome = None if first.effect is Effect.ENTRY else next(outcomes, None)
    reasons = () if outcome is None else (outcome.reason, outcome.message)
    reason = ": ".join(filter(None, reasons))[:MAX_REFUSAL_TEXT]
    more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
    return f"{first.key} was not {_DONE[first.effect]}{f' ({reason})' if reason else ''}{more}"
