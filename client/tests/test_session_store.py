"""Rules of the directory of an executor's session."""

import errno
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from stromboli.client.executor.session_store import SessionStore


class BusyFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A local file system on which another process writes during the first removals."""

    protocol = "busy"
    busy = 0

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """As the local one, after ``busy`` failures."""
        if BusyFileSystem.busy > 0:
            BusyFileSystem.busy -= 1
            raise OSError(errno.ENOTEMPTY, "Directory not empty", "workers")
        super().rm(path, recursive=recursive, maxdepth=maxdepth)


fsspec.register_implementation("busy", BusyFileSystem, clobber=True)


def store(folder: Path, busy: int) -> SessionStore:
    BusyFileSystem.busy = busy
    session_store = SessionStore(f"busy://{folder}/session")
    session_store.make("workers")
    session_store.write("workers/0", b"here")
    return session_store


def test_a_session_is_removed_while_a_worker_still_announces_itself(tmp_path: Path) -> None:
    store(tmp_path, busy=2).remove_all()
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_cannot_be_removed_raises(tmp_path: Path) -> None:
    """Such as a directory of another user: it is not tried without end."""
    with pytest.raises(OSError, match="not empty"):
        store(tmp_path, busy=1_000).remove_all()


def test_the_removal_of_an_absent_session_does_nothing(tmp_path: Path) -> None:
    session_store = store(tmp_path, busy=0)
    session_store.remove_all()
    session_store.remove_all()
    assert list(tmp_path.iterdir()) == []
