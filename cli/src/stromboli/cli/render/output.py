"""Output of commands: tables for users, JSON and YAML for programs.

Columns are as wide as their widest cell: nothing is truncated. On a terminal, tables have colours,
and one that is wider than the terminal gets another layout (``table``); programs always get the
same output. Libraries are imported only where they are needed.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import msgspec

    from stromboli.shared.api.kinds import Kind

STYLES = {
    "Running": "cyan",
    "Completed": "green",
    "Succeeded": "green",
    "Open": "green",
    "Pending": "yellow",
    "Restarting": "yellow",
    "Failed": "red",
    "Aborted": "red",
    "Terminated": "red",
    "Closed": "red",
}
"""Colours of phases and states, wherever a cell is exactly one of these."""
GAP = "   "
NONE = "-"
"""The text of an empty cell, so that every row has the same number of fields for ``awk``."""
EMPTY = ("", NONE, "0")
"""Cells without information."""
ZERO_IS_A_VALUE = ("INDEX", "EXIT", "EXIT CODE")
"""Columns in which 0 is not a count: without its index a row does not identify its pod."""
LAST_AT_LEAST = 24
"""Minimum width at which the last cell of a row is wrapped beside the others, and not below
them.
"""


class Format(StrEnum):
    """Values of ``--output`` for Kubernetes objects."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_table(self) -> bool:
        """Whether the output is for users, not for programs."""
        return self in (Format.TABLE, Format.WIDE)


class DocumentFormat(StrEnum):
    """Values of ``--output`` for output that is not a Kubernetes object."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show_lines(lines: Iterable[str]) -> None:
    """Print plain lines on stdout."""
    for line in lines:
        typer.echo(line)


def facts(*pairs: tuple[str, str]) -> list[str]:
    """Labels with their values, one fact per line."""
    width = max(len(label) for label, _ in pairs)
    return [f"{label:<{width}} {text}" for label, text in pairs]


def show_note(line: str) -> None:
    """Print a line for users on stderr, so that programs can parse stdout."""
    typer.echo(line, err=True)


def show_empty_list(
    what: str, namespace: str | None = None, *, unfiltered: int = 0, is_filtered: bool = False
) -> None:
    """Report an empty list and its namespace, which may be a typo. ``unfiltered``: how many entries
    the list has without its filter; ``is_filtered``: it has a filter, and that number is unknown.
    """
    where = f" in namespace {namespace}" if namespace else ""
    if unfiltered or is_filtered:
        more = f" ({unfiltered} without it)" if unfiltered else ""
        show_note(f"No {what}{where} match the filter{more}.")
    else:
        show_note(f"No {what} found{where}.")


def show_error(lines: Sequence[str]) -> None:
    """Print an error to stderr, its first line in red if colours are on."""
    for number, line in enumerate(lines):
        typer.secho(line, err=True, fg=None if number else "red", color=colour())


def colour() -> bool | None:
    """False if the user disables colours (no-color.org) or the terminal has none; otherwise None:
    the stream decides.
    """
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return False if is_plain else None


def show_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: in colours and as wide as the terminal if stdout is one, else plain."""
    show_lines(table(headers, rows, columns()) if sys.stdout.isatty() else plain(headers, rows))


def streaming_table(headers: Sequence[str]) -> "StreamingTable":
    """A table to which rows can be added: as wide as the terminal if stdout is one, else plain."""
    return StreamingTable(headers, columns() if sys.stdout.isatty() else None)


def columns() -> int:
    """The width of the terminal; ``COLUMNS`` overrides it."""
    return shutil.get_terminal_size().columns


class StreamingTable:
    """A table that grows: one header, columns that only ever widen. On a terminal that is too
    narrow it uses the layout of ``table``, but keeps all columns, because later rows may have
    values there. ``width``: the terminal's columns, None for programs.
    """

    def __init__(self, headers: Sequence[str], width: int | None = None) -> None:
        self._headers = headers
        self._width = width
        self._has_begun = False
        self._widths = [len(header) for header in headers]

    def show(self, rows: Sequence[Sequence[str]]) -> None:
        """Print further rows immediately, also to a pipe."""
        cells = _filled_cells(rows)
        self._widths = [
            max(width, *map(len, column))
            for width, column in zip(self._widths, zip(*cells, strict=True), strict=True)
        ]
        show_lines(self._lines(cells))
        sys.stdout.flush()

    def _lines(self, cells: Sequence[Sequence[str]]) -> list[str]:
        has_colours = self._width is not None
        before = sum(self._widths[:-1]) + len(GAP) * (len(self._widths) - 1)
        if self._width is not None and before + self._widths[-1] > self._width:
            left = self._width - before
            if left < LAST_AT_LEAST:
                return [line for row in cells for line in _block(self._headers, row, self._width)]
            cells = _wrapped(cells, left)
        lines = [_line(row, self._widths, has_colours) for row in cells]
        if not self._has_begun:
            lines.insert(0, _line(self._headers, self._widths, has_colours, bold=True))
            self._has_begun = True
        return lines


