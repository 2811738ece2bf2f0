"""Backups: one file for both databases, from which a store continues without loss or repetition."""

import asyncio
import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from services.history.tests.support import events, ingest
from services.history.tests.test_kills import content
from services.history.tests.test_service import Facts, publish, running, states
from stromboli.cli import main
from stromboli.embedded.bus import EmbeddedBus
from stromboli.history import backup_command
from stromboli.history.core import folding
from stromboli.history.core.rows import Rows
from stromboli.history.store import backup, database, tables
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


@pytest.mark.parametrize("target", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
async def test_a_lost_store_is_restored_while_the_log_goes_on(
    url: str, target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Backups are written while the service applies events. Its store is lost after more events;
    from each backup it catches up with the log, and equals an independent fold of all events."""
    files = [tmp_path / f"{number}.gz" for number in range(3)]
    log = ingest.log_of(PODS)
    async with EmbeddedBus(tmp_path / "log.db") as bus:
        async with running(bus, url, Facts()) as service:
            await publish(bus, log[0])
            assert await states(service) == []
            writing = asyncio.create_task(publish(bus, *log[1:]))
            for file in files:
                opened = Database(url)
                await backup.backup(opened, file)
                await opened.close()
                await states(service)
            await writing
        for number, file in enumerate(files):
            made = f"sqlite:///{tmp_path / f'restored{number}.db'}"
            if target != "sqlite":
                made = request.getfixturevalue("postgres_server").new_database()
            restored = Database(made)
            await backup.restore(restored, file)
            async with running(bus, made, Facts()) as service:
                await states(service)
            assert await attempts_of(restored) == folded(log)
            await restored.close()


async def attempts_of(store: Database) -> dict[str, tuple[str, int | None]]:
    """State and end of each attempt in a store."""
    async with store.transaction() as connection:
        found = (await connection.execute(sa.select(tables.ATTEMPTS))).all()
    return {row.pod_uid: (row.state, row.ended_at) for row in found}


def folded(log: Sequence[msgspec.Struct]) -> dict[str, tuple[str, int | None]]:
    """State and end of each attempt after a fold of all events in memory."""
    rows = Rows()
    for number, message in enumerate(log):
        folding.fold(rows, folding.Event(str(number), events.at(0), message))
    return {uid: (row.state, row.ended_at) for uid, row in rows.attempts.items()}


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
    with pytest.raises(errors.ConfigurationError, match="schema version is 0001"):
        await backup.restore(store, file)


async def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    store: Database, tmp_path: Path
) -> None:
    with pytest.raises(errors.ConfigurationError, match="No such file"):
        await backup.backup(store, tmp_path / "missing" / "file")
    assert not any(name.endswith(".part") for name in os.listdir(tmp_path))


def test_the_command_uses_the_database_of_the_settings(tmp_path: Path) -> None:
    """It creates no database that it cannot find."""
    file = tmp_path / "a.db"
    made = {"STROM_HISTORY_DATABASE": f"sqlite:///{file}"}
    with pytest.raises(SystemExit, match=f"sqlite:///{file} does not exist"):
        backup_command.main(["backup", str(tmp_path / "file")], made)
    assert not file.exists()
    file.touch()
    with pytest.raises(SystemExit, match=f"this program needs {database.HEAD}: start the service"):
        backup_command.main(["backup", str(tmp_path / "file")], made)


def test_strom_history_backup_and_restore_are_commands_beside_the_list(tmp_path: Path) -> None:
    """``strom up``'s database is the default."""
    source, target = (f"sqlite:///{tmp_path / name}" for name in ("a.db", "b.db"))
    asyncio.run(filled(source))
    file = str(tmp_path / "file.gz")
    runner = CliRunner()
    for action, url in (("backup", source), ("restore", target)):
        done = runner.invoke(main.app, ["history", action, file, "--database", url])
        assert (done.exit_code, "1 attempts" in done.output) == (0, True), done.output
    refused = runner.invoke(main.app, ["history", "restore", file, "--database", target])
    assert (refused.exit_code, "into an empty database" in refused.output) == (1, True)
    missing = runner.invoke(main.app, ["history", "backup", file, "--state", str(tmp_path)])
    assert f"{tmp_path}/embedded/history.db does not exist" in missing.output


async def filled(url: str) -> None:
    """Create a store with one attempt."""
    store = Database(url)
    await store.migrate()
    writer = Writer(store)
    await writer.position()
    await writer.apply(events.records(events.task("Pending", 0)), events.position(1))
    await store.close()
