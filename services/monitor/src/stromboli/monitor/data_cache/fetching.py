"""One attempt to fetch a data set into a cache, in a thread of its own.

The files are read one after another. Each is hashed while it is written; the digest of all is
verified before the copy becomes visible. A file that an earlier attempt completed is hashed again
from the disk and not read again from the origin.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from stromboli.monitor.data_cache import store
from stromboli.monitor.data_cache.allowed import AllowedOrigins, RefusedOriginError, safe_path
from stromboli.monitor.data_cache.origins import Origin, OriginFile, open_origin
from stromboli.shared.data_cache import policy
from stromboli.shared.messages import data

GRANT_BYTES = 64 * 2**20
"""Room that a fetch requests at a time while the size of its content is unknown."""
OpenOrigin = Callable[[str, AllowedOrigins], Origin]


class FetchFailedError(Exception):
    """An attempt failed; the message has the reason."""


class FetchStoppedError(Exception):
    """The attempt was stopped. The bytes it has read are kept as a partial copy."""


class NoRoomError(Exception):
    """The content is larger than the room that can be made for it."""


class Progress(msgspec.Struct, kw_only=True):
    """The progress of a fetch, written by its thread alone. ``held_bytes``: bytes on
    disk. ``size_bytes``: the size of the content, 0 while unknown. ``read_bytes``, ``read_s``:
    bytes read from the origin, and the seconds that reading took."""

    held_bytes: int = 0
    size_bytes: int = 0
    read_bytes: int = 0
    read_s: float = 0.0


class Fetch:
    """One attempt to fetch a data set. ``grant``: requests room for a total number of bytes, and
    returns whether there is room. ``stopped``: returns whether to stop. ``clock``: seconds of a
    monotonic clock.
    """

    def __init__(
        self,
        item: data.WantedCopy,
        folder: store.CacheFolder,
        allowed: AllowedOrigins,
        grant: Callable[[int], bool],
        stopped: Callable[[], bool],
        clock: Callable[[], float],
        opened: OpenOrigin = open_origin,
    ) -> None:
        self.item = item
        self.progress = Progress()
        self._folder = folder
        self._allowed = allowed
        self._grant = grant
        self._stopped = stopped
        self._clock = clock
        self._open = opened
        self._granted = 0

    def run(self) -> list[store.FetchedFile]:
        """Fetch all files into the folder of partial copies, and verify the digest. Raises
        FetchFailedError, FetchStoppedError, NoRoomError."""
        try:
            return self._run()
        except (FetchFailedError, FetchStoppedError, NoRoomError):
            raise
        except InterruptedError:
            raise FetchStoppedError from None
        except RefusedOriginError as error:
            raise FetchFailedError(str(error)) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._folder.drop_partial(self.item.key)  # the room is for others now
                raise FetchFailedError(f"disk full: {error.strerror}") from None
            raise FetchFailedError(_text(error)) from error
        except Exception as error:  # errors of fsspec's libraries share no base class
            raise FetchFailedError(_text(error)) from error

    def _run(self) -> list[store.FetchedFile]:
        key = self.item.key
        origin = self._open(self.item.uri, self._allowed)
        files = origin.files()
        if not files:
            raise FetchFailedError("the origin has no files")
        for file in files:
            safe_path(file.path)
        sizes = [file.size for file in files if file.size is not None]
        if len(sizes) == len(files):
            self.progress.size_bytes = sum(sizes)
            self._request_room(sum(sizes))
        done = self._folder.begin(key, store.Listing(uri=self.item.uri, files=tuple(files)))
        fetched = []
        for file in files:
            self._check_stopped()
            fetched.append(self._kept(file, done) or self._fetch(origin, file))
        self._verify(fetched)
        return fetched

    def _kept(
        self, file: OriginFile, done: dict[str, store.FetchedFile]
    ) -> store.FetchedFile | None:
        """The file that an earlier attempt completed, if it has not changed since."""
        known = done.get(file.path)
        path = self._folder.staged(self.item.key) / file.path
        if known is None or not path.is_file() or path.is_symlink():
            return None
        if path.stat().st_size != known.size:
            return None
        self._request_room(self.progress.held_bytes + known.size)
        if store.file_sha256(path, self._stopped) != known.sha256:
            return None
        self.progress.held_bytes += known.size
        return known

    def _fetch(self, origin: Origin, file: OriginFile) -> store.FetchedFile:
        target = self._folder.staged(self.item.key) / file.path
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        digest, count = hashlib.sha256(), 0
        with origin.open(file) as source, target.open("xb") as out:
            began_s = self._clock()
            while chunk := source.read(store.CHUNK_BYTES):
                count += len(chunk)
                if file.size is not None and count > file.size:
                    raise FetchFailedError(f"{file.path} became larger while it was read")
                self.progress.read_bytes += len(chunk)
                self.progress.read_s += self._clock() - began_s
                self._check_stopped()
                self._request_room(self.progress.held_bytes + len(chunk))
                digest.update(chunk)
                out.write(chunk)
                self.progress.held_bytes += len(chunk)
                began_s = self._clock()
            out.flush()
            os.fsync(out.fileno())
        if file.size is not None and count != file.size:
            raise FetchFailedError(
                f"{file.path} ended after {count} of {file.size} bytes: the origin was changed, or "
                "the connection was lost"
            )
        fetched_file = store.FetchedFile(path=file.path, sha256=digest.hexdigest(), size=count)
        self._folder.file_done(self.item.key, fetched_file)
        return fetched_file

    def _verify(self, fetched: list[store.FetchedFile]) -> None:
        content_digest = store.manifest_digest((file.path, file.sha256) for file in fetched)
        if self.item.digest and content_digest != self.item.digest:
            self._folder.drop_partial(self.item.key)  # the next attempt reads all of it again
            raise FetchFailedError(
                f"the content has the digest {content_digest}, the job requests "
                f"{self.item.digest}: correct "
                "the digest, or the content at the origin"
            )

    def _request_room(self, total: int) -> None:
        """Request room for a total number of bytes. Raises NoRoomError, FetchStoppedError."""
        if total <= self._granted:
            return
        step = total if self.progress.size_bytes else max(total, self._granted + GRANT_BYTES)
        for wanted in dict.fromkeys((step, total)):
            if self._grant(wanted):
                self._granted = wanted
                return
        self._check_stopped()
        raise NoRoomError(
            f"the content has at least {policy.text_of_bytes(total)}, and the cache cannot make "
            "room for it"
        )

    def _check_stopped(self) -> None:
        if self._stopped():
            raise FetchStoppedError


def _text(error: BaseException) -> str:
    """The reason of an error for display, with its type if the text alone is unclear."""
    text = str(error).strip()
    if isinstance(error, OSError) and error.strerror:
        name = f": {Path(str(error.filename)).name}" if error.filename else ""
        return f"{error.strerror}{name}"
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__
