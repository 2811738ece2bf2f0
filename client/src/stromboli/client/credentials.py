"""Credentials: a bearer token, which is read again for each request if it is in a file.

The first of these that is set: the program's arguments, ``STROM_TOKEN``, ``STROM_TOKEN_FILE``, the
file of the context that names the server, the token file that a server on loopback writes for its
user (``stromboli.shared.loopback_token``), the file of a projected volume in a pod. A token is sent
only over HTTPS or to this machine.
"""

import os
import ssl
from collections.abc import Callable, Generator
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from stromboli.client import errors
from stromboli.shared import loopback_token

TOKEN, TOKEN_FILE, CA_FILE = "STROM_TOKEN", "STROM_TOKEN_FILE", "STROM_CA_FILE"
TOKENS = (TOKEN, TOKEN_FILE)
IN_POD = Path("/var/run/secrets/stromboli/token")
"""Path of a projected token for Stromboli's audience in a pod. The default token of a pod is for
the API server and is never sent to another server."""
LOOPBACK = loopback_token.HOSTS
Token = str | Callable[[], str]
"""A token, or a function that returns the current one: it is called for each request."""


class Bearer(httpx.Auth):
    """Adds the token to each request. Sending raises UnreadableFileError."""

    def __init__(self, token: Token, file: Path | None) -> None:
        self._token = token
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header. The file is read for each request: short-lived tokens change."""
        token = self._token if isinstance(self._token, str) else self._token()
        request.headers["authorization"] = f"Bearer {token or _read(self._file)}"
        yield request


class LoopbackBearer(httpx.Auth):
    """Adds the token of a server on loopback, which is new after each start of the server.

    The file is read for each request; if it does not exist, no header is sent. ``otherwise``: the
    token file of a pod, which is used instead.
    """

    def __init__(self, file: Path, otherwise: Path) -> None:
        self._file = file
        self._otherwise = otherwise

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header if there is a token."""
        token = loopback_token.read_token(self._file)
        if not token and self._otherwise.exists():
            token = _read(self._otherwise)
        if token:
            request.headers["authorization"] = f"Bearer {token}"
        yield request


def authentication(
    base_url: str, token: Token | None, token_file: str | Path | None
) -> Bearer | LoopbackBearer | None:
    """The authentication of requests; None without a token. Raises UnsafeTokenError if the token
    would be sent unencrypted."""
    explicit_token: Token = token or ("" if token_file else os.environ.get(TOKEN, ""))
    file: str | Path | None = None if explicit_token else token_file or os.environ.get(TOKEN_FILE)
    if not explicit_token and not file:
        if (local := loopback_token.file_for(base_url, os.environ)) is not None:
            return LoopbackBearer(local, IN_POD)
        if not IN_POD.exists():
            return None
        file = IN_POD
    parts = urlsplit(base_url)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        why = "a token is sent only over https, or to this machine"
        raise errors.UnsafeTokenError(f"server {base_url}", why)
    return Bearer(
        explicit_token.strip() if isinstance(explicit_token, str) else explicit_token,
        Path(file) if file else None,
    )


def certificate_authority(ca_file: str | Path | None) -> ssl.SSLContext | None:
    """The TLS context that trusts the CA certificate in ``ca_file`` (PEM), else in
    ``STROM_CA_FILE``; None if neither is set: the system's certificates. Raises
    UnreadableFileError."""
    chosen = ca_file or os.environ.get(CA_FILE)
    if not chosen:
        return None
    try:
        return ssl.create_default_context(cafile=chosen)
    except OSError as error:  # includes ssl.SSLError
        raise errors.UnreadableFileError(
            f"CA certificate {chosen}", error.strerror or str(error)
        ) from None


def _read(file: Path | None) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not UTF-8 text"
        raise errors.UnreadableFileError(f"token file {file}", why) from None
    if not token:
        raise errors.UnreadableFileError(f"token file {file}", "it is empty")
    return token
