"""Backups: one file for both databases, from which a store continues without loss or repetition."""

import gzip
import os
from pathlib import Path

import msgspec
import pytest

from services.history.tests.support import events, ingest
from services.history.tests.test_kills import content
from stromboli.history import backup_command
from stromboli.history.store import backup, database
from stromboli.history.store.database import Database
from stromboli.history.store.writer import Writer
from stromboli.shared import errors

PODS = 30
RECORDS = events.records(*ingest.log_of(PODS))
HALF = len(RECORDS) // 2


async def write(store: Database, begin: int, end: int) -> None:
    """Apply a part of the log, continuing at the store's position."""
    writer = Writer(store)
    assert (await writer.position()).positions.get("batch.events", 0) == begin
    await writer.apply(RECORDS[begin:end], events.position(end))


@pytest.mark.parametrize("target", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
async def test_a_restored_store_continues_behind_its_rows(
    store: Database, target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """From each database to each one: the rest of the log has its effect once."""
    await write(store, 0, HALF)
    file = tmp_path / "history.backup.gz"
    counts = await backup.backup(store, file)
    assert counts["attempts"] > 0
    await write(store, HALF, len(RECORDS))
    if target == "sqlite":
        url = f"sqlite:///{tmp_path / 'restored.db'}"
    else:
        url = request.getfixturevalue("postgres_server").new_database()
    restored = Database(url)
    try:
        assert await backup.restore(restored, file) == counts
        await write(restored, HALF, len(RECORDS))
        assert await content(restored) == await content(store)
    finally:
        await restored.close()


async def test_a_store_that_is_not_empty_is_not_overwritten(
    store: Database, tmp_path: Path
) -> None:
    await write(store, 0, HALF)
    await backup.backup(store, tmp_path / "file")
    before = await content(store)
    with pytest.raises(errors.ConfigurationError, match="into an empty database"):
        await backup.restore(store, tmp_path / "file")
    assert await content(store) == before


@pytest.mark.parametrize("kept", ["no end", "half of the bytes", "another file"])
async def test_an_incomplete_file_changes_nothing(
    store: Database, tmp_path: Path, kept: str
) -> None:
    source = Database(f"sqlite:///{tmp_path / 'source.db'}")
    await source.migrate()
    await write(source, 0, HALF)
    file = tmp_path / "file"
    await backup.backup(source, file)
    await source.close()
    match kept:
        case "no end":
            file.write_bytes(
                gzip.compress(b"\n".join(gzip.decompress(file.read_bytes()).split(b"\n")[:-2]))
            )
        case "half of the bytes":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case _:
            file.write_bytes(b"not a backup")
    before = await content(store)
    with pytest.raises(errors.ConfigurationError, match=r"incomplete|cannot be read"):
        await backup.restore(store, file)
    assert await content(store) == before


async def test_a_file_of_another_version_of_the_tables_is_refused(
    store: Database, tmp_path: Path
) -> None:
    header = backup.Header(format=backup.FORMAT, tables="0001", position="{}")
    file = tmp_path / "file"
    file.write_bytes(gzip.compress(msgspec.json.encode(header) + b"\n"))
    with pytest.raises(errors.ConfigurationError, match="version 0001"):
        await backup.restore(store, file)


async def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    store: Database, tmp_path: Path
) -> None:
    with pytest.raises(errors.ConfigurationError, match="No such file"):
        await backup.backup(store, tmp_path / "missing" / "file")
    assert not any(name.endswith(".part") for name in os.listdir(tmp_path))


def test_the_command_uses_the_database_of_the_settings(tmp_path: Path) -> None:
    made = {"STROM_HISTORY_DATABASE": f"sqlite:///{tmp_path / 'a.db'}"}
    with pytest.raises(SystemExit, match=f"this program {database.HEAD}: start the service once"):
        backup_command.main(["backup", str(tmp_path / "file")], made)
