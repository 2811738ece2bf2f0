"""The directory through which an executor and its workers exchange calls and results.

It may be local, on a shared volume or in an object store: any URL that fsspec supports. Each file
has one writer and is never changed in place by another process, so that no locks are needed:

- ``client``: a counter that the executor increments, which shows workers that it is alive
- ``workers/<index>``: a worker's announcement, rewritten every few seconds
- ``inbox/<worker id>/<chunk>``: calls for one worker; the worker deletes it after the results
- ``results/<chunk>``: results; the executor deletes it after reading

Anyone with write access can execute code in the executor and the workers: the content is pickled.
"""

import contextlib
import struct
from typing import Any

import fsspec.core

REMOVALS = 10
"""Maximum attempts to delete the files of a session, since a worker may still write up to two files
a second."""
_LENGTH = struct.Struct(">Q")


class SessionStore:
    """The files of one session below ``url``, a path or a URL of fsspec.

    A write on a plain file system becomes visible in parts, so each file begins with its length and
    an incomplete one reads as absent. While the store cannot be reached, methods raise OSError
    or the errors of fsspec's implementation.
    """

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        self._fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False, **(options or {}))
        self._root = path.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def make(self, folder: str) -> None:
        """Create a folder; object stores need none."""
        self._fs.makedirs(self._path(folder), exist_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file. Its folder exists."""
        self._fs.pipe_file(self._path(name), _LENGTH.pack(len(content)) + content)

    def read(self, name: str) -> bytes | None:
        """A file's content; None if it is absent or not written completely yet."""
        try:
            raw = self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        if len(raw) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(raw)
        content = raw[_LENGTH.size :]
        return content if len(content) == length else None

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, sorted; none if it is absent."""
        try:
            paths = self._fs.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rpartition("/")[2] for path in paths)

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def remove_all(self) -> None:
        """Delete the session with all its files. A worker may write while they are deleted, so the
        deletion is repeated a few times."""
        for left in reversed(range(REMOVALS)):
            try:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm(self._root, recursive=True)
                if not self._fs.exists(self._root):
                    return
            except OSError:
                if not left:
                    raise
