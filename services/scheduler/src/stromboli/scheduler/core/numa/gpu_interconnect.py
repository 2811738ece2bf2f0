"""Chooses the GPUs of a node that have the best interconnect with each other.

A pair of GPUs scores by its connection (60 on one board, down to 10 across sockets) plus 100 for
each NVLink. The best set of n has the highest sum over its pairs. Ties are broken by the highest
sum over the remaining GPUs, so that large cliques stay whole, then by the fewest NUMA nodes, then
by the lowest numbers. A single GPU is therefore the one with the lowest scores to the others. The
search is exact for up to ``MAX_EXACT_GPUS`` free GPUs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

LINK_SCORES: Mapping[str, int] = {
    "INTERNAL": 60,
    "PIX": 50,
    "PXB": 40,
    "PHB": 30,
    "NODE": 20,
    "SYS": 10,
}
"""Score of the connection between two GPUs, by nvidia-smi's name; INTERNAL: on one board."""
NVLINK = 100
"""Score of each NVLink between two GPUs."""
MAX_EXACT_GPUS = 16
"""Limit of the exact search: the 12,870 sets of 8 GPUs among 16 take a few milliseconds."""

Scores = npt.NDArray[np.int64]
"""``gpus x gpus``, symmetric, zero on the diagonal."""


def scores(
    gpu_connections: Sequence[Sequence[str]],
    nvlinks: Sequence[Sequence[int]],
    switched: Sequence[int] = (),
) -> Scores:
    """Scores of all pairs. ``gpu_connections``: connection of each pair by nvidia-smi's names.
    ``nvlinks``: direct NVLinks. ``switched``: each GPU's links to an NVSwitch; a pair has the
    smaller number of its two GPUs.

    If the two directions differ, the smaller value counts. Raises ValueError for tables of
    different sizes and for an unknown connection.
    """
    size = len(gpu_connections)
    if any(len(line) != size for line in (*gpu_connections, *nvlinks)) or len(nvlinks) != size:
        raise ValueError(
            f"connections and NVLinks of {size} GPUs must be tables of {size} x {size}"
        )
    if switched and len(switched) != size:
        raise ValueError(f"NVSwitch links are given for {len(switched)} GPUs, but there are {size}")
    matrix = np.zeros((size, size), np.int64)
    for one, other in combinations(range(size), 2):
        links = min(nvlinks[one][other], nvlinks[other][one])
        if switched:
            links += min(switched[one], switched[other])
        way = min(_way(gpu_connections[one][other]), _way(gpu_connections[other][one]))
        matrix[one, other] = matrix[other, one] = way + NVLINK * links
    return matrix


def _way(name: str) -> int:
    if name not in LINK_SCORES:
        raise ValueError(f"{name!r} is not one of {', '.join(LINK_SCORES)}")
    return LINK_SCORES[name]


def best_gpus(
    pairs: Scores,
    free: Collection[int],
    count: int,
    numa_nodes: Sequence[int] = (),
    among: Collection[int] | None = None,
) -> tuple[int, ...] | None:
    """The best ``count`` of the free GPUs in ascending order; None if there are fewer.

    ``numa_nodes``: each GPU's NUMA node, -1 if unknown; empty if none is known. ``among``: only
    these may be taken; the others count as remaining. Exact for up to ``MAX_EXACT_GPUS`` of them in
    O(sets * free^2). Above, a set is grown from each GPU by the best addition and the best of these
    sets is improved by exchanges, in O(free^2 * count^2).
    """
    free_gpus = sorted(set(free))
    at = [place for place, gpu in enumerate(free_gpus) if among is None or gpu in among]
    if count > len(at) or count < 0:
        return None
    if len(at) <= MAX_EXACT_GPUS:
        inside = _all_sets(len(at), count)
    else:
        some = [free_gpus[place] for place in at]
        inside = _greedy_sets(pairs[np.ix_(some, some)], count)
    tried = np.zeros((len(inside), len(free_gpus)), np.bool_)
    tried[:, at] = inside
    chosen = _ranked(
        pairs[np.ix_(free_gpus, free_gpus)],
        tried,
        [numa_nodes[at] for at in free_gpus if numa_nodes],
    )
    return tuple(free_gpus[at] for at in chosen)


def _ranked(pairs: Scores, tried: npt.NDArray[np.bool_], numa_nodes: Sequence[int]) -> list[int]:
    """The GPUs of the best set of ``tried`` (sets x gpus): the best connected inside, then the one
    that leaves the best connected rest, then the fewest NUMA nodes, then the first."""
    inside = tried.astype(np.int64)
    own = ((inside @ pairs) * inside).sum(axis=1) // 2
    outside = 1 - inside
    outside_score = ((outside @ pairs) * outside).sum(axis=1) // 2
    spread = np.zeros(len(tried), np.int64)
    for numa_node in sorted(set(numa_nodes) - {-1}):
        spread += tried[:, np.array(numa_nodes) == numa_node].any(axis=1)
    # lexsort is stable and takes the last key first.
    order = np.lexsort((spread, -outside_score, -own))
    best_set: list[int] = np.flatnonzero(tried[order[0]]).tolist()
    return best_set


@cache
def _all_sets(size: int, count: int) -> npt.NDArray[np.bool_]:
    return _sets(size, combinations(range(size), count))


def _sets(size: int, members: Iterable[Sequence[int]]) -> npt.NDArray[np.bool_]:
    chosen = list(members)
    masks = np.zeros((len(chosen), size), np.bool_)
    for at, some in enumerate(chosen):
        masks[at, list(some)] = True
    return masks


def _greedy_sets(pairs: Scores, count: int) -> npt.NDArray[np.bool_]:
    """A set grown from each GPU, improved while an exchange helps."""
    size = len(pairs)
    grown_sets = set()
    for first in range(size) if count else ():
        some = [first]
        while len(some) < count:
            gain = pairs[some].sum(axis=0)
            gain[some] = -1
            some.append(int(gain.argmax()))
        grown_sets.add(tuple(sorted(_exchanged(pairs, some))))
    return _sets(size, sorted(grown_sets) or [()])


def _exchanged(pairs: Scores, some: list[int]) -> list[int]:
    chosen = list(some)
    while True:
        gain = pairs[chosen].sum(axis=0)
        others = [at for at in range(len(pairs)) if at not in chosen]
        better = [
            (int(gain[new] - pairs[new, old] - gain[old]), -old, -new)
            for old in chosen
            for new in others
        ]
        most = max(better, default=(0, 0, 0))
        if most[0] <= 0:
            return chosen
        chosen[chosen.index(-most[1])] = -most[2]
