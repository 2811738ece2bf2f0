"""Reads a log: that of a broker, or a copy of that of ``strom up``, which may run."""

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stromboli.cli.errors import CommandError
from stromboli.embedded import replay_sessions, state_folder
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared import envelope, errors
from stromboli.shared.bus import port
from stromboli.shared.bus.kafka import KafkaBus, KafkaSettings


class Place(msgspec.Struct, frozen=True):
    """Where a log is: a folder of ``strom up``, or a broker; neither: there is none."""

    state: Path | None
    kafka: str = ""
    cluster_name: str = "default"


NEXT_STEP = "name the folder of strom up, or a broker as HOST:PORT"


def records(place: Place) -> list[envelope.Record] | None:
    """All records of the log that sessions read; None if no place is named. Raises CommandError."""
    if not place.kafka and place.state is None:
        return None
    try:
        with _opened(place) as bus:
            return asyncio.run(replay_sessions.read_records(bus))
    except (errors.ExternalError, OSError) as error:
        what = place.kafka or str(place.state)
        raise CommandError(what, f"the log cannot be read: {error}", NEXT_STEP) from None


@contextlib.contextmanager
def _opened(place: Place) -> Iterator[port.Bus]:
    """The log. Only one process can open that of ``strom up``, so it is copied."""
    if place.kafka:
        settings = KafkaSettings(bootstrap=(place.kafka,), cluster_name=place.cluster_name)
        yield KafkaBus(settings)
        return
    assert place.state is not None, "a place is named"
    file = state_folder.embedded(place.state) / state_folder.LOG
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
