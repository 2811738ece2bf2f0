"""Contexts: named servers with their credentials and namespace, in one file of the user.

``contexts.json`` is beside ``config.yaml`` and readable by its owner only. It names token files and
contains no tokens. ``STROM_CONTEXT`` selects a context for one command. The format is JSON, because
importing YAML would cost each command 20 ms.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stromboli.cli.errors import CommandError

VARIABLE = "STROM_CONTEXT"
FILE = "contexts.json"
TOKENS = "tokens"
"""The folder of the tokens that ``strom login`` stores."""


class Context(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A server, files with a token and a CA certificate, and the namespace; empty ones are not
    set."""

    server: str
    token_file: str = ""
    ca_file: str = ""
    namespace: str = ""


class Contexts(msgspec.Struct, frozen=True):
    """All contexts by name, and the selected one."""

    current: str = ""
    contexts: dict[str, Context] = {}


def folder(environment: Mapping[str, str]) -> Path:
    """``stromboli`` in the user's configuration directory (XDG base directories)."""
    home = environment.get("XDG_CONFIG_HOME")
    base = Path(home) if home else Path(environment.get("HOME", "~")).expanduser() / ".config"
    return base / "stromboli"


def load(environment: Mapping[str, str]) -> Contexts:
    """The contexts of the user; none without a file. Raises CommandError for an invalid file."""
    file = folder(environment) / FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=Contexts)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        why = error.strerror or str(error)
    except msgspec.DecodeError as error:
        why = f"it is not a file of contexts: {error}"
    raise CommandError(str(file), why, "correct or remove the file")


def current(environment: Mapping[str, str]) -> tuple[str, Context] | None:
    """The selected context and its name; None without one. Raises CommandError if it does not
    exist."""
    found = load(environment)
    name = environment.get(VARIABLE) or found.current
    if not name:
        return None
    if name not in found.contexts:
        known = ", ".join(found.contexts) or "none"
        raise CommandError(
            f"context {name}", f"it does not exist; there are {known}", "select: strom context use"
        )
    return name, found.contexts[name]


def save(environment: Mapping[str, str], contexts: Contexts) -> None:
    """Write the file of contexts. Raises CommandError."""
    text = msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n"
    write_private(folder(environment) / FILE, text)


def write_private(file: Path, content: bytes) -> None:
    """Replace a file, readable by its owner only from its first byte on. Raises CommandError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(dir=file.parent)  # mode 0600
        try:
            with os.fdopen(number, "wb") as made:
                made.write(content)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(str(file), why, "make its folder writable") from None
