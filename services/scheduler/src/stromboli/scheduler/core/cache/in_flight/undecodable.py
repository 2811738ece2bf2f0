"""Decisions that cannot be decoded: they freeze their gangs until the controller has answered them.

What such a record decides is unknown. A controller of another version may be able to decode it and
bind its pods, so no session decides about the gang meanwhile. The controller answers every
publication, also one that it cannot decode and of which it executes nothing. With that outcome, or
with a later one that says that the controller has passed the record, no part of the decision is
still to be executed: the gang is decided again. What was executed is in the snapshots, and a bind
of a pod that is bound already is refused.
"""

import math


class UndecodableDecisions:
    """Records without an outcome, by offset: records of one topic are read in that order."""

    def __init__(self) -> None:
        self._groups: dict[int, str] = {}
        self._reasons: dict[str, dict[int, str]] = {}
        self._answered: list[str] = []

    def put(self, offset: int, pod_group: str, reason: str) -> None:
        """Add a record that has no outcome yet. O(1)."""
        self._groups[offset] = pod_group
        self._reasons.setdefault(pod_group, {})[offset] = (
            f"a decision in the log cannot be decoded, and has no outcome yet: {reason}"
        )

    def answer(self, offset: int, answered_below: int) -> None:
        """Note the outcome of a publication. Publications below ``answered_below`` have an outcome,
        or it is lost. O(1) for each record that this answers."""
        self._end(offset)
        while self.first < answered_below:
            self._end(int(self.first))

    def reason(self, pod_group: str) -> str:
        """Why the gang is frozen; empty if it is not."""
        return next(iter(self._reasons.get(pod_group, {}).values()), "")

    def take_answered(self) -> list[str]:
        """PodGroups of the records that were answered since the last call."""
        answered, self._answered = self._answered, []
        return answered

    @property
    def first(self) -> float:
        """The lowest offset without an outcome, infinite for none."""
        return next(iter(self._groups), math.inf)

    def _end(self, offset: int) -> None:
        pod_group = self._groups.pop(offset, None)
        if pod_group is not None:
            del self._reasons[pod_group][offset]
            if not self._reasons[pod_group]:
                del self._reasons[pod_group]
            self._answered.append(pod_group)
