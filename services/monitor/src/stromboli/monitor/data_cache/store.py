"""The folder of a cache: copies, partial copies, and what is known about them.

::

    ROOT/.lock                         one process at a time
    ROOT/.wanted.json                  what the node should have, as last received
    ROOT/.trash/                       what is being deleted
    ROOT/KEY/content/...               a complete, verified copy: it appears by a rename
    ROOT/KEY/content -> incomplete     a copy that is being fetched, or was lost and may be needed
    ROOT/KEY/copy.json                 its description; the file's time is the last use
    ROOT/KEY/verified                  the file's time is the last verification of the digests
    ROOT/KEY/partial/content/...       files of a fetch
    ROOT/KEY/partial/listing.json      the files of the origin when the fetch began
    ROOT/KEY/partial/done.jsonl        a line for each file that was fetched, with its digest

A process may end at any point. ``content`` without a readable description that fits is not a copy:
it is deleted. A description without ``content`` is a copy that vanished, or an interrupted
completion; its files are fetched again or taken from ``partial``.

Before a copy is complete, a symbolic link to nothing is in its place. A kubelet checks a volume
once for a pod, and containerd creates a directory that is missing: a container that restarts after
its copy was lost, and then each new pod, would find no files and no error. Where the link is,
containerd cannot create a directory, and the kubelet retries.
"""

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stromboli.monitor.data_cache.origins import OriginFile
from stromboli.shared import decoding
from stromboli.shared.jobspec import data_sets

KEY = re.compile(r"[0-9a-f]{32}")
CHUNK_BYTES = 2**20
INCOMPLETE = "incomplete"
"""Target of the link in the place of a copy; it does not exist."""
LONGEST_LISTING_BYTES = 256 * 2**20
"""A hundred thousand files with long names take some ten megabytes."""


class CacheFolderError(Exception):
    """The folder of the cache cannot be used; the message has the reason."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a complete copy. ``sha256``: a hex digest. ``mtime_ns``: when it was written."""

    path: str
    sha256: str
    size: int
    mtime_ns: int = 0


class StoredCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a complete copy. ``digest``: of its manifest, as measured."""

    uri: str
    requested_digest: str
    digest: str
    files: tuple[StoredFile, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a fetch has completed: a line of ``done.jsonl``."""

    path: str
    sha256: str
    size: int


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The files of an origin when a fetch began."""

    uri: str
    files: tuple[OriginFile, ...]


_ENCODER = msgspec.json.Encoder()
_COPY = decoding.decoder_of(StoredCopy)
_LISTING = decoding.decoder_of(Listing)
_FETCHED = decoding.decoder_of(FetchedFile)


def manifest_digest(files: Iterable[tuple[str, str]]) -> str:
    """The digest of pairs of path and SHA-256 in hex, as ``jobspec.data_sets`` defines it."""
    lines = (f"{sha256}  {path}\n" for path, sha256 in sorted(files))
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def file_sha256(path: Path, stopped: Callable[[], bool] = lambda: False) -> str:
    """The SHA-256 of a file in hex. Raises OSError, InterruptedError if ``stopped``."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            if stopped():
                raise InterruptedError(f"stopped while reading {path}")
            digest.update(chunk)
    return digest.hexdigest()


