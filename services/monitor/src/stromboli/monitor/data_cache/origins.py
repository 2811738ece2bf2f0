"""Reads data sets at their origins: files of this machine, and all protocols of fsspec.

Files are read without fsspec, because a symbolic link must not lead out of the allowed folders: the
true path is checked after the file is opened, when it can no longer be replaced. Redirects of web
servers are checked against the allow list in the same way.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import SplitResult, unquote

import aiohttp
import fsspec
import msgspec

from stromboli.monitor.data_cache.allowed import FILE, WEB, AllowedOrigins, RefusedOriginError
from stromboli.shared.data_cache import policy

MOST_FILES = 100_000
"""Files of a data set: each costs an entry of the manifest and a check every minute."""
CONNECT_S, SILENCE_S = 30.0, 60.0
"""Time limits in seconds: for connecting to a web server, and between two bytes from it."""
_BLOCK_BYTES = 8 * 2**20
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "version_id", "VersionId", "LastModified")
_TIMES = ("Last-Modified", "mtime", "last_modified", "created")


class OriginFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a data set. ``path``: below the data set; the base name for a single file.
    ``size``: None if the origin does not state it. ``version``: changes with the content, as far as
    the origin tells; empty for unknown."""

    path: str
    size: int | None
    version: str = ""


class Origin(Protocol):
    """The content of one URI."""

    def files(self) -> list[OriginFile]:
        """All files, sorted by path. Raises OSError, RefusedOriginError, and the errors of
        libraries."""

    def open(self, file: OriginFile) -> contextlib.AbstractContextManager[BinaryIO]:
        """Open a file for reading from its start. Raises as ``files``."""


def open_origin(uri: str, allowed: AllowedOrigins) -> Origin:
    """The origin of an allowed URI; nothing is read yet. Raises RefusedOriginError."""
    parts = allowed.check(uri)
    if parts.scheme == FILE:
        return _LocalOrigin(Path(parts.path), allowed)
    if parts.scheme in WEB:
        return _WebOrigin(uri, parts, allowed)
    return _StoreOrigin(uri, parts.scheme)


class _LocalOrigin:
    """A file or a folder of this machine."""

    def __init__(self, path: Path, allowed: AllowedOrigins) -> None:
        self._path = path
        self._allowed = allowed
        self._folder = path.parent

    def files(self) -> list[OriginFile]:
        true = Path(os.path.realpath(self._path, strict=True))
        self._allowed.check_file(str(true))
        if not true.is_dir():
            self._folder = true.parent
            return [_described(true, self._path.name)]  # the name as the job writes it
        self._folder = true
        return sorted(self._walk(true), key=lambda file: file.path)

    def _walk(self, folder: Path) -> Iterator[OriginFile]:
        count = 0
        for name, folders, files in os.walk(folder, onerror=_raise):
            for each in folders:
                if Path(name, each).is_symlink():
                    raise RefusedOriginError(
                        f"{Path(name, each)} is a symbolic link to a folder: data sets contain "
                        "files only"
                    )
            for each in files:
                count += 1
                _check_count(count)
                path = Path(name, each)
                yield _described(path, str(path.relative_to(folder)))

    @contextlib.contextmanager
    def open(self, file: OriginFile) -> Iterator[BinaryIO]:
        true = Path(os.path.realpath(self._path, strict=True))
        path = true / file.path if true.is_dir() else true
        # A FIFO would block the open; a link is followed, and checked by where it led.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            self._allowed.check_file(os.readlink(f"/proc/self/fd/{opened.fileno()}"))
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise RefusedOriginError(f"{path} is not a regular file")
            yield opened


