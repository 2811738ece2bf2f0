"""The door of the queues: which PodGroups may have their pods made (spec/plugins 10, overcommit).

What all admitted gangs may still take, together with what is taken, stays within 1.2 times the
cluster. A gang that names no minResources passes.
"""

from collections.abc import Mapping

from stromboli.scheduler.core import board, state
from stromboli.shared import units

_FACTOR = (6, 5)
"""Overcommit 1.2 as a fraction, so that comparisons stay exact integers."""
_UNLIMITED = "pods"
"""Counted by nodes, but no measure of what a cluster can take in, as Volcano has it."""


class Door:
    """What is promised as a session goes on, and what there is."""

    def __init__(self, picture: state.State, free: board.Board) -> None:
        self._free = free
        self._promised: units.Amounts = picture.promises.total

    def refusal(self, wanted: Mapping[str, int]) -> str:
        """Why a gang wanting so much must stay outside; empty if it may enter. O(nodes)."""
        more, than = _FACTOR
        over = []
        for name, amount in wanted.items():
            used, total = self._free.used_and_total(name)
            asked = amount + self._promised.get(name, 0) + used
            if amount and name != _UNLIMITED and than * asked > more * total:
                over.append(name)
        if not over:
            return ""
        names = ", ".join(f"overused {name}" for name in sorted(over, key=_cpu_memory_first))
        return f"resource in cluster is overused: {names}"

    def promise(self, wanted: Mapping[str, int]) -> None:
        """A gang that wants so much has entered."""
        self._promised = units.add(self._promised, wanted)


def _cpu_memory_first(name: str) -> tuple[bool, bool, str]:
    return (name != "cpu", name != "memory", name)
