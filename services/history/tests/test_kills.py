"""Kills: wherever the service ends, the store has each record's effect exactly once."""

import asyncio
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from services.history.tests.support import events, ingest
from stromboli.history.store import tables
from stromboli.history.store.database import Database
from stromboli.history.store.writer import Writer
from stromboli.shared import errors

ROOT = Path(__file__).parents[3]
PODS, SIZE = 40, 3
KEPT = (tables.JOBS, tables.ATTEMPTS, tables.PHASES, tables.EVICTIONS, tables.READ_UP_TO)


async def content(store: Database) -> dict[str, list[dict[str, Any]]]:
    """All rows, without the number of transactions."""
    async with store.transaction() as connection:
        found = {}
        for table in KEPT:
            rows = (await connection.execute(sa.select(table))).mappings().all()
            plain = [{k: v for k, v in row.items() if k != "revision"} for row in rows]
            found[table.name] = sorted(plain, key=repr)
    return found


async def expected(tmp_path: Path, size: int) -> dict[str, list[dict[str, Any]]]:
    """What a store contains that nothing interrupted."""
    store = Database(f"sqlite:///{tmp_path / f'expected{size}.db'}")
    await store.migrate()
    writer = Writer(store)
    await writer.position()
    records = events.records(*ingest.log_of(PODS))
    await writer.apply(records, events.position(len(records)))
    found = await content(store)
    await store.close()
    return found


async def test_a_process_that_is_killed_continues_without_loss_or_repetition(
    url: str, tmp_path: Path
) -> None:
    random = Random(7)
    command = [sys.executable, ingest.__file__, url, str(PODS), str(SIZE)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(3):
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        for _ in range(random.randint(1, 8)):
            await process.stdout.readline()
        process.kill()
        await process.communicate()
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env=environment
    )
    printed, _ = await process.communicate()
    assert printed.endswith(b"done\n")
    store = Database(url)
    assert await content(store) == await expected(tmp_path, SIZE)
    await store.close()


class FailingConnections:
    """Fails the statement with a number, counted over all connections."""

    def __init__(self) -> None:
        self.left: int | None = None

    def before(self, *_: Any) -> None:
        """Called before each statement and each commit."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise sa.exc.OperationalError("statement", {}, Exception("connection lost"))


async def test_a_transaction_that_fails_at_any_statement_leaves_nothing(
    url: str, tmp_path: Path
) -> None:
    """Each statement of a batch fails once, then its commit."""
    failing = FailingConnections()
    listened = (("before_cursor_execute", failing.before), ("commit", failing.before))
    for name, listener in listened:
        sa.event.listen(sa.engine.Engine, name, listener)
    try:
        store = Database(url)
        await store.migrate()
        records = events.records(*ingest.log_of(PODS))
        number, failures = 0, 0
        begin = 0
        while begin < len(records):
            end = min(begin + 7, len(records))
            writer = Writer(store)
            assert (await writer.position()).positions.get("batch.events", 0) == begin
            failing.left = number
            try:
                await writer.apply(records[begin:end], events.position(end))
            except errors.UnavailableError:
                number, failures = number + 1, failures + 1
            else:
                begin, number = end, 0
            failing.left = None
        assert failures > len(records) / 7 * 5
        found = await content(store)
        await store.close()
    finally:
        for name, listener in listened:
            sa.event.remove(sa.engine.Engine, name, listener)
    assert found == await expected(tmp_path, 7)


@pytest.mark.real
async def test_a_server_that_is_killed_loses_nothing_that_was_applied(
    postgres_server: Any, tmp_path: Path
) -> None:
    store = Database(postgres_server.new_database())
    await store.migrate()
    writer = Writer(store)
    await writer.position()
    records = events.records(*ingest.log_of(PODS))
    half = len(records) // 2
    await writer.apply(records[:half], events.position(half))
    await asyncio.to_thread(postgres_server.kill)
    with pytest.raises(errors.UnavailableError):
        await writer.apply(records[half:], events.position(len(records)))
    await asyncio.to_thread(postgres_server.start)
    await writer.apply(records[half:], events.position(len(records)))
    found = await content(store)
    await store.close()
    assert found == await expected(tmp_path, 1)
