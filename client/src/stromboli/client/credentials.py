"""Who a program says it is: a bearer token, read anew for each request where it stands in a file.

The first of: what the program gives, ``STROM_TOKEN``, ``STROM_TOKEN_FILE``, what a server on
loopback left for its user (``stromboli.shared.loopback_token``), the file of a projected volume in
a pod. A token goes over HTTPS or to this machine, and nowhere else.
"""

import os
import ssl
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from stromboli.client import errors
from stromboli.shared import loopback_token

TOKEN, TOKEN_FILE, CA_FILE = "STROM_TOKEN", "STROM_TOKEN_FILE", "STROM_CA_FILE"
IN_POD = Path("/var/run/secrets/stromboli/token")
"""Where a pod finds its token if it mounts a projected one of our audience there. The token that
every pod has is for the API server, and so none that we would show to anybody else."""
LOOPBACK = loopback_token.HOSTS


class Bearer(httpx.Auth):
    """The token of each request. Sending raises UnreadableFileError."""

    def __init__(self, token: str, file: Path | None) -> None:
        self._token = token
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """The request with its header; short-lived tokens change in their file."""
        request.headers["authorization"] = f"Bearer {self._token or _read(self._file)}"
        yield request


class LoopbackBearer(httpx.Auth):
    """The token of a server on loopback, which each of its starts makes again: read for each
    request, and left out while there is none. ``otherwise``: the file of a pod."""

    def __init__(self, file: Path, otherwise: Path) -> None:
        self._file = file
        self._otherwise = otherwise

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """The request with its header, if there is a token."""
        token = loopback_token.read_token(self._file)
        if not token and self._otherwise.exists():
            token = _read(self._otherwise)
        if token:
            request.headers["authorization"] = f"Bearer {token}"
        yield request


def authentication(
    base_url: str, token: str | None, token_file: str | Path | None
) -> Bearer | LoopbackBearer | None:
    """What says who we are; None if nothing does. Raises UnsafeTokenError where that would travel
    in the clear."""
    given = token or ("" if token_file else os.environ.get(TOKEN, ""))
    file: str | Path | None = None if given else token_file or os.environ.get(TOKEN_FILE)
    if not given and not file:
        if (local := loopback_token.file_for(base_url, os.environ)) is not None:
            return LoopbackBearer(local, IN_POD)
        if not IN_POD.exists():
            return None
        file = IN_POD
    parts = urlsplit(base_url)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        why = "a token goes over https, or to this machine"
        raise errors.UnsafeTokenError(f"server {base_url}", why)
    return Bearer(given.strip(), Path(file) if file else None)


def certificate_authority(ca_file: str | Path | None) -> ssl.SSLContext | None:
    """Whom to believe that they are the server: this authority (PEM), else ``STROM_CA_FILE``; None:
    those of the system. Raises UnreadableFileError."""
    chosen = ca_file or os.environ.get(CA_FILE)
    if not chosen:
        return None
    try:
        return ssl.create_default_context(cafile=chosen)
    except OSError as error:  # ssl's own is one of them
        raise errors.UnreadableFileError(
            f"authority {chosen}", error.strerror or str(error)
        ) from None


def _read(file: Path | None) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is no text"
        raise errors.UnreadableFileError(f"token file {file}", why) from None
    if not token:
        raise errors.UnreadableFileError(f"token file {file}", "it is empty")
    return token
