"""Publications of decisions: publications in flight, and publications with an outcome.

The scheduler publishes a decision again under its id if it has no outcome after a while: because
the outcome was lost, or because the execution takes long. Rules:

1. A decision is executed by one task at a time. A publication during the execution joins it.
2. Every publication that is not replaced by a later one gets an outcome, which contains the
   publication's offset. A replaced publication is marked done immediately, so that a restart may
   begin after it.
3. If a publication, or a later one of the same decision, has an outcome in the log, it is not
   executed again after a restart or a lost connection, even if the position after it was not
   committed. The scheduler has acted on the outcome: the room of a refused bind may be taken. So
   each connection first reads the outcomes of all publications from its committed position on.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Mapping

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port as bus_port
from stromboli.shared.messages import scheduling as messages

_FIRST_LOOK = 64
_FARTHER = 16
KEPT = 10_000
"""Maximum number of outcomes of a connection that are kept: more than the log may repeat."""


class Publications:
    """The newest publication of each decision in flight on one connection to the log."""

    def __init__(self) -> None:
        self._newest: dict[str, envelope.Record] = {}
        self._executing: dict[str, envelope.Record] = {}

    def begin(
        self, consumer: bus_port.GroupConsumer, decision: str, record: envelope.Record
    ) -> bool:
        """Note a publication. Returns False if it must not be executed: the decision is being
        executed already, or a later publication has superseded this one."""
        known = self._newest.get(decision)
        if known is not None and known.offset > record.offset:
            consumer.acknowledge(record)
            return False
        self._newest[decision] = record
        if known is not None and known.offset < record.offset:
            consumer.acknowledge(known)
        if decision in self._executing:
            return False
        self._executing[decision] = record
        return True

    def newest(self, decision: str) -> envelope.Record | None:
        """The publication that needs an outcome; None if there is none."""
        return self._newest.get(decision)

    def answered(
        self, consumer: bus_port.GroupConsumer, decision: str, record: envelope.Record
    ) -> None:
        """Note that the outcome of this publication is in the log."""
        if self._newest.get(decision) is record:
            del self._newest[decision]
            consumer.acknowledge(record)

    def end(self, decision: str, record: envelope.Record) -> None:
        """Note the end of the execution that this publication started. Without an outcome the
        publication is not committed until the next one replaces it."""
        if self._executing.get(decision) is record:
            del self._executing[decision]


class AnsweredPublications:
    """The newest publication of each decision that has an outcome in the log.

    ``before``: outcomes from before the connection, of all publications that it may deliver.
    Outcomes of the connection itself are only needed if the log repeats a record; as many are kept
    as it may repeat. O(1) for each.
    """

    def __init__(self, before: Mapping[int, messages.DecisionAnswered]) -> None:
        self._before: dict[str, int] = {}
        for answer in before.values():
            _raise(self._before, answer)
        self._recent: OrderedDict[str, int] = OrderedDict()

    def note(self, answer: messages.DecisionAnswered) -> None:
        """Note an outcome of this connection."""
        _raise(self._recent, answer)
        self._recent.move_to_end(answer.decision)
        if len(self._recent) > KEPT:
            self._recent.popitem(last=False)

    def has(self, decision: str, offset: int) -> bool:
        """Whether the decision's publication at this offset, or a later one, has an outcome."""
        return offset <= max(self._before.get(decision, -1), self._recent.get(decision, -1))


def _raise(offsets: dict[str, int], answer: messages.DecisionAnswered) -> None:
    before = offsets.get(answer.decision, -1)
    offsets[answer.decision] = max(before, answer.decision_offset)


async def outcomes_since(bus: bus_port.Bus, start: int) -> dict[int, messages.DecisionAnswered]:
    """The outcomes, by offset, of publications from ``start`` on, which a connection that is opened
    there delivers again. Memory and time: O(outcomes since the oldest unanswered publication),
    which is ten minutes old at most, because decisions are republished.

    Reads backwards to an outcome that was published when no publication before ``start`` was
    unanswered: the outcomes of all later publications are at or after the offset that it contains.
    Raises TransientError.
    """
    newest = await bus.last_record(topics.OUTCOMES)
    first = 0 if newest is None else newest.offset + 1
    back = _FIRST_LOOK
    while first:
        first = max(first - back, 0)
        outcomes = await _outcomes(bus, first)
        before = [answer for answer in outcomes.values() if answer.unanswered_from <= start]
        if first == 0 or (before and before[-1].outcomes_from >= first):
            return {
                at: answer for at, answer in outcomes.items() if answer.decision_offset >= start
            }
        back *= _FARTHER
    return {}


async def _outcomes(bus: bus_port.Bus, first: int) -> dict[int, messages.DecisionAnswered]:
    """The outcomes from this offset on, without those of fenced writers."""
    outcomes = {}
    batches = bus.materialize((topics.OUTCOMES,), bus_port.Position({topics.OUTCOMES.name: first}))
    async with contextlib.aclosing(batches) as batches:
        async for batch in batches:
            for record in batch.records:
                with contextlib.suppress(errors.UndecodableError):
                    message = envelope.decode(record)
                    if isinstance(message, messages.DecisionAnswered):
                        outcomes[record.offset] = message
            if batch.caught_up:
                return outcomes
    return outcomes
