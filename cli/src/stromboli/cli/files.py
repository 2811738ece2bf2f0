"""Reads files that users specify."""

from pathlib import Path

from stromboli.cli.errors import CommandError


def text(path: str, what: str = "file", instead: str = "") -> str:
    """The content of a text file. Raises CommandError for a file that cannot be read or is not
    text; ``instead`` is then the next step, by default to specify another ``what``.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        why, next_step = error.strerror or str(error), f"specify a readable {what}"
        raise CommandError(path, why, next_step) from None
    except UnicodeDecodeError as error:
        why = f"not text: byte {error.start} is not UTF-8"
        raise CommandError(path, why, instead or f"specify a {what}") from None
