"""How commands show what they found: tables for people, JSON and YAML for programs.

On a terminal tables are Rich's, with colours; elsewhere they are plain text. Columns are always as
wide as their widest cell: nothing is ever cut. Libraries are imported only where they are needed.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from stromboli.shared.api import kinds

if TYPE_CHECKING:
    from rich.table import Table

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
WIDE = 10_000
"""Columns of a table on a terminal: a narrow one wraps the line, and a name can still be copied."""
NONE = "-"
"""Stands where there is nothing, so that every row has the same number of words for ``awk``."""


class Format(StrEnum):
    """What ``--output`` takes where objects are shown."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_table(self) -> bool:
        """Whether people are to read it."""
        return self in (Format.TABLE, Format.WIDE)


class Shape(StrEnum):
    """What ``--output`` takes where something is shown that is no object."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def show_lines(lines: Iterable[str]) -> None:
    """Plain lines on stdout."""
    for line in lines:
        typer.echo(line)


def show_note(line: str) -> None:
    """A line for people on stderr, where it is in no program's way."""
    typer.echo(line, err=True)


def show_none(what: str, namespace: str | None = None) -> None:
    """That a list is empty, and where one has looked: the namespace may be a slip of the pen."""
    show_note(f"No {what} found in namespace {namespace}." if namespace else f"No {what} found.")


def show_trouble(lines: Sequence[str]) -> None:
    """What went wrong, on stderr, the first line in red where there are colours."""
    for number, line in enumerate(lines):
        typer.secho(line, err=True, fg=None if number else "red", color=colour())


def colour() -> bool | None:
    """False where the user wants no colours (no-color.org) or the terminal has none; else None:
    the stream decides."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return False if is_plain else None


def show_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: Rich's on a terminal, plain elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console(width=WIDE).print(rich_table(headers, rows))
    else:
        show_lines(plain_table(headers, rows))


def filled(
    headers: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The same without a last column in which nothing stands."""
    if any(row[-1] for row in rows):
        return headers, rows
    return headers[:-1], [row[:-1] for row in rows]


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table's lines without trailing blanks. An empty cell shows as ``-``."""
    cells = [list(headers), *([cell or NONE for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def show_objects(
    wanted: Format, kind: "Kind[Any]", raws: Sequence[bytes | msgspec.Raw], *, many: bool = False
) -> None:
    """Objects for programs: their names, or themselves as JSON or YAML (``many``: as a List)."""
    if wanted is Format.NAME:
        show_lines(title(kind, kinds.metadata_of(raw).name) for raw in raws)
        return
    documents = [named(kind, raw) for raw in raws]
    show_document(wanted, as_list(documents) if many else documents[0])


def title(kind: "Kind[Any]", name: str) -> str:
    """An object as ``kubectl`` names it: ``job.batch.volcano.sh/train``, ``pod/train-0``."""
    return f"{kind.kind.lower()}{'.' if kind.group else ''}{kind.group}/{name}"


def named(kind: "Kind[Any]", raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """An object with its kind, which an API server leaves out in lists."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **msgspec.json.decode(raw)}


def show_document(wanted: Format | Shape, document: Any) -> None:
    """A JSON document, indented, or as YAML."""
    if wanted == "yaml":
        import yaml  # 20 ms that tables need not pay

        typer.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    else:
        typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def encoded(document: Any) -> bytes:
    """A document as JSON."""
    return msgspec.json.encode(document)


def as_list(documents: Sequence[Any]) -> dict[str, Any]:
    """Objects as one object, as ``kubectl`` shows several."""
    return {"apiVersion": "v1", "kind": "List", "items": list(documents)}


def age(created: datetime | None, now: datetime) -> str:
    """How long ago, in the two units that matter, as ``kubectl`` has it: ``45s``, ``3m20s``."""
    if created is None:
        return NONE
    seconds = max(int((now - created) / timedelta(seconds=1)), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, unit: str, small: int, below: str) -> str:
    return f"{large}{unit}{small}{below}" if small else f"{large}{unit}"


def rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> "Table":
    """The table for a terminal: bold headers, phases in their colours."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0))
    for header in headers:
        table.add_column(header, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell or NONE, style=STYLES.get(cell, "")) for cell in row))
    return table
