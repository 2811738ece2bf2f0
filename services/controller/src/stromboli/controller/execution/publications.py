"""Publications of decisions: publications in flight, and publications with an outcome.

The scheduler publishes a decision again under its id if it has no outcome after a while: because
the outcome was lost, or because the execution takes long. Rules:

1. A decision is executed by one task at a time. A publication during the execution joins it.
2. Every publication that is not replaced by a later one gets an outcome, which contains the
   publication's offset. A replaced publication is marked done immediately, so that a restart may
   begin after it.
3. A publication that has an outcome in the log, or of whose decision a later publication has one,
   is not executed again after a restart or a lost connection, even if the position after it was not
   committed. The scheduler has acted on the outcome: the room of a refused bind may be taken.
"""

import contextlib
from collections import OrderedDict

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port as bus_port
from stromboli.shared.messages import scheduling as messages

_FIRST_LOOK = 64
_FARTHER = 16
KEPT = 10_000
"""Number of publications that are kept whatever is committed: more than the publications that are
answered between two commits."""


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
            consumer.done(record)
            return False
        self._newest[decision] = record
        if known is not None and known.offset < record.offset:
            consumer.done(known)
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
            consumer.done(record)

    def end(self, decision: str, record: envelope.Record) -> None:
        """Note the end of the execution that this publication started. Without an outcome the
        publication is not committed until the next one replaces it."""
        if self._executing.get(decision) is record:
            del self._executing[decision]


class AnsweredPublications:
    """The newest publication of each decision that has an outcome in the log: all publications at
    or after the first unanswered one, and as many earlier publications as may not be committed yet.
    O(1) for each."""

    def __init__(self) -> None:
        self._offsets: OrderedDict[str, int] = OrderedDict()

    def note(self, answer: messages.DecisionAnswered) -> None:
        """Note an outcome in the log."""
        before = self._offsets.pop(answer.decision, -1)
        self._offsets[answer.decision] = max(before, answer.decision_offset)
        while len(self._offsets) > KEPT:
            if next(iter(self._offsets.values())) >= answer.unanswered_from:
                return
            self._offsets.popitem(last=False)

    def has(self, decision: str, offset: int) -> bool:
        """Whether the decision's publication at this offset, or a later one, has an outcome."""
        return offset <= self._offsets.get(decision, -1)


async def answered(bus: bus_port.Bus) -> AnsweredPublications:
    """The publications that have an outcome and that a restart may read again.

    Raises TransientError.
    """
    answers = AnsweredPublications()
    for each in await _last_outcomes(bus):
        answers.note(each)
    return answers


async def _last_outcomes(bus: bus_port.Bus) -> list[messages.DecisionAnswered]:
    newest = await bus.last(topics.OUTCOMES)
    first = 0 if newest is None else newest.offset + 1
    back = _FIRST_LOOK
    while first:
        first = max(first - back, 0)
        found = await _outcomes(bus, first)
        if found and (first == 0 or found[-1].outcomes_from >= first):
            return found
        back *= _FARTHER
    return []


async def _outcomes(bus: bus_port.Bus, first: int) -> list[messages.DecisionAnswered]:
    """The outcomes from this offset on, without outcomes of fenced writers."""
    found = []
    batches = bus.materialize((topics.OUTCOMES,), bus_port.Position({topics.OUTCOMES.name: first}))
    async with contextlib.aclosing(batches) as batches:
        async for batch in batches:
            for record in batch.records:
                with contextlib.suppress(errors.UndecodableError):
                    message = envelope.decode(record)
                    if isinstance(message, messages.DecisionAnswered):
                        found.append(message)
            if batch.caught_up:
                return found
    return found
