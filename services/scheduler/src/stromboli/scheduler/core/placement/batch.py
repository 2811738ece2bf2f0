"""Places a run of equal tasks at once, with the same result as placing them one by one.

Placed one by one, each task takes the node with the best score, the first of equal ones, and only
that node's score changes. Nodes that no task of the run has taken therefore keep their order, and n
tasks need only the n best nodes. A heap holds the nodes that were taken, each with its current
score. The scores of a node with 1, 2, 3, ... of the tasks on it (its *ladder*) are computed for
many nodes at once, and only as far as the run may need them.
"""

import heapq
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import node_views
from stromboli.scheduler.core.placement import extension_points

PAIRS_PER_QUESTION = 1024
"""Pairs (node, number of tasks) evaluated in one call, which costs little more than evaluating
one."""

Indices: TypeAlias = npt.NDArray[np.intp]
Ask: TypeAlias = Callable[
    [Indices, node_views.Counts], tuple[extension_points.Mask, extension_points.Scores]
]
"""(rows, further tasks assumed on each) -> whether the node takes one more task, and its score
then.
"""


def place_run(
    rows: Indices,
    scores: extension_points.Scores,
    room: Callable[[Indices], node_views.Counts],
    count: int,
    ask: Ask,
) -> list[int]:
    """The rows that ``count`` equal tasks take one after another; fewer if no node has room.

    ``rows``: candidates in ascending order with their current ``scores``. ``room``: an upper bound
    of the tasks that each row holds. O(candidates + count log count), and the cost of ``ask`` for a
    few calls of ``PAIRS_PER_QUESTION`` or ``count`` pairs.
    """
    best = _best(scores, count)
    rows = rows[best]
    return _RunPlacement(rows, scores[best], room(rows), count, ask).picks()


SAMPLED, EXCESS = 16, 4
"""One in 16 scores is a sample. The sample gives a score that about four times as many nodes reach
as are needed."""


def _best(scores: extension_points.Scores, count: int) -> Indices:
    """Indices of the ``count`` best, best first; of equal ones the first."""
    good = _good(scores, count)
    if good is not None:
        return good[_best(scores[good], count)]
    if count < len(scores):
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        better = np.flatnonzero(scores > least)
        equal = np.flatnonzero(scores == least)[: count - len(better)]
        found = np.sort(np.concatenate([better, equal]))
    else:
        found = np.arange(len(scores))
    return found[np.argsort(-scores[found], kind="stable")]


def _good(scores: extension_points.Scores, count: int) -> Indices | None:
    """Ascending indices of few scores, among them the ``count`` best and all equals of the worst of
    these; None if no such selection is found.

    The selection has all scores that reach a good score of a sample, which costs less than a
    partition.
    """
    rank = EXCESS * count // SAMPLED
    if not rank or len(scores) <= EXCESS * EXCESS * count:
        return None
    sample = scores[::SAMPLED]
    found = np.flatnonzero(scores >= np.partition(sample, -rank)[-rank])
    return found if count <= len(found) <= len(scores) // 2 else None


class _RunPlacement:
    """The candidates ordered by score; a *place* is an index in that order."""

    def __init__(
        self,
        rows: Indices,
        scores: extension_points.Scores,
        most: node_views.Counts,
        count: int,
        ask: Ask,
    ) -> None:
        self._rows = rows
        self._most = np.minimum(most, count)
        self._ask = ask
        self._row_list: list[int] = rows.tolist()
        self._scores: list[int] = scores.tolist()
        self._most_list: list[int] = self._most.tolist()
        self._taken = [0] * len(rows)
        self._steps: list[list[int]] = [[] for _ in self._row_list]
        """Place -> its scores with 1, 2, ... tasks on the node, as far as computed."""
        self._left = count
        self._has_asked = False
        self._next = 0
        """The best place that no task has taken."""
        self._heap: list[tuple[int, int, int]] = []
        """(negative score, row, place) of taken places."""

    def picks(self) -> list[int]:
        found: list[int] = []
        while self._left and (place := self._pop()) >= 0:
            found.append(self._row_list[place])
            self._taken[place] += 1
            self._left -= 1
            if self._left:
                self._push(place)
        return found

    def _pop(self) -> int:
        """The best place; -1 if none has room."""
        if self._next < len(self._rows):
            untouched = (-self._scores[self._next], self._row_list[self._next], self._next)
            if not self._heap or untouched < self._heap[0]:
                self._next += 1
                return untouched[2]
        return heapq.heappop(self._heap)[2] if self._heap else -1

    def _push(self, place: int) -> None:
        """Return a place to the heap with its new score, if it has room."""
        taken = self._taken[place]
        if taken >= self._most_list[place]:
            return
        if taken > len(self._steps[place]):
            self._extend(place)
            if taken > len(self._steps[place]):
                return
        score = self._steps[place][taken - 1]
        heapq.heappush(self._heap, (-score, self._row_list[place], place))

    def _extend(self, place: int) -> None:
        """Extend the ladders of this place and of all that are exhausted. The first call computes a
        step for every place and more for the best ones, since the run may fill one node after
        another.
        """
        ending = [
            each for _, _, each in self._heap if len(self._steps[each]) <= self._taken[each] + 1
        ]
        pairs = max(PAIRS_PER_QUESTION, 2 * self._left)
        wanted = {
            each: self._taken[each] + pairs // (len(ending) + 1) + 1 for each in (place, *ending)
        }
        if not self._has_asked:
            self._has_asked = True
            wanted = dict.fromkeys(range(len(self._rows)), pairs // len(self._rows) + 1)
        room = self._most_list[place] - self._taken[place]
        for each in range(self._next, len(self._rows)):
            if room >= pairs:
                break
            room += self._most_list[each]
            wanted[each] = self._left
        self._learn(wanted)

    def _learn(self, wanted: dict[int, int]) -> None:
        """Compute ladders up to these numbers of tasks, as far as nodes have room. The last step
        needs no evaluation: the node is full then.
        """
        steps = self._steps
        places = np.fromiter(wanted, np.intp, len(wanted))
        known = np.fromiter((len(steps[each]) for each in wanted), np.int64, len(wanted))
        until = np.fromiter(wanted.values(), np.int64, len(wanted))
        until = np.minimum(until, self._most[places] - 1)
        lengths = np.maximum(until - known, 0)
        starts = np.cumsum(lengths) - lengths
        added = np.arange(int(lengths.sum())) - np.repeat(starts - known - 1, lengths)
        takes, scores = self._ask(np.repeat(self._rows[places], lengths), added)
        ends = _first_refusals(takes, starts, lengths)
        score_list = scores.tolist()
        for each, start, end, length in zip(
            places.tolist(), starts.tolist(), ends, lengths.tolist(), strict=True
        ):
            steps[each].extend(score_list[start : start + end])
            if end < length:
                self._most_list[each] = len(steps[each]) + 1
                self._most[each] = len(steps[each]) + 1


def _first_refusals(
    takes: extension_points.Mask, starts: node_views.Counts, lengths: node_views.Counts
) -> list[int]:
    """For each segment of answers, the number of answers before the first refusal."""
    found: list[int] = lengths.tolist()
    if not takes.all():
        for at, start in enumerate(starts.tolist()):
            refused = ~takes[start : start + found[at]]
            if refused.any():
                found[at] = int(refused.argmax())
    return found
