"""Determines the server that ``strom`` connects to, and the source of that setting.

The first of these that is set: the flag, ``STROM_SERVER``, the selected context, the configuration
file, the address that ``strom up`` recorded in this directory or a parent, the default.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from stromboli.cli import contexts
from stromboli.cli.errors import CommandError, UsageError

DEFAULT_URL = "http://127.0.0.1:8480"
"""The default address of admission."""
VARIABLE = "STROM_SERVER"
REMEMBERED = Path(".strom") / "server"
"""One line, the URL: written by ``strom up`` below the directory in which it was called."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Address(msgspec.Struct, frozen=True):
    """The server's base URL, and a description of where it is configured. ``token_file`` and
    ``ca_file`` are those of its context and are not used for other servers."""

    url: str
    origin: str
    token_file: str = ""
    ca_file: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether the server is this machine, so that requests never use a proxy."""
        return urlsplit(self.url).hostname in LOOPBACK


def address(flag: str | None, environment: Mapping[str, str], directory: Path) -> Address:
    """The address in force. Raises UsageError if the first one found is not a URL."""
    if flag:
        return checked(flag, "from --server")
    if given := environment.get(VARIABLE):
        return checked(given, f"from {VARIABLE}")
    if selected := contexts.current(environment):
        name, context = selected
        found = checked(context.server, f"from context {name}")
        files = {"token_file": context.token_file, "ca_file": context.ca_file}
        return msgspec.structs.replace(found, **files)
    file = config_file(environment)
    if configured := _configured(file):
        return checked(configured, f"from {file}")
    for parent in (directory, *directory.parents):
        remembered = parent / REMEMBERED
        if line := _text(remembered).strip():
            found = checked(line, f"stored by strom up in {remembered}")
            if found.is_loopback:
                return found
            # The owner of the directory controls this file, and tokens are sent to its address.
            raise CommandError(
                f"server {found.url}",
                f"{found.origin}, which may only name an address of this machine",
                "delete that file, or name the server with --server or STROM_SERVER",
            )
    return Address(DEFAULT_URL, "the default")


def config_file(environment: Mapping[str, str]) -> Path:
    """``stromboli/config.yaml`` in the user's configuration directory (XDG base directories)."""
    return contexts.folder(environment) / "config.yaml"


def checked(url: str, origin: str) -> Address:
    """The address of a URL. Raises UsageError if the text is not a URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"server {url!r}",
            f"not a URL ({origin})",
            f"write it with its scheme, such as {DEFAULT_URL}",
        )
    return Address(url.rstrip("/"), origin)


def _configured(file: Path) -> str | None:
    text = _text(file)
    if not text:
        return None
    from stromboli.cli import manifests  # importing YAML costs 20 ms, and few users have this file

    found = manifests.parse(text, str(file))
    documents = [manifest.document for manifest in found]
    if not documents:
        return None
    url = documents[0].get("server")
    if len(documents) > 1 or set(documents[0]) - {"server"} or not isinstance(url, str):
        raise CommandError(
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
        raise CommandError(
            str(file),
            getattr(error, "strerror", "") or "it is not UTF-8 text",
            "make it readable, or set the server with --server",
        ) from None
