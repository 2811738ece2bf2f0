"""Index sets as users write them and as statuses store them: ``0-412,414,500-998:2``.

A run of consecutive indexes has constant length, so the progress of ten thousand tasks usually fits
in one line. The output is canonical: ascending, with runs joined.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
FORM = "indexes such as 0-999, 1,3,5-7 or 0-100:10"
MOST = 10_000
"""Maximum number of indexes of one array: if every second index fails, the progress takes 50 kB,
far below the size limit of an object.
"""
BOUNDS = f"1 to {MOST} of them"


class Indexes(msgspec.Struct, frozen=True):
    """Disjoint ascending runs (first, last), both inclusive. Operations cost O(runs)."""

    runs: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.runs)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.runs:
            yield from range(first, last + 1)

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and any(first <= index <= last for first, last in self.runs)

    def __str__(self) -> str:
        return ",".join(
            str(first) if first == last else f"{first}-{last}" for first, last in self.runs
        )

    def __or__(self, others: "Indexes") -> "Indexes":
        """The union."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted((*self.runs, *others.runs)):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return Indexes(tuple(joined))

    def __sub__(self, others: "Indexes") -> "Indexes":
        """The difference."""
        left: list[tuple[int, int]] = []
        holes = iter(others.runs)
        hole = next(holes, None)
        for run_first, last in self.runs:
            first = run_first
            while hole is not None and hole[0] <= last:
                if hole[0] > first:
                    left.append((first, hole[0] - 1))
                first = max(first, hole[1] + 1)
                if hole[1] > last:
                    break
                hole = next(holes, None)
            if first <= last:
                left.append((first, last))
        return Indexes(tuple(left))

    def first(self, count: int) -> "Indexes":
        """The lowest ``count`` indexes."""
        kept: list[tuple[int, int]] = []
        for first, last in self.runs:
            if count <= 0:
                break
            kept.append((first, min(last, first + count - 1)))
            count -= last - first + 1
        return Indexes(tuple(kept))


def of(numbers: Iterable[int]) -> Indexes:
    """The set of these indexes, in any order and any number of times. O(n log n)."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return Indexes(tuple(runs))


def count(text: str) -> int:
    """Upper bound of the number of indexes in the text, without enumerating them. Raises
    ValueError.
    """
    return sum(len(part) for part in _parts(text))


def problem(text: str) -> str:
    """Why an array cannot have these indexes; empty if it can. O(length of the text)."""
    try:
        index_count = count(text)
    except ValueError as error:
        return str(error)
    return "" if 0 < index_count <= MOST else f"{index_count} indexes"


def parse(text: str) -> Indexes:
    """The index set of a text: numbers and ranges, a range also with a step (``0-10:2``).

    The empty text is the empty set. Raises ValueError that names the error. Costs O(indexes): check
    ``count`` first for untrusted text.
    """
    return of(number for part in _parts(text) for number in part)


def _parts(text: str) -> Iterator[range]:
    for part in filter(None, (it.strip() for it in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not an index or range")
        first, last, step = (None if it is None else int(it) for it in match.groups())
        assert first is not None
        if last is not None and last < first:
            raise ValueError(f"{part!r} ends before it begins")
        if step == 0:
            raise ValueError(f"{part!r} has a step of 0")
        yield range(first, (first if last is None else last) + 1, step or 1)