def without_empty_last_column(
    headers: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Headers and rows without an empty last column."""
    if any(row[-1] for row in rows):
        return headers, rows
    return headers[:-1], [row[:-1] for row in rows]


def plain(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table's lines without trailing blanks. An empty cell shows as ``-``."""
    return _lines(headers, _filled_cells(rows), has_colours=False)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The table's lines for a terminal of this width, with colours.

    A table that is too wide first loses its empty columns; then the last column is wrapped, if it
    has room; else each row becomes a block: its name, and its values below it.
    """
    cells = _filled_cells(rows)
    if _width(headers, cells) > width:
        headers, cells = _without_empty_columns(headers, cells)
    if _width(headers, cells) <= width:
        return _lines(headers, cells, has_colours=True)
    left = width - _width(headers[:-1], [row[:-1] for row in cells]) - len(GAP)
    if left >= LAST_AT_LEAST:
        return _lines(headers, _wrapped(cells, left), has_colours=True)
    return [line for row in cells for line in _block(headers, row, width)]


def _filled_cells(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[cell or NONE for cell in row] for row in rows]


def _widths(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(headers, *cells, strict=True)]


def _width(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    widths = _widths(headers, cells)
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _lines(
    headers: Sequence[str], cells: Sequence[Sequence[str]], *, has_colours: bool
) -> list[str]:
    widths = _widths(headers, cells)
    return [
        _line(headers, widths, has_colours, bold=True),
        *(_line(row, widths, has_colours) for row in cells),
    ]


def _line(
    row: Sequence[str], widths: Sequence[int], has_colours: bool, *, bold: bool = False
) -> str:
    padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    padded[-1] = padded[-1].rstrip()
    if has_colours:
        padded = [_styled(cell, bold=bold) for cell in padded]
    return GAP.join(padded).rstrip()


def _styled(cell: str, *, bold: bool = False) -> str:
    style = STYLES.get(cell.rstrip())
    if colour() is False or not (style or bold):
        return cell
    return typer.style(cell, fg=style, bold=bold or None)


def _without_empty_columns(
    headers: Sequence[str], cells: Sequence[Sequence[str]]
) -> tuple[Sequence[str], list[list[str]]]:
    """The table without its empty columns; the first column is always kept."""
    kept = [
        number
        for number, header in enumerate(headers)
        if number == 0 or any(not _is_empty(header, row[number]) for row in cells)
    ]
    return [headers[number] for number in kept], [[row[number] for number in kept] for row in cells]


def _is_empty(header: str, cell: str) -> bool:
    return cell in EMPTY and not (cell == "0" and header in ZERO_IS_A_VALUE)


def _wrapped(cells: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Rows whose last cell continues in further rows."""
    wrapped_rows = []
    for row in cells:
        first, *more = textwrap.wrap(row[-1], width) or [NONE]
        wrapped_rows.append([*row[:-1], first])
        wrapped_rows += [[""] * (len(row) - 1) + [line] for line in more]
    return wrapped_rows


def _block(headers: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """A row on a narrow terminal: its name, and its values below it."""
    name, *cells = row
    label = max(map(len, headers))
    room = max(width - label - 4, 8)
    lines = [_styled(name, bold=True)]
    for header, cell in zip(headers[1:], cells, strict=True):
        if _is_empty(header, cell):
            continue
        for number, part in enumerate(textwrap.wrap(cell, room, break_long_words=False)):
            lines.append(f"  {'' if number else header:<{label}}  {_styled(part)}")
    return lines


def show_objects(
    wanted: Format, kind: "Kind[Any]", raws: "Sequence[bytes | msgspec.Raw]", *, many: bool = False
) -> None:
    """Print objects for programs: their names, or JSON or YAML (``many``: a List)."""
    from stromboli.shared.api import kinds

    if wanted is Format.NAME:
        show_lines(title(kind, kinds.metadata_of(raw).name) for raw in raws)
        return
    documents = [with_type_meta(kind, raw) for raw in raws]
    show_document(wanted, as_list(documents) if many else documents[0])


def title(kind: "Kind[Any]", name: str) -> str:
    """An object as ``kubectl`` names it: ``job.batch.volcano.sh/train``, ``pod/train-0``."""
    return f"{kind.kind.lower()}{'.' if kind.group else ''}{kind.group}/{name}"


def show_stream_document(wanted: Format, document: Any) -> None:
    """Print one document of a stream: a line of JSON, or YAML after ``---``."""
    if wanted is Format.YAML:
        show_lines(["---"])
        show_document(wanted, document)
    else:
        show_lines([encoded(document).decode()])
    sys.stdout.flush()


def with_type_meta(kind: "Kind[Any]", raw: "bytes | msgspec.Raw") -> dict[str, Any]:
    """An object with its kind, which an API server leaves out in lists."""
    import msgspec

    return {"apiVersion": kind.api_version, "kind": kind.kind, **msgspec.json.decode(raw)}


def show_document(wanted: Format | DocumentFormat, document: Any) -> None:
    """Print a document as indented JSON or as YAML."""
    if wanted == "yaml":
        import yaml  # 20 ms that tables need not pay

        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    else:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def encoded(document: Any) -> bytes:
    """A document as JSON."""
    import msgspec

    return msgspec.json.encode(document)


def as_list(documents: Sequence[Any]) -> dict[str, Any]:
    """Several objects as one List, as ``kubectl`` prints them."""
    return {"apiVersion": "v1", "kind": "List", "items": list(documents)}


def age(created: datetime | None, now: datetime) -> str:
    """The time since ``created`` in two units, as ``kubectl`` shows it: ``45s``, ``3m20s``."""
    if created is None:
        return NONE
    seconds = max(int((now - created) / timedelta(seconds=1)), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two_units(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two_units(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two_units(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def duration(began: datetime | None, ended: datetime) -> str:
    """The length of a run, rounded to a second: its start is observed with a longer delay than its
    end, so a run of one second is measured as 0.9 s."""
    return age(began, ended + timedelta(milliseconds=500))


def _two_units(large: int, unit: str, small: int, below: str) -> str:
    return f"{large}{unit}{small}{below}" if small else f"{large}{unit}"
