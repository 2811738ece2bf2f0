"""Contexts: named servers with their credentials and namespace, in one file of the user.

``contexts.json`` is beside ``config.yaml`` and readable by its owner only. It names token files and
contains no tokens. ``strom context`` and ``strom login`` write it. ``STROM_CONTEXT`` selects a
context for one program. The format is JSON, because importing YAML would cost each command 20 ms.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from stromboli.client import errors
from stromboli.shared import decoding

VARIABLE = "STROM_CONTEXT"
FILE = "contexts.json"


class Context(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A server, files with a token and a CA certificate, and the namespace; an empty field is not
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
    """The contexts of the user; none without a file. Raises SettingError for an invalid file."""
    file = folder(environment) / FILE
    try:
        return decoding.from_json(file.read_bytes(), Contexts)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        why = error.strerror or str(error)
    except msgspec.DecodeError as error:
        why = f"it is not a contexts file: {error}"
    raise errors.SettingError(str(file), why, "correct or remove the file")


def current(environment: Mapping[str, str]) -> tuple[str, Context] | None:
    """The selected context and its name; None without one. Raises SettingError if it does not
    exist."""
    contexts = load(environment)
    name = environment.get(VARIABLE) or contexts.current
    if not name:
        return None
    if name not in contexts.contexts:
        known = ", ".join(contexts.contexts) or "none"
        why = f"it does not exist; known contexts: {known}"
        raise errors.SettingError(f"context {name}", why, "select one: strom context use NAME")
    return name, contexts.contexts[name]
