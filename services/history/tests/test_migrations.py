"""Rules of the migrations of a store, on SQLite and on a real PostgreSQL."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from services.history.tests.test_store import RUN, apply, attempts
from stromboli.history.store import database, tables
from stromboli.history.store.database import Database
from stromboli.shared import errors


async def test_migrations_go_back_and_forward_and_make_the_tables_of_the_code(url: str) -> None:
    store = Database(url)
    await store.migrate()
    await apply(store, *RUN)
    async with store.transaction() as connection:
        differences = await connection.run_sync(_differences)
        assert differences == []
        await connection.run_sync(lambda it: database.downgrade(it, "base"))
        left = await connection.run_sync(lambda it: sa.inspect(it).get_table_names())
        assert left == ["alembic_version"]
    await store.migrate()
    await apply(store, *RUN)
    assert len(await attempts(store)) == 1
    await store.close()


async def test_stores_of_one_process_migrate_side_by_side(tmp_path: Path) -> None:
    """Alembic keeps the current migration in a variable of the process."""
    stores = [Database(f"sqlite:///{tmp_path / name}") for name in ("one.db", "two.db")]
    await asyncio.gather(*(store.migrate() for store in stores))
    assert [await store.version() for store in stores] == [database.HEAD] * 2
    for store in stores:
        await store.close()


def _differences(connection: sa.Connection) -> list[Any]:
    from alembic import autogenerate, migration

    found: list[Any] = autogenerate.compare_metadata(
        migration.MigrationContext.configure(connection), tables.METADATA
    )
    return found


async def test_tables_of_a_later_version_are_not_touched(store: Database) -> None:
    async with store.transaction() as connection:
        await connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(errors.ConfigurationError, match="9999"):
        await store.migrate()
