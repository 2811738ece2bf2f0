"""Kills during backups, restores and migrations: afterwards either the old or the new state is
usable, and the same command, repeated, either finishes or says what to do."""

import asyncio
import os
from pathlib import Path

import pytest

from services.history.tests.support import events, ingest, kills
from services.history.tests.test_kills import content
from stromboli.history.store import backup, database
from stromboli.history.store.database import Database
from stromboli.history.store.writer import Writer
from stromboli.shared import errors

pytestmark = pytest.mark.timeout(600)

PODS = 30
RECORDS = events.records(*ingest.log_of(PODS))
HALF = len(RECORDS) // 2
KILLED_WHILE_IT_CREATES_TABLES = 40


async def write(store: Database, begin: int, end: int) -> None:
    """Apply a part of the log."""
    writer = Writer(store)
    await writer.position()
    await writer.apply(RECORDS[begin:end], events.position(end))


async def restored(file: Path, number: int) -> dict[str, object]:
    """The rows of a backup, restored into a database of its own."""
    store = Database(f"sqlite:///{file.parent / f'check{number}.db'}")
    try:
        await backup.restore(store, file)
        return dict(await content(store))
    finally:
        await store.close()


async def test_a_backup_that_is_killed_before_any_step_leaves_the_last_one(
    store: Database, url: str, tmp_path: Path
) -> None:
    """The file has all rows of the last backup or of the new one, and the next backup is made as
    if there had been no kill."""
    file = tmp_path / "files" / "history.gz"
    file.parent.mkdir()
    await write(store, 0, HALF)
    await backup.backup(store, file)
    before, bytes_before = dict(await content(store)), file.read_bytes()
    await write(store, HALF, len(RECORDS))
    after = dict(await content(store))
    step = 0
    while await kills.killed_before(step, backup.backup, url, file):
        if file.read_bytes() == bytes_before:
            assert await restored(file, step) == before
        else:
            assert await restored(file, step) == after
        await backup.backup(store, file)
        assert await restored(file, step + 1000) == after
        assert not file.with_name("history.gz.part").exists()
        file.write_bytes(bytes_before)
        step += 1
    assert step > len(backup.TABLES)
    assert await restored(file, step) == after


async def test_a_restore_that_is_killed_before_any_step_is_repeated(
    url: str, tmp_path: Path
) -> None:
    """It leaves an empty store, into which the same command restores, or the complete one."""
    source = Database(f"sqlite:///{tmp_path / 'source.db'}")
    await source.migrate()
    await write(source, 0, len(RECORDS))
    file = tmp_path / "history.gz"
    await backup.backup(source, file)
    expected = await content(source)
    await source.close()
    store = Database(url)
    assert await kills.killed_before(KILLED_WHILE_IT_CREATES_TABLES, backup.restore, url, file)
    assert await store.version() == ""
    await store.migrate()
    empty = await content(store)
    step = 0
    while await kills.killed_before(step, backup.restore, url, file):
        assert await content(store) == empty
        step += 1
    assert step > len(backup.TABLES)
    assert await content(store) == expected
    with pytest.raises(errors.ConfigurationError, match="restore into an empty database"):
        await backup.restore(store, file)
    await store.close()


async def test_a_migration_that_is_killed_before_any_step_is_repeated(
    store: Database, url: str, tmp_path: Path
) -> None:
    """It leaves the version before it with all rows: a migration is one transaction."""
    await write(store, 0, len(RECORDS))
    expected = await content(store)
    step, first = 0, "0008"
    async with store.transaction() as connection:
        await connection.run_sync(lambda it: database.downgrade(it, first))
    while await kills.killed_before(step, migrate, url, tmp_path / "unused" / "file"):
        assert await store.version() == first
        step += 1
    assert step > 20
    assert await store.version() == database.HEAD
    assert await content(store) == expected


async def migrate(opened: Database, _: Path) -> None:
    """As the service does at its start."""
    await opened.migrate()


async def test_of_two_backups_into_one_file_the_second_is_refused(
    store: Database, tmp_path: Path
) -> None:
    """As those of a schedule of which one takes longer than its interval: both would write into one
    partial file, and the first to finish would name it as complete."""
    file = tmp_path / "history.gz"
    await write(store, 0, len(RECORDS))
    found = await asyncio.gather(
        *(backup.backup(store, file) for _ in range(2)), return_exceptions=True
    )
    refused = [it for it in found if isinstance(it, BaseException)]
    assert [type(it) for it in refused] == [errors.ConfigurationError], found
    assert "another backup is writing" in str(refused[0])
    assert await restored(file, 0) == await content(store)


async def test_a_database_that_fails_during_a_backup_leaves_no_partial_file(
    store: Database, tmp_path: Path
) -> None:
    await write(store, 0, HALF)
    async with store.transaction() as connection:
        await connection.exec_driver_sql("DROP TABLE queue_chunks")
    with pytest.raises(errors.UnavailableError, match="queue_chunks"):
        await backup.backup(store, tmp_path / "files.gz")
    assert not any(name.startswith("files") for name in os.listdir(tmp_path))
