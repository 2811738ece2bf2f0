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
"""One in 16 scores is sampled. The score taken from the sample is one that about four times as many
nodes reach as are needed."""


def _best(scores: extension_points.Scores, count: int) -> Indices:
    """Indices of the ``count`` best, best first; of equal ones the first.

    A partition of all scores costs more than a few comparisons with a score of a sample. Often many
    nodes have that score, as empty nodes do: then it is the worst score that is needed.
    """
    if count >= len(scores):
        return np.argsort(-scores, kind="stable")
    worst = _sampled(scores, count)
    better = None if worst is None else np.flatnonzero(scores > worst)
    if better is not None and count <= len(better) <= len(scores) // 2:
        return better[_best(scores[better], count)]
    equal = None if better is None else np.flatnonzero(scores == worst)
    if better is None or equal is None or not len(better) < count <= len(better) + len(equal):
        worst = np.partition(scores, len(scores) - count)[len(scores) - count]
        better, equal = np.flatnonzero(scores > worst), np.flatnonzero(scores == worst)
    selected = np.sort(np.concatenate([better, equal[: count - len(better)]]))
    return selected[np.argsort(-scores[selected], kind="stable")]


def _sampled(scores: extension_points.Scores, count: int) -> np.int64 | None:
    """A score that about ``EXCESS * count`` scores exceed or equal; None if there are too few
    scores for a sample."""
    rank = EXCESS * count // SAMPLED
    if not rank or len(scores) <= EXCESS * EXCESS * count:
        return None
    threshold: np.int64 = np.partition(scores[::SAMPLED], -rank)[-rank]
    return threshold


_NONE = (2**63, 0, 0)
"""No entry; sorts after the entry of every place."""


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
        self._remaining = count
        self._has_asked = False
        self._next = 0
        """The best place that no task has taken."""
        self._heap: list[tuple[int, int, int]] = []
        """(negative score, row, place) of taken places."""

    def picks(self) -> list[int]:
        """The rows in the order in which tasks take them.

        ``again`` is the entry of the place that was taken last. It is kept outside the heap as long
        as this place is the best one, which is common: nodes are often filled one after another.
        """
        picked: list[int] = []
        heap, counts, rows = self._heap, self._taken, self._row_list
        untouched = [
            (-score, row, place)
            for place, (score, row) in enumerate(zip(self._scores, rows, strict=True))
        ]
        untouched.append(_NONE)
        again = _NONE
        while self._remaining:
            first = untouched[self._next]
            if again > first or (heap and again > heap[0]):
                if again is not _NONE:
                    heapq.heappush(heap, again)
                if not heap or first < heap[0]:
                    again = first
                    self._next += first is not _NONE
                else:
                    again = heapq.heappop(heap)
            if again is _NONE:
                break
            place = again[2]
            picked.append(rows[place])
            counts[place] += 1
            self._remaining -= 1
            again = self._entry(place) if self._remaining else _NONE
        return picked

    def _entry(self, place: int) -> tuple[int, int, int]:
        """The entry of a taken place with its new score; ``_NONE`` if it has no room."""
        task_count = self._taken[place]
        if task_count >= self._most_list[place]:
            return _NONE
        if task_count > len(self._steps[place]):
            self._extend(place)
            if task_count > len(self._steps[place]):
                return _NONE
        return (-self._steps[place][task_count - 1], self._row_list[place], place)

    def _extend(self, place: int) -> None:
        """Extend the ladders of this place and of all that are exhausted. The first call computes a
        step for every place and more for the best ones, since the run may fill one node after
        another.
        """
        ending = [
            each for _, _, each in self._heap if len(self._steps[each]) <= self._taken[each] + 1
        ]
        pairs = max(PAIRS_PER_QUESTION, 2 * self._remaining)
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
            wanted[each] = self._remaining
        self._learn(wanted)

    def _learn(self, wanted: dict[int, int]) -> None:
        """Compute ladders up to these numbers of tasks, as far as nodes have room. The last step
        needs no evaluation: the node is full then.
        """
        steps = self._steps
        places = np.fromiter(wanted, np.intp, len(wanted))
        known = np.array([len(steps[each]) for each in wanted], np.int64)
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
    accepted_counts: list[int] = lengths.tolist()
    if not takes.all():
        for at, start in enumerate(starts.tolist()):
            refused = ~takes[start : start + accepted_counts[at]]
            if refused.any():
                accepted_counts[at] = int(refused.argmax())
    return accepted_counts
