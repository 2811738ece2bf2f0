"""What a kubelet will say of a container that wants CPUs of its own (spec/topology 2).

A hint is a set of NUMA nodes whose available CPUs suffice; it is preferred if no smaller set of
NUMA nodes could ever do, were all of their CPUs free. The best hint is preferred, then narrow, then
of low numbers. The policy says whether a container may start without a preferred one.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, cast

from stromboli.scheduler.core.numa import cpus

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE)
MOST_CELLS = 8
"""NUMA nodes that the kubelet compares; with more it does not start under these policies."""

Cells = tuple[int, ...]
"""NUMA nodes, ascending."""


class Hint(NamedTuple):
    """NUMA nodes to take CPUs from."""

    cells: Cells
    is_preferred: bool


class Placed(NamedTuple):
    """CPUs for each container in order (none for one that shares), as they were chosen."""

    of_containers: tuple[cpus.Cpus, ...]

    @property
    def all(self) -> cpus.Cpus:
        """All of them."""
        return cpus.NOTHING.union(*self.of_containers)


def hints(machine: cpus.Machine, available: cpus.Cpus, need: int) -> list[Hint]:
    """Every set of NUMA nodes that holds ``need`` available CPUs, by size, then numbers.

    O(2^NUMA nodes); the caller sees to it that they are few.
    """
    narrowest = len(machine.cells)
    found: list[Cells] = []
    for width in range(1, len(machine.cells) + 1):
        for some in combinations(machine.cells, width):
            own = cpus.NOTHING.union(*(machine.cells[cell] for cell in some))
            if len(own) >= need:
                narrowest = min(narrowest, width)
            if len(own & available) >= need:
                found.append(some)
    return [Hint(some, len(some) == narrowest) for some in found]


def merged(machine: cpus.Machine, policy: str, found: Sequence[Hint]) -> Hint:
    """The best of the hints; all NUMA nodes, not preferred, if none is left."""
    best = Hint(tuple(machine.cells), is_preferred=False)
    if policy == SINGLE:
        found = [each for each in found if each.is_preferred and len(each.cells) == 1]
    return min([best, *found], key=_rank)


def _rank(hint: Hint) -> tuple[bool, int, int]:
    """Preferred ones first, then narrow ones, then those of low numbers."""
    return not hint.is_preferred, len(hint.cells), sum(1 << cell for cell in hint.cells)


def admits(policy: str, best: Hint) -> bool:
    """Whether a container may start with this hint."""
    return policy in (NONE, BEST_EFFORT) or best.is_preferred


def placed(
    machine: cpus.Machine, available: cpus.Cpus, needs: Sequence[int], policy: str
) -> Placed | None:
    """CPUs for containers one after another (0: it shares those that are left); None if the kubelet
    would refuse one of them. Answers are kept with the machine."""
    key = (available, tuple(needs), policy)
    if key not in machine.known:
        if len(machine.known) >= cpus.MOST_REMEMBERED:
            machine.known.clear()
        machine.known[key] = _placed(machine, available, needs, policy)
    return cast("Placed | None", machine.known[key])


def _placed(
    machine: cpus.Machine, available: cpus.Cpus, needs: Sequence[int], policy: str
) -> Placed | None:
    chosen: list[cpus.Cpus] = []
    for need in needs:
        taken = cpus.NOTHING
        if need:
            best = Hint(tuple(machine.cells), is_preferred=True)
            if policy != NONE:
                best = merged(machine, policy, hints(machine, available, need))
                if not admits(policy, best):
                    return None
            taken = _chosen(machine, available, best.cells, need)
        chosen.append(taken)
        available = available - taken
    return Placed(tuple(chosen))


def _chosen(machine: cpus.Machine, available: cpus.Cpus, cells: Cells, need: int) -> cpus.Cpus:
    """CPUs of these NUMA nodes first, then others; none if there are too few."""
    own = available & cpus.NOTHING.union(*(machine.cells[cell] for cell in cells))
    aligned = machine.taken(own, min(need, len(own))) or cpus.NOTHING
    rest = machine.taken(available - aligned, need - len(aligned))
    return cpus.NOTHING if rest is None else aligned | rest