class CacheFolder:
    """The folder of a cache. Several threads may call its methods, for each key one at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._trash = root / ".trash"
        self._numbers = itertools.count()
        self._lock: int | None = None

    def open(self) -> None:
        """Create the folder, take its lock, and delete what a previous process was deleting. Raises
        CacheFolderError."""
        try:
            self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._lock = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete(self._trash)
            self._trash.mkdir(mode=0o700, exist_ok=True)
        except BlockingIOError:
            self.close()
            raise CacheFolderError(f"another process uses the cache in {self.root}") from None
        except OSError as error:
            self.close()
            raise CacheFolderError(f"the cache in {self.root} cannot be used: {error}") from None

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def free_bytes(self) -> int:
        """The free bytes of the disk."""
        return shutil.disk_usage(self.root).free

    def all_keys(self) -> list[str]:
        """The keys that have a folder, sorted."""
        return sorted(path.name for path in self.root.iterdir() if KEY.fullmatch(path.name))

    # --- complete copies -------------------------------------------------------------------

    def content(self, key: str) -> Path:
        """The folder of a copy, which pods mount."""
        return Path(data_sets.volume_path(str(self.root), key))

    def describe(self, key: str) -> StoredCopy | None:
        """The description of a copy that fits its key; None if there is none."""
        try:
            with (self.root / key / "copy.json").open("rb") as file:
                stored_copy = decoding.decode(_COPY, file.read(LONGEST_LISTING_BYTES))
        except (OSError, msgspec.DecodeError):
            return None
        is_ours = data_sets.content_key(stored_copy.uri, stored_copy.requested_digest) == key
        return stored_copy if is_ours else None

    def complete(
        self, key: str, uri: str, requested_digest: str, files: Iterable[FetchedFile]
    ) -> StoredCopy:
        """Make the files of a partial copy the content, atomically. Raises OSError."""
        staged = self.staged(key)
        stored = []
        for file in files:
            path = staged / file.path
            path.chmod(0o444)
            mtime_ns = path.stat().st_mtime_ns
            stored.append(
                StoredFile(path=file.path, sha256=file.sha256, size=file.size, mtime_ns=mtime_ns)
            )
        for name, folders, _ in os.walk(staged):
            for folder in folders:
                Path(name, folder).chmod(0o555)
        copy = StoredCopy(
            uri=uri,
            requested_digest=requested_digest,
            digest=manifest_digest((file.path, file.sha256) for file in stored),
            files=tuple(stored),
        )
        _write(self.root / key / "copy.json", _ENCODER.encode(copy))
        _sync(staged)
        self._discard(self.content(key))
        staged.rename(self.content(key))
        self.content(key).chmod(0o555)
        _sync(self.root / key)
        self._discard(self.root / key / "partial")
        return copy

    def fault(self, key: str, copy: StoredCopy) -> str:
        """How the content differs from its description by names, sizes and times; empty if not."""
        content = self.content(key)
        expected = {file.path: file for file in copy.files}
        try:
            for path in _regular_files(content):
                file = expected.pop(str(path.relative_to(content)), None)
                if file is None:
                    return f"{path.name} is not part of the data set"
                file_stat = path.lstat()
                if (file_stat.st_size, file_stat.st_mtime_ns) != (file.size, file.mtime_ns):
                    return f"{file.path} was changed"
        except OSError as error:
            return f"{error.strerror or error}: {Path(error.filename or content).name}"
        return f"{min(expected)} is missing" if expected else ""

    def deep_fault(self, key: str, copy: StoredCopy, stopped: Callable[[], bool]) -> str:
        """Like ``fault``, and also compares the digests of all files. Raises InterruptedError if
        ``stopped``."""
        if mismatch := self.fault(key, copy):
            return mismatch
        for file in copy.files:
            try:
                if file_sha256(self.content(key) / file.path, stopped) != file.sha256:
                    return f"{file.path} has another digest than when it was fetched"
            except InterruptedError:
                raise
            except OSError as error:
                return f"{error.strerror or error}: {file.path}"
        return ""

    def last_used_at(self, key: str) -> datetime | None:
        """When a copy was last used; None if it is not complete."""
        try:
            return datetime.fromtimestamp((self.root / key / "copy.json").stat().st_mtime, UTC)
        except OSError:
            return None

    def used(self, key: str, at: datetime) -> None:
        """Set the time at which a copy was last used."""
        with contextlib.suppress(OSError):
            os.utime(self.root / key / "copy.json", (at.timestamp(), at.timestamp()))

    def verified_at(self, key: str) -> datetime | None:
        """When the digests of a copy were last verified; None if that is unknown."""
        try:
            return datetime.fromtimestamp((self.root / key / "verified").stat().st_mtime, UTC)
        except OSError:
            return None

    def verified(self, key: str, at: datetime) -> None:
        """Set the time of the last verification, so that a restart does not verify all copies."""
        with contextlib.suppress(OSError):
            (self.root / key / "verified").touch()
            os.utime(self.root / key / "verified", (at.timestamp(), at.timestamp()))

    def evict(self, key: str) -> None:
        """Delete all copies of a key. A pod that mounts the copy no longer sees its files."""
        self._discard(self.root / key)

    def drop_content(self, key: str) -> None:
        """Delete a copy and its description, and reserve its place; keep a partial copy. Raises
        OSError."""
        self.reserve(key)
        for name in ("copy.json", "verified"):
            (self.root / key / name).unlink(missing_ok=True)

    def reserve(self, key: str) -> None:
        """Keep container runtimes from creating a directory in the place of a copy, until the copy
        is complete or ``release`` is called. Raises OSError."""
        if self.is_reserved(key):
            return
        self._discard(self.content(key))
        (self.root / key).mkdir(mode=0o755, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # a runtime was faster: found by the next step
            self.content(key).symlink_to(INCOMPLETE)

    def is_reserved(self, key: str) -> bool:
        """Whether the place of a copy is reserved."""
        return self.content(key).is_symlink()

    def is_occupied(self, key: str) -> bool:
        """Whether the place of a copy has anything but the link that reserves it."""
        return os.path.lexists(self.content(key)) and not self.is_reserved(key)

    def release(self, key: str) -> None:
        """Release the place of a copy that is no longer needed. Raises OSError."""
        if self.is_reserved(key):
            self.content(key).unlink()
        with contextlib.suppress(OSError):
            (self.root / key).rmdir()

    # --- partial copies --------------------------------------------------------------------

    def staged(self, key: str) -> Path:
        """The folder for the files of a fetch."""
        return self.root / key / "partial" / "content"

    def begin(self, key: str, listing: Listing) -> dict[str, FetchedFile]:
        """Begin or resume a fetch of these files. Returns path -> file of the files that a previous
        fetch completed, if the origin still lists the same files. Raises OSError."""
        partial = self.root / key / "partial"
        try:
            same = decoding.decode(_LISTING, (partial / "listing.json").read_bytes()) == listing
        except (OSError, msgspec.DecodeError):
            same = False
        if not same:
            self._discard(partial)
        self.staged(key).mkdir(mode=0o755, parents=True, exist_ok=True)
        if not same:
            _write(partial / "listing.json", _ENCODER.encode(listing))
        return dict(self._done(partial))

    def file_done(self, key: str, file: FetchedFile) -> None:
        """Record that a file of a fetch is complete. Raises OSError."""
        with (self.root / key / "partial" / "done.jsonl").open("ab") as done:
            done.write(_ENCODER.encode(file) + b"\n")

    def drop_partial(self, key: str) -> None:
        """Delete a partial copy, and the folder of its key if that is empty."""
        self._discard(self.root / key / "partial")
        with contextlib.suppress(OSError):
            (self.root / key).rmdir()

    def partial_bytes(self, key: str) -> int:
        """The bytes of a partial copy."""
        with contextlib.suppress(OSError):
            return sum(path.lstat().st_size for path in _regular_files(self.staged(key)))
        return 0

    def _done(self, partial: Path) -> Iterator[tuple[str, FetchedFile]]:
        with contextlib.suppress(OSError):
            for line in (partial / "done.jsonl").read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError):  # the end of an interrupted write
                    file = decoding.decode(_FETCHED, line)
                    yield file.path, file

    # --- what the node should have ---------------------------------------------------------

    def remember(self, wanted: bytes) -> None:
        """Store the encoded ``DataWanted`` of the node. Raises OSError."""
        _write(self.root / ".wanted.json", wanted)

    def remembered(self) -> bytes | None:
        """The last ``DataWanted`` that was stored; None if there is none."""
        with contextlib.suppress(OSError):
            return (self.root / ".wanted.json").read_bytes()
        return None

    def _discard(self, path: Path) -> None:
        """Delete a folder by way of the trash: it disappears immediately, whatever its size."""
        if not os.path.lexists(path):
            return
        if path.is_symlink():
            path.unlink()
            return
        with contextlib.suppress(OSError):
            path.chmod(0o755)  # a folder that is moved must be writable
        target = self._trash / f"{path.name}-{os.getpid()}-{next(self._numbers)}"
        path.rename(target)
        _delete(target)


def _regular_files(folder: Path) -> Iterator[Path]:
    """All entries below a folder that are not folders. Raises OSError, also if the folder is
    missing."""

    def fail(error: OSError) -> None:
        raise error

    for name, _, files in os.walk(folder, onerror=fail):
        for file in files:
            yield Path(name, file)


def _delete(path: Path) -> None:
    """Delete a tree, read-only folders included."""

    def retry(function: object, name: str, _: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(name), stat.S_IRWXU)
            os.chmod(name, stat.S_IRWXU)
            shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)

    if os.path.lexists(path):
        shutil.rmtree(path, onerror=retry)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically and durably."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _sync(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
