"""Backups of the store in one portable file: from SQLite to PostgreSQL and back.

A backup is the view of one transaction: all tables, and the position in the log up to which they
are complete. A restored store therefore continues exactly after its rows. The file is compressed
with gzip and contains JSON lines: a ``Header``, ``Part``s of the tables, and an ``End`` with the
number of rows of each table, without which a file is incomplete.
"""

import asyncio
import contextlib
import fcntl
import gzip
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
import sqlalchemy as sa

from stromboli.history.store import database, tables
from stromboli.shared import decoding, errors

FORMAT = "stromboli-history-backup/1"
ROWS_PER_PART = 500
TABLES = {
    str(table.name): table
    for table in tables.METADATA.sorted_tables
    if table.name != tables.READ_UP_TO.name
}
"""All tables but the position, which is in the header."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="header"):
    """The first line. ``tables``: the tables' version; ``position``: see ``tables.READ_UP_TO``."""

    format: str
    tables: str
    position: str


class Part(msgspec.Struct, frozen=True, kw_only=True, tag="part"):
    """A line of the file with rows of one table."""

    table: str
    rows: list[dict[str, Any]]


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """The last line. ``rows``: table -> the number of its rows in the file."""

    rows: dict[str, int]


Line = Header | Part | End
_LINE = decoding.decoder_of(Line)


async def backup(opened: database.Database, file: Path) -> dict[str, int]:
    """Write all rows to a file, which gets its name when it is complete; returns the number of rows
    by table. Raises UnavailableError, ConfigurationError for tables of another version, a file that
    cannot be written or one that another backup is writing. The service may run meanwhile.
    """
    if opened.is_missing:
        raise errors.ConfigurationError(f"backup {file}", f"{opened.address} does not exist")
    await _check_version(opened)
    try:
        with _partial(file) as partial:
            counts = await _write_rows(opened, partial)
            partial.flush()
            await asyncio.to_thread(os.fsync, partial.fileno())
            _partial_name(file).replace(file)
    except OSError as error:
        raise errors.ConfigurationError(f"backup {file}", error.strerror or str(error)) from None
    return counts


async def restore(opened: database.Database, file: Path) -> dict[str, int]:
    """Fill an empty store from a file, in one transaction; returns the number of rows by table.

    Raises ConfigurationError, and changes nothing then, if the store has rows or a position, if the
    file is incomplete or not a backup, or if it is of another version of the tables.
    """
    await opened.migrate()
    what = f"restore {file}"
    counts: dict[str, int] = {}
    expected: dict[str, int] | None = None
    async with opened.transaction() as connection:
        lines = _lines(file)
        position = _header(await asyncio.to_thread(next, lines, None), what).position
        await _claim(connection, position, what)
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            if isinstance(line, End):
                expected = line.rows
            elif isinstance(line, Part) and line.table in TABLES and line.rows:
                await connection.execute(sa.insert(TABLES[line.table]), line.rows)
                counts[line.table] = counts.get(line.table, 0) + len(line.rows)
        if expected is None or {name: n for name, n in expected.items() if n} != counts:
            raise errors.ConfigurationError(what, "the file is incomplete; nothing was restored")
    return expected


async def _write_rows(opened: database.Database, file: IO[bytes]) -> dict[str, int]:
    """Write the lines of all tables as one transaction sees them; returns the rows by table."""
    counts = dict.fromkeys(TABLES, 0)
    with gzip.GzipFile(filename="", fileobj=file, mode="wb") as written:
        async with opened.snapshot() as connection:
            position = (await connection.execute(sa.select(tables.READ_UP_TO))).one().position
            header = Header(format=FORMAT, tables=database.HEAD, position=position)
            await asyncio.to_thread(_write, written, header)
            for name, table in TABLES.items():
                result = await connection.stream(sa.select(table))
                async for rows in result.mappings().partitions(ROWS_PER_PART):
                    counts[name] += len(rows)
                    part = Part(table=name, rows=[_plain(row) for row in rows])
                    await asyncio.to_thread(_write, written, part)
        _write(written, End(rows=counts))
    return counts


@contextlib.contextmanager
def _partial(file: Path) -> Iterator[IO[bytes]]:
    """An empty file beside ``file`` for its content until it is complete. Its lock ends
    with the process: what a killed one left is overwritten. Removed at the end if it still has
    this name. Raises OSError, ConfigurationError while another process writes it."""
    name = _partial_name(file)
    with name.open("ab") as opened:
        # Without its name, another backup has renamed or removed it since we opened it.
        if not (_is_locked(opened) and _has_name(opened, name)):
            reason = f"another backup is writing {name}: repeat when it has finished"
            raise errors.ConfigurationError(f"backup {file}", reason)
        try:
            opened.truncate(0)
            yield opened
        finally:
            if _has_name(opened, name):
                name.unlink()


def _partial_name(file: Path) -> Path:
    return file.with_name(f"{file.name}.part")


def _is_locked(opened: IO[bytes]) -> bool:
    """Lock an open file for this process; returns whether that was possible."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_name(opened: IO[bytes], name: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), name.stat())
    except FileNotFoundError:
        return False


async def _check_version(opened: database.Database) -> None:
    version = await opened.version()
    if version != database.HEAD:
        reason = (
            f"its schema version is {version or 'none'}, and this program needs {database.HEAD}"
        )
        raise errors.ConfigurationError("history store", f"{reason}: start the service once")


def _header(line: Line | None, what: str) -> Header:
    """The header in the first line. Raises ConfigurationError if the file is not a backup, or of
    another version of the tables."""
    if not isinstance(line, Header) or line.format != FORMAT:
        raise errors.ConfigurationError(what, "the file is not a backup of the history")
    if line.tables != database.HEAD:
        reason = f"its schema version is {line.tables}, and this program needs {database.HEAD}"
        next_step = "restore it with the program that wrote it; the service then migrates"
        raise errors.ConfigurationError(what, f"{reason}: {next_step}")
    return line


async def _claim(connection: Any, position: str, what: str) -> None:
    """Set the position of an empty store. A running service reads it again before its next
    batch, since the revision has changed."""
    for name, table in TABLES.items():
        if (await connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1))).first():
            reason = f"the store has {name} already; restore into an empty database"
            raise errors.ConfigurationError(what, reason)
    at = tables.READ_UP_TO
    claimed = await connection.execute(
        sa.update(at)
        .where(at.c.id == 1, at.c.position == "{}")
        .values(revision=at.c.revision + 1, position=position)
    )
    if claimed.rowcount != 1:
        reason = "the store has read the log already; restore into an empty database"
        raise errors.ConfigurationError(what, reason)


def _lines(file: Path) -> Iterator[Line]:
    """The lines of a file. Raises ConfigurationError for a file that cannot be read."""
    try:
        with gzip.open(file, "rb") as opened:
            for line in opened:
                yield _LINE.decode(line)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        reason = f"the file cannot be read: {error}"
        raise errors.ConfigurationError(f"restore {file}", reason) from None


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row with its column names as ``str``: SQLAlchemy uses a subclass."""
    return {str(name): value for name, value in row.items()}


def _write(file: gzip.GzipFile, *lines: Line) -> None:
    file.write(_encoded(lines))


def _encoded(lines: Iterable[Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