class _WebOrigin:
    """One file of a web server: a listing of links is not a directory."""

    def __init__(self, uri: str, parts: SplitResult, allowed: AllowedOrigins) -> None:
        self._uri = uri
        self._name = unquote(parts.path.rsplit("/", 1)[-1])
        tracing = aiohttp.TraceConfig()
        tracing.on_request_redirect.append(_redirect_check(allowed))
        self._fs = fsspec.filesystem(
            parts.scheme,
            skip_instance_cache=True,
            headers={"Accept-Encoding": "identity"},
            client_kwargs={
                "trace_configs": [tracing],
                "trust_env": True,
                "timeout": aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S
                ),
            },
        )

    def files(self) -> list[OriginFile]:
        if not self._name:
            raise RefusedOriginError(
                "a web server has no folders: specify a file, or use an object store for many files"
            )
        try:
            file_info = self._fs.info(self._uri)
        except FileNotFoundError as error:
            raise error.__cause__ or error from None  # fsspec hides the reason
        return [
            OriginFile(path=self._name, size=file_info.get("size"), version=_version(file_info))
        ]

    def open(self, file: OriginFile) -> contextlib.AbstractContextManager[BinaryIO]:
        # Without blocks the file is one stream, and not a request for each block.
        size = file.size
        opened = self._fs.open(self._uri, "rb", block_size=0, **({"size": size} if size else {}))
        return cast("contextlib.AbstractContextManager[BinaryIO]", opened)


class _StoreOrigin:
    """A file or a directory of any other file system of fsspec, such as an object store."""

    def __init__(self, uri: str, scheme: str) -> None:
        self._uri = uri
        self._scheme = scheme
        self._opened: Any = None
        self._names: dict[str, str] = {}

    def files(self) -> list[OriginFile]:
        try:
            self._opened, root = fsspec.core.url_to_fs(self._uri, skip_instance_cache=True)
        except (ImportError, ValueError) as error:
            raise RefusedOriginError(
                f"this cache cannot read {self._scheme}://: {error} (add the package to the image "
                "of the data cache)"
            ) from None
        root_info = self._opened.info(root)
        if root_info["type"] == "file":
            entries = {root.rstrip("/").rsplit("/", 1)[-1]: root_info}
        else:
            prefix = root.rstrip("/") + "/"
            listed = self._opened.find(root, detail=True)
            _check_count(len(listed))
            entries = {
                name.removeprefix(prefix): entry
                for name, entry in listed.items()
                if entry["type"] == "file" and name.startswith(prefix)
            }
        self._names = {path: entry["name"] for path, entry in entries.items()}
        return [
            OriginFile(path=path, size=entry.get("size"), version=_version(entry))
            for path, entry in sorted(entries.items())
        ]

    def open(self, file: OriginFile) -> contextlib.AbstractContextManager[BinaryIO]:
        opened = self._opened.open(self._names[file.path], "rb", block_size=_BLOCK_BYTES)
        return cast("contextlib.AbstractContextManager[BinaryIO]", opened)


def scheme_of(uri: str) -> str:
    """The scheme by which rates are measured."""
    return policy.scheme_of(uri)


def _redirect_check(allowed: AllowedOrigins) -> Any:
    async def check(_: object, __: object, params: aiohttp.TraceRequestRedirectParams) -> None:
        headers = params.response.headers
        target = headers.get("Location") or headers.get("URI")
        if not target:
            raise OSError("the server's redirect has no address")
        try:
            allowed.check(str(params.url.join(type(params.url)(target))))
        except RefusedOriginError as error:
            raise RefusedOriginError(f"the server redirects to another origin: {error}") from None

    return check


def _described(path: Path, name: str) -> OriginFile:
    file_stat = path.stat()
    if not stat.S_ISREG(file_stat.st_mode):
        raise RefusedOriginError(f"{path} is not a regular file")
    version = f"{file_stat.st_ino}-{file_stat.st_mtime_ns}"
    return OriginFile(path=name, size=file_stat.st_size, version=version)


def _version(entry: dict[str, Any]) -> str:
    """The version of a file by its origin: its tag, else its time; empty without either."""
    for name in (*_VERSIONS, *_TIMES):
        if entry.get(name):
            return f"{name}={entry[name]}"
    return ""


def _check_count(count: int) -> None:
    if count > MOST_FILES:
        raise RefusedOriginError(
            f"the data set has more than {MOST_FILES} files: pack them into archives"
        )


def _raise(error: OSError) -> None:
    raise error
