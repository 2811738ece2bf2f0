"""The stores of the tests: SQLite in a file, and a real PostgreSQL."""

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


@pytest.fixture
async def store(url: str) -> AsyncIterator[Database]:
    """A store with its tables."""
    database = Database(url)
    await database.migrate()
    yield database
    await database.close()
