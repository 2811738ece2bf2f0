"""The token of a REST API on loopback, generated at each start for the user who started the server.

Without accounts, this token grants all rights, so it is protected from other users of the machine
(a file of mode 0600 in a directory of mode 0700) and from web pages (which cannot read files).
Clients of the same user find the file by the port: ``$XDG_STATE_HOME/stromboli/tokens/PORT``, by
default below ``~/.local/state``. The file of a server that was killed contains a token that is no
longer valid.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

HOSTS = ("127.0.0.1", "::1", "localhost")
"""The host names of loopback."""
TOKEN_BYTES = 32
LARGEST_BYTES = 4096


def new_token() -> str:
    """A random token that cannot be guessed."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def file_of(port: int, environment: Mapping[str, str]) -> Path:
    """The file with the token of the server on this port of loopback."""
    state = environment.get("XDG_STATE_HOME", "")
    if state and Path(state).is_absolute():  # the XDG specification ignores relative paths
        base = Path(state)
    else:
        home = environment.get("HOME")
        base = (Path(home) if home else Path.home()) / ".local" / "state"
    return base / "stromboli" / "tokens" / str(port)


def file_for(url: str, environment: Mapping[str, str]) -> Path | None:
    """The token file for a server's URL; None if the URL is not HTTP on loopback."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in HOSTS:
        return None
    return file_of(parts.port or 80, environment)


def read_token(file: Path) -> str:
    """The token in a file; empty if the file does not exist, is not readable or belongs to another
    user.
    """
    try:
        with file.open(encoding="ascii") as opened:
            if os.fstat(opened.fileno()).st_uid != os.geteuid():
                return ""
            return opened.read(LARGEST_BYTES).strip()
    except (OSError, ValueError):
        return ""


@contextlib.contextmanager
def publish_token(token: str, file: Path) -> Iterator[None]:
    """Write the token to ``file`` and remove it on exit. An empty token only removes the file of a
    server that was killed.

    Raises OSError if the file cannot be written.
    """
    if not token:
        file.unlink(missing_ok=True)
        yield
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(f"{token}\n")
    beside.rename(file)
    try:
        yield
    finally:
        if read_token(file) == token:  # else another server uses this port by now
            file.unlink(missing_ok=True)
