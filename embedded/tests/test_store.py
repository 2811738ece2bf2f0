"""When a write counts, in which order, and what follows from one that fails."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from sqlite3 import Connection

import pytest

from stromboli.embedded.store import Store
from stromboli.shared import errors

SCHEMA = ("CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY)",)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(tmp_path / "store", SCHEMA)
    await opened.open()
    yield opened
    await opened.close()


def insert(number: int, database: Connection) -> int:
    database.execute("INSERT INTO numbers VALUES (?)", (number,))
    return number


def numbers(database: Connection) -> list[int]:
    return [number for (number,) in database.execute("SELECT number FROM numbers ORDER BY number")]


def fail(database: Connection) -> None:
    database.execute("INSERT INTO no_such_table VALUES (1)")


async def test_a_read_sees_every_write_requested_before(store: Store) -> None:
    """Even if the writes were not awaited."""
    for number in range(100):
        store.write(lambda database, number=number: insert(number, database))  # type: ignore[misc]  # binds the number
    assert await store.read(numbers) == list(range(100))


async def test_then_is_called_in_the_order_of_the_writes_before_any_watcher(
    store: Store,
) -> None:
    seen: list[str] = []

    async def write(number: int) -> None:
        await store.write(
            lambda database: insert(number, database), lambda found: seen.append(f"then {found}")
        )
        seen.append(f"heard {number}")

    await asyncio.gather(*(write(number) for number in range(3)))
    for number in range(3):
        assert seen.index(f"then {number}") < seen.index(f"heard {number}")
    assert [entry for entry in seen if entry.startswith("then")] == ["then 0", "then 1", "then 2"]


async def test_a_write_that_is_not_awaited_is_written_and_notified(store: Store) -> None:
    """A cancelled caller does not undo it, and what depends on it must know."""
    seen: list[int] = []
    future = store.write(lambda database: insert(7, database), seen.append)
    future.cancel()
    assert await store.read(numbers) == [7]
    assert seen == [7]


async def test_a_failed_write_stops_the_store(store: Store, tmp_path: Path) -> None:
    """Earlier writes are stored, later ones are not, and a reopened store works."""
    await store.write(lambda database: insert(1, database))
    failing = store.write(fail)
    behind = store.write(lambda database: insert(2, database))
    for future in (failing, behind):
        with pytest.raises(errors.UnavailableError, match="no_such_table"):
            await future
    with pytest.raises(
        errors.UnavailableError,
        match=r"stopped because a write failed: .*; correct this and restart",
    ):
        await store.write(lambda database: insert(3, database))
    await store.close()
    again = Store(tmp_path / "store", SCHEMA)
    await again.open()
    assert await again.read(numbers) == [1]
    await again.write(lambda database: insert(2, database))
    await again.close()


async def test_a_failed_query_is_its_callers_alone(store: Store) -> None:
    with pytest.raises(errors.UnavailableError):
        await store.read(fail)
    await store.write(lambda database: insert(1, database))


async def test_closing_finishes_what_was_asked(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", SCHEMA)
    await store.open()
    future = store.write(lambda database: insert(1, database))
    await store.close()
    assert await future == 1
    with pytest.raises(errors.UnavailableError, match="the file is not open"):
        store.write(lambda database: insert(2, database))


async def test_folders_on_the_way_are_created(tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "b" / "store", SCHEMA)
    await store.open()
    with contextlib.suppress(errors.ExternalError):
        await store.close()
    assert (tmp_path / "a" / "b" / "store").exists()


async def test_a_store_that_closes_finishes_what_was_asked_before(tmp_path: Path) -> None:
    """Also in the same turn of the event loop."""
    opened = Store(tmp_path / "closing", SCHEMA)
    await opened.open()
    written = opened.write(lambda database: insert(7, database))
    await opened.close()
    assert written.result() == 7
