"""Connections to SQLite and PostgreSQL: what differs between them, errors, migrations."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext import asyncio as sa_asyncio

from stromboli.shared import errors

HEAD = "0012"
"""The version of the tables that this code reads and writes."""
MIGRATIONS = Path(__file__).parent / "migrations"
DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
_MIGRATING = threading.Lock()
"""Alembic keeps the current migration in a global variable, which several threads and event
loops share."""
LIMIT_EXCEEDED = "54"
"""PostgreSQL's class of errors for a value or statement that exceeds a limit of the server, such as
a text that no index holds."""
MIGRATION_PAUSE_S = 0.05
MIGRATION_LOCK = 0x5742_0001
"""Key of PostgreSQL's advisory lock: of several replicas one migrates."""
_SQLITE = (
    "PRAGMA journal_mode = WAL",
    # Without a wait for the disk: after a power failure the last transactions may be missing, with
    # their positions, and are read from the log again.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA busy_timeout = 5000",
)


class RecordRejectedError(Exception):
    """The database rejects the values of a record; a retry does not help."""


class Database:
    """A pool of connections. ``url``: ``sqlite:///FILE`` or ``postgresql://...``."""

    def __init__(self, url: str, password: str = "", instance: str = "history") -> None:
        self._url = with_driver(url)
        if password:
            self._url = self._url.set(password=password)
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        named = {} if self.is_sqlite else {"server_settings": {"application_name": instance}}
        self._engine = sa_asyncio.create_async_engine(
            self._url,
            connect_args=named,
            # A connection that the server closed is replaced before it is used.
            pool_pre_ping=True,
        )
        if self.is_sqlite:
            sa.event.listen(self._engine.sync_engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine.sync_engine, "begin", _begin)

    @property
    def address(self) -> str:
        """The URL without the driver and the password."""
        return self._url.set(drivername=self._url.get_backend_name()).render_as_string()

    @property
    def is_missing(self) -> bool:
        """Whether it is a file that does not exist: connecting would create it."""
        return self.is_sqlite and not Path(self._url.database or "").exists()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[sa_asyncio.AsyncConnection]:
        """A transaction, committed at the end. Raises UnavailableError, also for a full disk, and
        RecordRejectedError."""
        try:
            async with self._engine.begin() as connection:
                yield connection
        except (exc.SQLAlchemyError, OSError, TimeoutError) as error:
            if is_of_values(error):
                raise RecordRejectedError(_reason(error)) from None
            raise errors.UnavailableError("history store", _reason(error)) from None

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[sa_asyncio.AsyncConnection]:
        """A transaction with one view of the rows for all its statements, for reading."""
        async with self.transaction() as connection:
            if not self.is_sqlite:  # SQLite's transactions see one state anyway
                isolation = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
                await connection.execute(sa.text(isolation))
            yield connection

    async def migrate(self) -> None:
        """Bring the tables to this code's version. Raises UnavailableError, ConfigurationError for
        tables of a later version."""
        async with _one_migration(), self.transaction() as connection:
            if await connection.run_sync(_version) == HEAD:
                return  # Alembic costs 0.2 s of CPU
            if not self.is_sqlite:
                await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            await connection.run_sync(upgrade)

    async def version(self) -> str:
        """The version of the tables; empty if there are none. Raises UnavailableError."""
        async with self.transaction() as connection:
            return await connection.run_sync(_version)

    def insert(self, table: sa.Table) -> Any:
        """An INSERT of this database's dialect, which has ``on_conflict_do_update``."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.shield(self._engine.dispose())


@contextlib.asynccontextmanager
async def _one_migration() -> AsyncIterator[None]:
    while not _MIGRATING.acquire(blocking=False):  # noqa: ASYNC110 - a lock of threads has no event
        await asyncio.sleep(MIGRATION_PAUSE_S)
    try:
        yield
    finally:
        _MIGRATING.release()


def is_of_values(error: BaseException) -> bool:
    """Whether the database rejects the values of a statement, so that a retry does not help."""
    if isinstance(error, exc.DataError | exc.IntegrityError):
        return True
    # The driver has no class of its own for these.
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return isinstance(state, str) and state.startswith(LIMIT_EXCEEDED)


def with_driver(url: str) -> sa.URL:
    """The URL with the driver that this service uses. Raises ConfigurationError."""
    try:
        parsed_url = sa.make_url(url)
        driver = DRIVERS[parsed_url.get_backend_name()]
    except (exc.ArgumentError, KeyError):
        reason = "write sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        raise errors.ConfigurationError("STROM_HISTORY_DATABASE", reason) from None
    return parsed_url.set(drivername=driver)


def upgrade(connection: sa.Connection, to: str = HEAD) -> None:
    """Run the migrations up to a version."""
    from alembic import command

    try:
        command.upgrade(_configuration(connection), to)
    except Exception as error:
        if type(error).__name__ == "CommandError":  # imported only where it is raised
            raise errors.ConfigurationError("history store", str(error)) from None
        raise


def downgrade(connection: sa.Connection, to: str) -> None:
    """Run the migrations back to a version; ``base`` drops all tables."""
    from alembic import command

    command.downgrade(_configuration(connection), to)


def _configuration(connection: sa.Connection) -> Any:
    from alembic import config

    alembic_config = config.Config()
    alembic_config.set_main_option("script_location", str(MIGRATIONS))
    alembic_config.attributes["connection"] = connection
    return alembic_config


def _version(connection: sa.Connection) -> str:
    """The version of the tables; empty if there are none."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return ""
    return str(connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar())


def _prepare_sqlite(connection: Any, _: object) -> None:
    # The driver's own transactions leave DDL outside; this way a migration is one transaction.
    connection.isolation_level = None
    cursor = connection.cursor()
    for line in _SQLITE:
        cursor.execute(line)
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _reason(error: BaseException) -> str:
    """The database's error message, without the statement and its values."""
    origin = getattr(error, "orig", None) or error
    return " ".join(str(origin).split())[:300] or type(origin).__name__
