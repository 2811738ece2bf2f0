"""The stores of the tests: SQLite in a file, and a real PostgreSQL."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stromboli.history.store.database import Database
from stromboli.testkit.parts import postgres
from stromboli.testkit.parts.fixtures import skip_is_forbidden


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL of this session; skips, or fails where skipping is forbidden."""
    try:
        with postgres.running() as server:
            yield server
    except postgres.PostgresMissingError as error:
        if skip_is_forbidden():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'history.db'}"
    server: postgres.Server = request.getfixturevalue("postgres_server")
    return server.new_database()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite store with its tables and no rows: migrations cost 0.2 s of CPU, a copy nothing."""
    file = tmp_path_factory.mktemp("migrated") / "history.db"

    async def migrate() -> None:
        database = Database(f"sqlite:///{file}")
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
    return file


@pytest.fixture
async def store(url: str, migrated_file: Path) -> AsyncIterator[Database]:
    """A store with its tables."""
    database = Database(url)
    if database.is_missing:
        shutil.copy(migrated_file, url.removeprefix("sqlite:///"))
    await database.migrate()
    yield database
    await database.close()
