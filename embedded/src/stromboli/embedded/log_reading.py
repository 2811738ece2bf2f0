"""Reads the log of a broker, or a copy of the log of ``strom up``, which may be running."""

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stromboli.cli.errors import CommandError
from stromboli.embedded import state_folder
from stromboli.embedded.bus import EmbeddedBus
from stromboli.scheduler.core.cache import subscriptions
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.bus.kafka import KafkaBus, KafkaSettings

WANTED = (topics.CHANGES, *(each for each in subscriptions.TOPICS if each not in topics.COPIED))
"""All topics that sessions read. The topic of changes replaces the topics that it copies."""


class Place(msgspec.Struct, frozen=True):
    """The location of a log: the broker ``kafka`` if it is set, else the folder of ``strom up``."""

    state: Path
    kafka: str = ""
    cluster_name: str = "default"


NEXT_STEP = "specify the folder of strom up, or a broker as HOST:PORT"


def records(place: Place) -> list[envelope.Record]:
    """All records of the log that sessions read. Raises CommandError."""
    try:
        with _opened(place) as bus:
            return asyncio.run(_read(bus))
    except (errors.ExternalError, OSError) as error:
        what = place.kafka or str(place.state)
        raise CommandError(what, f"the log cannot be read: {error}", NEXT_STEP) from None


@contextlib.contextmanager
def _opened(place: Place) -> Iterator[port.Bus]:
    """Open the log. Only one process can open the log of ``strom up``, so a copy is opened."""
    if place.kafka:
        settings = KafkaSettings(bootstrap=(place.kafka,), cluster_name=place.cluster_name)
        yield KafkaBus(settings)
        return
    file = state_folder.embedded(place.state) / state_folder.LOG
    if not file.is_file():
        raise CommandError(str(file), "this folder has no log", NEXT_STEP)
    with tempfile.TemporaryDirectory(prefix="strom-log-") as folder:
        copy = Path(folder) / state_folder.LOG
        _copy(file, copy)
        yield EmbeddedBus(copy)


def _copy(file: Path, to: Path) -> None:
    read_only = f"{file.resolve().as_uri()}?mode=ro"
    try:
        with (
            contextlib.closing(sqlite3.connect(read_only, uri=True)) as source,
            contextlib.closing(sqlite3.connect(to)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise CommandError(str(file), f"the log cannot be read: {error}", NEXT_STEP) from None


async def _read(bus: port.Bus) -> list[envelope.Record]:
    async with bus, contextlib.aclosing(bus.materialize(WANTED)) as batches:
        log_records: list[envelope.Record] = []
        async for batch in batches:
            log_records += batch.records
            if batch.caught_up:
                return log_records
    raise AssertionError("materialize never ends")
