"""Opens a log to read it: that of a broker, or a copy of that of ``strom up``, which may run."""

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stromboli.cli.errors import CommandError
from stromboli.embedded import state_folder
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared.bus import port
from stromboli.shared.bus.kafka import KafkaBus, KafkaSettings


class Place(msgspec.Struct, frozen=True):
    """Where a log is: a folder of ``strom up``, or a broker; neither: there is none."""

    state: Path | None
    kafka: str = ""
    cluster_name: str = "default"


@contextlib.contextmanager
def opened(place: Place) -> Iterator[port.Bus | None]:
    """The log; None if no place is named. Only one process can open that of ``strom up``, so it is
    copied. Raises CommandError."""
    if place.kafka:
        settings = KafkaSettings(bootstrap=(place.kafka,), cluster_name=place.cluster_name)
        yield KafkaBus(settings)
        return
    if place.state is None:
        yield None
        return
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
        next_step = "name the folder of strom up, or a broker as HOST:PORT"
        raise CommandError(str(file), f"the log cannot be read: {error}", next_step) from None
