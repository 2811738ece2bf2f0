"""Outcomes that were read before their decision, and the offsets from which a restart reads.

Outcomes and decisions are two topics, read in any interleaving. An outcome names the offset of the
publication that it answers, so it is early exactly if the decisions have not been read up to that
offset. It is dropped as soon as they have been.
"""

import heapq
import math

from stromboli.shared.messages import scheduling


class OutcomeLog:
    """Outcomes by offset. O(log outcomes in the window) for each record."""

    def __init__(self) -> None:
        self.answered_below = 0
        """Offset of decisions below which every outcome has been read or is lost."""
        self._early: dict[int, tuple[int, scheduling.DecisionAnswered]] = {}
        self._early_offsets: list[int] = []
        self._offsets: list[tuple[int, int]] = []  # (offset of the outcome, of the decision)
        self._read_to = 0

    def note(self, offset: int, answer: scheduling.DecisionAnswered, first_open: float) -> None:
        """Note an outcome. ``first_open``: offset of the first open decision."""
        self.answered_below = max(self.answered_below, answer.unanswered_from)
        decision = answer.decision_offset
        if decision >= self._read_to and decision not in self._early:
            self._early[decision] = (offset, answer)
            heapq.heappush(self._early_offsets, decision)
        needed_from = min(first_open, self._read_to)
        if decision >= needed_from:
            heapq.heappush(self._offsets, (offset, decision))
        self._drop_below(needed_from)

    def early(self, decision_offset: int) -> tuple[int, scheduling.DecisionAnswered] | None:
        """Return the outcome of the publication at this offset, with the outcome's own offset, if
        it was read before the publication."""
        return self._early.get(decision_offset)

    def read_to(self, decision_offset: int) -> None:
        """All decisions below this offset have been read."""
        self._read_to = max(self._read_to, decision_offset)
        while self._early_offsets and self._early_offsets[0] < self._read_to:
            del self._early[heapq.heappop(self._early_offsets)]

    def first_of(self, first_open: float) -> float:
        """Offset of the first outcome of the decisions from ``first_open`` on; infinite if none was
        read."""
        self._drop_below(first_open)
        return self._offsets[0][0] if self._offsets else math.inf

    def _drop_below(self, decision_offset: float) -> None:
        while self._offsets and self._offsets[0][1] < decision_offset:
            heapq.heappop(self._offsets)
