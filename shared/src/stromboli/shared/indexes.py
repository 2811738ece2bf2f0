"""Sets of indexes as users write them and as statuses keep them: ``0-412,414,500-998:2``.

A run of consecutive indexes costs a few characters however long it is, so the progress of ten
thousand tasks usually fits in a line. The written form is canonical: ascending, runs joined.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
FORM = "indexes such as 0-999, 1,3,5-7 or 0-100:10"


class Indexes(msgspec.Struct, frozen=True):
    """Disjoint ascending runs (first, last), both ends in. Small operations are O(runs)."""

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

    def joined(self, others: Iterable[int]) -> "Indexes":
        """These and others."""
        added = tuple(others)
        return of((*self, *added)) if added else self

    def without(self, others: Iterable[int]) -> "Indexes":
        """These but not the others."""
        removed = frozenset(others)
        return of(it for it in self if it not in removed)


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
    """How many indexes the text names at most, without listing them. Raises ValueError."""
    return sum(len(part) for part in _parts(text))


def parse(text: str) -> Indexes:
    """The set that a text names: numbers and ranges, a range also with a step (``0-10:2``).

    The empty text is the empty set. Raises ValueError that says what is wrong. Costs O(indexes):
    ask ``count`` first where the text is a stranger's.
    """
    return of(number for part in _parts(text) for number in part)


def _parts(text: str) -> Iterator[range]:
    for part in filter(None, (it.strip() for it in text.split(","))):
        found = _PART.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is no index or range; write {FORM}")
        first, last, step = (None if it is None else int(it) for it in found.groups())
        assert first is not None
        if last is not None and last < first:
            raise ValueError(f"{part!r} ends before it begins")
        if step == 0:
            raise ValueError(f"{part!r} has a step of 0")
        yield range(first, (first if last is None else last) + 1, step or 1)
