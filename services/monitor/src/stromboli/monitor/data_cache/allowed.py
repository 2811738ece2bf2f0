"""Which URIs a cache may read: an allow list of schemes, hosts and path prefixes.

An entry is a URI: ``https://`` allows all of a scheme, ``s3://bucket/prefix`` what is below the
prefix. A prefix ends at a path segment: ``s3://corpora`` does not allow ``s3://corpora-private``.
URIs with a user name, relative segments or chained protocols are refused whatever the list says,
because libraries read them in different ways.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

FILE = "file"
WEB = frozenset({"http", "https"})


class RefusedOriginError(Exception):
    """A URI that this cache does not read; the message has the reason and the next step."""


class Entry(msgspec.Struct, frozen=True):
    """An entry of the list. ``host``: empty for all; ``segments``: of the path prefix."""

    scheme: str
    host: str
    segments: tuple[str, ...]


class AllowedOrigins:
    """The allow list. Raises ValueError for an entry that is not a URI."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._texts = tuple(entries)
        self._entries = tuple(_entry(text) for text in self._texts)

    def check(self, uri: str) -> SplitResult:
        """The parts of an allowed URI. Raises RefusedOriginError."""
        parts = _parts(uri)
        segments = _segments(parts.path)
        for entry in self._entries:
            is_of = parts.scheme == entry.scheme and entry.host in ("", parts.netloc.lower())
            if is_of and segments[: len(entry.segments)] == entry.segments:
                return parts
        listed = ", ".join(self._texts) or "none"
        raise RefusedOriginError(
            f"this node may not read {parts.scheme}://{parts.netloc}: allowed origins are {listed} "
            "(an operator sets allowed_origins of the data cache)"
        )

    def check_file(self, path: str) -> None:
        """Check the true path of an opened file, after all symbolic links. Raises
        RefusedOriginError."""
        segments = PurePosixPath(path).parts[1:]
        for entry in self._entries:
            if entry.scheme == FILE:
                prefix = PurePosixPath(os.path.realpath("/" + "/".join(entry.segments))).parts[1:]
                if segments[: len(prefix)] == prefix:
                    return
        raise RefusedOriginError(
            f"a symbolic link leads to {path}, which no allowed origin of this node contains"
        )


def _entry(text: str) -> Entry:
    try:
        parts = _parts(text)
    except RefusedOriginError as error:
        raise ValueError(f"allowed origin {text!r}: {error}") from None
    return Entry(parts.scheme, parts.netloc.lower(), _segments(parts.path))


def _parts(uri: str) -> SplitResult:
    """The parts of a URI that all libraries read in the same way. Raises RefusedOriginError."""
    excerpt = repr(uri[:200])
    try:
        parts = urlsplit(uri)
        has_user = parts.username is not None or parts.password is not None
    except ValueError as error:
        raise RefusedOriginError(f"{excerpt} is not a URI: {error}") from None
    if has_user:
        raise RefusedOriginError("the URI has a user name: give credentials to the cache instead")
    if not parts.scheme or not uri.lower().startswith(f"{parts.scheme}://"):
        raise RefusedOriginError(f"{excerpt} does not begin with a scheme, such as https://")
    if "::" in uri or "\\" in uri or any(ord(char) < 33 or ord(char) == 127 for char in uri):
        raise RefusedOriginError(f"{excerpt} has characters that are not allowed in a URI")
    if {".", ".."} & {*parts.path.split("/"), *unquote(parts.path).split("/")}:
        raise RefusedOriginError(f"{excerpt} has relative segments")
    if parts.scheme == FILE and (parts.netloc or parts.query or parts.fragment):
        raise RefusedOriginError(
            f"{excerpt} is not the path of a file, such as file:///shared/data"
        )
    return parts


def _segments(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def safe_path(path: str) -> Sequence[str]:
    """The segments of a file's path below a data set, as an origin lists it. Raises
    RefusedOriginError for a path that may lead outside, or that the manifest cannot contain."""
    segments = path.split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        raise RefusedOriginError(
            f"the origin lists {path[:200]!r}, which is not below the data set"
        )
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise RefusedOriginError(f"the origin lists {path[:200]!r}, which has control characters")
    return segments
