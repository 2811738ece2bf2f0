"""Determines the server that programs and ``strom`` connect to, and the source of that setting.

The first of these that is set: the argument or flag, ``STROM_SERVER``, the selected context, the
configuration file, the URL that ``strom up`` stored in this directory or a parent, the default.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from stromboli.client import contexts, errors
from stromboli.shared import loopback_token

DEFAULT_URL = "http://127.0.0.1:8480"
"""The default address of admission."""
VARIABLE = "STROM_SERVER"
STORED = Path(".strom") / "server"
"""A file with one line, the URL. ``strom up`` writes it below its working directory."""


class Address(msgspec.Struct, frozen=True):
    """The server's base URL, and a description of where it is configured. ``token_file`` and
    ``ca_file``: the files of its context, which are not used for other servers."""

    url: str
    origin: str
    token_file: str = ""
    ca_file: str = ""

    @property
    def what(self) -> str:
        """The server in errors."""
        return f"server {self.url} ({self.origin})"

    @property
    def is_loopback(self) -> bool:
        """Whether the server is this machine, so that requests never use a proxy."""
        return urlsplit(self.url).hostname in loopback_token.HOSTS


def find(
    explicit_url: str | None,
    environment: Mapping[str, str],
    directory: Path | None = None,
    argument: str = "from the argument url",
) -> Address:
    """The address to connect to. ``directory``: by default the working directory; ``argument``:
    the origin of ``explicit_url``, for errors. Raises InvalidArgumentError for a text that is not
    a URL, and SettingError."""
    if explicit_url:
        return checked(explicit_url, argument)
    if named := environment.get(VARIABLE):
        return checked(named, f"from {VARIABLE}")
    if selected := contexts.current(environment):
        name, context = selected
        address = checked(context.server, f"from context {name}")
        files = {"token_file": context.token_file, "ca_file": context.ca_file}
        return msgspec.structs.replace(address, **files)
    file = config_file(environment)
    if configured := _configured(file):
        return checked(configured, f"from {file}")
    return _stored(directory) or Address(DEFAULT_URL, "the default")


def config_file(environment: Mapping[str, str]) -> Path:
    """``stromboli/config.yaml`` in the user's configuration directory (XDG base directories)."""
    return contexts.folder(environment) / "config.yaml"


def checked(url: str, origin: str) -> Address:
    """The address of a URL. Raises InvalidArgumentError if the text is not a URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise errors.InvalidArgumentError(
            f"server {url!r}",
            f"not a URL ({origin})",
            f"write it with its scheme, such as {DEFAULT_URL}",
        )
    return Address(url.rstrip("/"), origin)


def _stored(directory: Path | None) -> Address | None:
    """The address that ``strom up`` stored in this directory or the nearest parent."""
    try:
        start = directory or Path.cwd()
    except FileNotFoundError:  # the working directory was deleted
        return None
    for parent in (start, *start.parents):
        file = parent / STORED
        if line := _text(file).strip():
            address = checked(line, f"stored by strom up in {file}")
            if address.is_loopback:
                return address
            # The owner of the directory controls this file, and tokens are sent to its address.
            raise errors.SettingError(
                f"server {address.url}",
                f"{address.origin}, which may contain only an address of this machine",
                f"delete that file, or set the server with --server or {VARIABLE}",
            )
    return None


def _configured(file: Path) -> str | None:
    text = _text(file)
    if not text:
        return None
    # Importing YAML costs 20 ms, and few users have this file.
    from stromboli.shared.formats import documents

    try:
        parsed_documents = [document for document, _ in documents.read(text)]
    except documents.DocumentError as error:
        raise errors.SettingError(str(file), str(error), error.next_step) from None
    if not parsed_documents:
        return None
    url = parsed_documents[0].get("server") if isinstance(parsed_documents[0], dict) else None
    if (
        len(parsed_documents) > 1
        or not isinstance(url, str)
        or set(parsed_documents[0]) - {"server"}
    ):
        raise errors.SettingError(
            str(file),
            "the file may have one key only, server, whose value is a URL",
            f"write: server: {DEFAULT_URL}",
        )
    return url


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not UTF-8 text"
        next_step = f"make it readable, or set the server with --server or {VARIABLE}"
        raise errors.SettingError(str(file), why, next_step) from None
