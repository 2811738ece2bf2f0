"""Contexts of the user (``stromboli.client.contexts``) for commands: reads, writes, errors."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from stromboli.cli.errors import CommandError, UsageError
from stromboli.client import contexts, errors
from stromboli.client.contexts import FILE, VARIABLE, Context, Contexts, folder

__all__ = ["FILE", "VARIABLE", "Context", "Contexts", "current", "folder", "load", "save"]
TOKENS = "tokens"
"""The folder of the tokens that ``strom login`` stores."""


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Context manager that translates errors of the user's settings to CommandErrors."""
    try:
        yield
    except errors.InvalidArgumentError as error:
        raise UsageError(error.what, error.reason, error.next_step) from None
    except errors.SettingError as error:
        raise CommandError(error.what, error.reason, error.next_step) from None


def load(environment: Mapping[str, str]) -> Contexts:
    """The contexts of the user; none without a file. Raises CommandError for an invalid file."""
    with translate_errors():
        return contexts.load(environment)


def current(environment: Mapping[str, str]) -> tuple[str, Context] | None:
    """The selected context and its name; None without one. Raises CommandError if it does not
    exist."""
    with translate_errors():
        return contexts.current(environment)


def save(environment: Mapping[str, str], stored_contexts: Contexts) -> None:
    """Write the file of contexts. Raises CommandError."""
    text = msgspec.json.format(msgspec.json.encode(stored_contexts), indent=2) + b"\n"
    write_private(folder(environment) / FILE, text)


def write_private(file: Path, content: bytes) -> None:
    """Replace a file; only its owner can read it, from the first byte on. Raises CommandError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(dir=file.parent)  # mode 0600
        try:
            with os.fdopen(number, "wb") as stream:
                stream.write(content)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(str(file), why, "make its folder writable") from None
