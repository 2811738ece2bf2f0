"""Reads rows of CSV files and collects every problem with file, line and column.

A file is checked as a whole before anything runs, so that a user corrects it once.
"""

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from stromboli.shared.formats.counts import counted

MOST_PROBLEMS = 50
"""Maximum problems that are shown; a file with a wrong separator has one in every line."""
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_LARGEST = 10**9
"""The largest number allowed in a file: cores, GiB, seconds (31 years) or GPUs."""


class Problems:
    """Collects the problems of all files."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def add(self, place: str, problem: str) -> None:
        """Record a problem: the fault, and the correct form."""
        self.count += 1
        if self.count <= MOST_PROBLEMS:
            self.lines.append(f"{place}: {problem}")

    def shown(self) -> tuple[str, ...]:
        """The problems, and how many more there are."""
        more = self.count - len(self.lines)
        return (*self.lines, f"and {more} more") if more else tuple(self.lines)


class Row:
    """One line: fields by canonical column, read with a default where the field is empty."""

    __slots__ = ("_fields", "_path", "_problems", "line")

    def __init__(self, fields: Mapping[str, str], path: str, line: int, problems: Problems) -> None:
        self._fields = fields
        self._path = path
        self._problems = problems
        self.line = line

    def has(self, column: str) -> bool:
        """Whether the field exists and is not empty."""
        return bool(self._fields.get(column))

    def text(self, column: str, default: str = "") -> str:
        """The field without blanks around it."""
        return self._fields.get(column) or default

    def number(self, column: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A finite number that is not below ``least``. A None default: the field is required."""
        text = self._fields.get(column, "")
        if not text:
            if default is None:
                self.fail(column, f"is empty; write a number of at least {least:g}")
                return least
            return default
        return self.parsed(column, text, least=least)

    def parsed(self, column: str, text: str, *, least: float = 0.0) -> float:
        """A number in a part of the field, as ``number`` reads it."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= _LARGEST:
            self.fail(column, f"{text!r}; write a number from {least:g} to {_LARGEST:g}")
            return least
        return value

    def integer(self, column: str, default: int, *, least: int = 0) -> int:
        """A whole number that is not below ``least``."""
        value = self.number(column, default, least=least)
        if value != int(value):
            self.fail(column, f"{self.text(column)!r}; write a whole number")
        return int(value)

    def signed(self, column: str, default: int) -> int:
        """A whole number of 32 bits, such as a priority."""
        text = self.text(column, str(default))
        try:
            value = int(text)
        except ValueError:
            value = 2**31
        if not -(2**31) <= value < 2**31:
            self.fail(column, f"{text!r}; write a whole number of at most 32 bits")
            return default
        return value

    def flag(self, column: str) -> bool | None:
        """True, False, or None for an empty field."""
        text = self.text(column).lower()
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        if text:
            self.fail(column, f"{text!r}; write true or false, or nothing")
        return None

    def date(self, column: str) -> float:
        """Seconds since 1970 of a date such as 2017-10-09 07:01:55, which is UTC without a zone."""
        text = self.text(column)
        try:
            parsed_time = datetime.fromisoformat(text)
        except ValueError:
            self.fail(column, f"{text!r}; write a date such as 2017-10-09 07:01:55")
            return 0.0
        return (parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)).timestamp()

    def fail(self, column: str, problem: str) -> None:
        """Record a problem of a field."""
        self._problems.add(f"{self._path}:{self.line}: column {column}", problem)


def rows(
    lines: Iterable[str],
    path: str,
    known: Collection[str],
    required: Collection[str],
    problems: Problems,
) -> Iterator[Row]:
    """The rows of a file with a header; empty lines are left out.

    Unknown and missing columns are problems; no row is read if a required column is missing.
    """
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not _is_usable(header, path, known, required, problems):
            return
        for fields in reader:
            if not any(fields):
                continue
            if len(fields) != len(header):
                problems.add(
                    f"{path}:{reader.line_num}",
                    f"{counted(len(fields), 'field')}; the header has "
                    f"{counted(len(header), 'column')}",
                )
                continue
            stripped = (field.strip() for field in fields)
            yield Row(dict(zip(header, stripped, strict=True)), path, reader.line_num, problems)
    except csv.Error as error:
        problems.add(f"{path}:{reader.line_num}", f"not CSV: {error}; close each quote")


def _is_usable(
    header: list[str],
    path: str,
    known: Collection[str],
    required: Collection[str],
    problems: Problems,
) -> bool:
    if not header:
        problems.add(f"{path}:1", f"the file is empty; write the header {','.join(known)}")
        return False
    for name in sorted({name for name in header if name not in known}):
        problems.add(f"{path}:1: column {name}", f"is not known; columns are {','.join(known)}")
    for name in sorted({name for name in header if header.count(name) > 1}):
        problems.add(f"{path}:1: column {name}", "occurs twice; keep one of them")
    missing = [name for name in required if name not in header]
    for name in missing:
        problems.add(f"{path}:1: column {name}", "is missing; add it to the header")
    return not missing
